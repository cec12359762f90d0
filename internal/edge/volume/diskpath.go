package volume

import "slices"

// diskPath is a device, and the identifier of the disk to which it leads. A device with this name and another identifier leads to another disk.
type diskPath struct{ device, id string }

// pathsAt returns the paths to a Fibre Channel disk that is mounted at a path of the node, as a file system or as a device. It returns none if nothing is
// mounted there. It also returns none for an iSCSI disk, whose devices are found by the sessions with its target.
func (v *Volumes) pathsAt(path string, k kind) ([]diskPath, error) {
	if k != kindFC {
		return nil, nil
	}
	device, err := v.cfg.Host.DeviceAt(path)
	if err != nil || device == "" {
		return nil, err
	}
	return v.pathsOf([]string{device})
}

// pathsOf returns the paths of multipath devices. Any other device is itself a path.
func (v *Volumes) pathsOf(devices []string) (all []diskPath, err error) {
	for _, device := range devices {
		multipath, paths, err := v.cfg.Host.MultipathOf(device)
		if err != nil {
			return nil, err
		}
		if multipath == "" {
			paths = []string{device}
		}
		for _, path := range paths {
			all = append(all, diskPath{path, v.cfg.Host.DiskID(path)})
		}
	}
	return all, nil
}

// hold remembers paths to a disk that pods have left, until the disk is disconnected, and returns the devices of all paths that it has got for this disk. The
// links to the disk need not lead to all of them: a link with the disk's identifier disappears together with the multipath device. hold leaves out the devices
// that lead to another disk now, or to none. known means that it has got any paths before.
func (v *Volumes) hold(b *bound, found []diskPath) (devices []string, known bool) {
	held := v.stagings.hold(v.layout.stagingPath(b), found)
	for _, one := range held {
		if !slices.Contains(devices, one.device) && v.cfg.Host.DiskID(one.device) == one.id {
			devices = append(devices, one.device)
		}
	}
	for _, one := range found { // also a path that was not remembered
		if !slices.Contains(devices, one.device) {
			devices = append(devices, one.device)
		}
	}
	return devices, len(held) > 0
}
