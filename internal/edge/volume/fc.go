package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// fcIDs returns the names by which the disk of a Fibre Channel volume is found: the port names of its targets and the number of its unit (byPort), or
// identifiers of the disk itself.
func fcIDs(src *v1.FCVolumeSource) (ids []string, unit int, byPort bool, err error) {
	switch {
	case len(src.TargetWWNs) > 0 && src.Lun != nil:
		ids, unit, byPort = src.TargetWWNs, int(*src.Lun), true
		if unit < 0 || unit > maxUnit {
			return nil, 0, false, fmt.Errorf("fc.lun %d must be between 0 and %d", unit, maxUnit)
		}
	case len(src.WWIDs) > 0:
		ids = src.WWIDs
	default:
		return nil, 0, false, errors.New("fc: the volume names no disk: set targetWWNs and lun, or wwids")
	}
	if len(ids) > maxPaths {
		return nil, 0, false, fmt.Errorf("fc: the volume has %d names of ports or identifiers: the node uses at most %d", len(ids), maxPaths)
	}
	for _, id := range ids {
		if id == "" || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r >= 0x7f || r == '/' }) {
			return nil, 0, false, fmt.Errorf("fc: %q is not the name of a port or the identifier of a disk", id)
		}
	}
	return ids, unit, byPort, nil
}

// fcNames returns the path of a disk's directory, and the name by which the attach-detach controller knows the disk. In the path, as in udev's links, '_'
// stands for a space in an identifier. Upstream's kubelet has the same paths.
func fcNames(src *v1.FCVolumeSource) (disk, handle string, err error) {
	ids, unit, byPort, err := fcIDs(src)
	if err != nil {
		return "", "", err
	}
	disk = strings.Join(ids, "-")
	if byPort {
		disk += "-lun-" + strconv.Itoa(unit)
	} else {
		disk = strings.ReplaceAll(disk, " ", "_")
	}
	return disk, fcHandle(ids, unit, byPort), checkDiskPath(kindFC, disk)
}

// fcOfPath undoes fcNames, as far as the path says it: an identifier that contains '-' looks like several, and a '_' may stand for a space.
func fcOfPath(disk string) (ids []string, unit int, byPort bool) {
	if i := strings.LastIndex(disk, "-lun-"); i >= 0 {
		if unit, err := strconv.Atoi(disk[i+len("-lun-"):]); err == nil {
			return strings.Split(disk[:i], "-"), unit, true
		}
	}
	return strings.Split(disk, "-"), 0, false
}

func fcHandle(ids []string, unit int, byPort bool) string {
	if byPort {
		return fmt.Sprintf("%v:%d", ids, unit)
	}
	return fmt.Sprint(ids)
}

// connectFC returns the devices of a disk. Ports are connected all the time, so the kernel only has to look for the disk if it does not show it yet.
func (v *Volumes) connectFC(ctx context.Context, src *v1.FCVolumeSource) (devices []string, err error) {
	ids, unit, byPort, err := fcIDs(src)
	if err != nil {
		return nil, err
	}
	if devices, err = v.fcDevices(ids, unit, byPort); err != nil || len(devices) > 0 {
		return devices, err
	}
	scan, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	if err := v.scsi.do(scan, "fc", v.cfg.Host.ScanFibreChannel); err != nil {
		return nil, err
	}
	if !poll(ctx, diskWithin, func() bool {
		devices, err = v.fcDevices(ids, unit, byPort)
		return err != nil || len(devices) > 0
	}) {
		return nil, fmt.Errorf("this node sees no Fibre Channel disk %s: see the zones of the fabric and the masks of the storage", fcHandle(ids, unit, byPort))
	}
	return devices, err
}

// disconnectFC removes a disk that is not mounted any more: the devices that were mounted, and, if the disk is known by its ports, those that have a link. If
// this agent has not seen the mount, because the agent before it has unmounted the disk, the links are all that is left.
func (v *Volumes) disconnectFC(ctx context.Context, b *bound, dir string) error {
	ids, unit, byPort := fcOfPath(b.Disk)
	devices, known := v.hold(b, nil)
	if byPort || !known {
		linked, err := v.linkedPaths(ids, unit, byPort, dir)
		if err != nil {
			return err
		}
		devices, _ = v.hold(b, linked)
	}
	return v.removeDisks(ctx, dir, devices)
}

// linkedPaths finds the paths to the disk whose directory dir has these identifiers. It returns an error if they lead to several disks: the parts of an
// identifier that contains '-' may be the identifiers of others.
func (v *Volumes) linkedPaths(ids []string, unit int, byPort bool, dir string) ([]diskPath, error) {
	if !byPort {
		links, err := v.cfg.Host.DiskLinks("by-id")
		if err != nil {
			return nil, err
		}
		ids = joinLinked(ids, links)
	}
	devices, err := v.fcDevices(ids, unit, byPort)
	if err != nil {
		return nil, err
	}
	paths, err := v.pathsOf(devices)
	for _, one := range paths {
		if !byPort && one.id != paths[0].id {
			return nil, fmt.Errorf("%s and %s are different disks, and the name of the directory %s does not tell which of them no pod uses any more: "+
				"remove the directory, and disconnect the disk by hand", paths[0].device, one.device, dir)
		}
	}
	return paths, err
}

// joinLinked returns the identifiers of disks of which a path has these parts: as many parts in order as have a link together are one identifier.
func joinLinked(parts []string, links map[string]string) (ids []string) {
	for len(parts) > 0 {
		n := len(parts)
		for n > 1 && links[fcLink(strings.Join(parts[:n], "-"))] == "" {
			n--
		}
		ids, parts = append(ids, strings.Join(parts[:n], "-")), parts[n:]
	}
	return ids
}

// fcDevices finds the devices of a disk by the links that udev makes: in by-path pci-<address>-fc-0x<port name>-lun-<unit>, and in by-id
// scsi-<identifier>.
func (v *Volumes) fcDevices(ids []string, unit int, byPort bool) (devices []string, err error) {
	by := "by-id"
	if byPort {
		by = "by-path"
	}
	links, err := v.cfg.Host.DiskLinks(by)
	if err != nil {
		return nil, err
	}
	for name, device := range links {
		if slices.ContainsFunc(ids, func(id string) bool { return isFCLink(name, id, unit, byPort) }) && !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
	}
	slices.Sort(devices)
	return devices, nil
}

// isFCLink reports whether the name of a link in /dev/disk is that of a disk.
func isFCLink(name, id string, unit int, byPort bool) bool {
	if !byPort {
		return name == fcLink(id)
	}
	rest, ok := strings.CutSuffix(name, "fc-0x"+strings.TrimPrefix(strings.ToLower(id), "0x")+"-lun-"+strconv.Itoa(unit))
	return ok && (rest == "" || strings.HasPrefix(rest, "pci-") && strings.HasSuffix(rest, "-"))
}

// fcLink returns the name of the link in /dev/disk/by-id to the disk with an identifier.
func fcLink(id string) string { return "scsi-" + strings.ReplaceAll(id, " ", "_") }
