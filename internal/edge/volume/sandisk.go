package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// This file has what the disk says about volumes on disks of a storage area network: where they are, and which of them a pod has. What is done with
// them is in san.go.
//
// A disk of a storage area network (SAN), which is reached by iSCSI or by Fibre Channel, has these paths. Upstream's kubelet has the same.
// <disk> is iface-<interface>/<portal>-<target>-lun-<unit> for iSCSI, and <port names>-lun-<unit> or <identifiers> for Fibre Channel.
//
//	<root>/plugins/kubernetes.io/<kind>/<disk>                        mount of the disk's file system, bind-mounted for each pod
//	<root>/plugins/kubernetes.io/<kind>/volumeDevices/<disk>/<uid>    volumeMode Block: bind mount of the device for one pod
//	<root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>             the volume of a pod
//	<root>/pods/<uid>/volumeDevices/kubernetes.io~<kind>/<persistent volume>    link to the device, for the runtime

// san reports whether volumes of this kind are disks of a storage area network.
func (k kind) san() bool { return k == kindISCSI || k == kindFC }

// levels returns how many directories the path of a disk's directory has, below that of its plugin.
func (k kind) levels() int {
	if k == kindISCSI {
		return 2
	}
	return 1
}

func (l layout) sanPlugin(k kind) string {
	return filepath.Join(l.root, pluginsDir, "kubernetes.io", string(k))
}

// sanDisk returns the directory of a disk, on which its file system is mounted. For a block volume, it contains a bind mount of the device
// for each pod.
func (l layout) sanDisk(b *bound) string {
	if b.Block {
		return filepath.Join(l.sanPlugin(b.Kind), devicesDir, b.Disk)
	}
	return filepath.Join(l.sanPlugin(b.Kind), b.Disk)
}

func (l layout) sanDevice(uid types.UID, b *bound) string {
	return filepath.Join(l.sanDisk(b), string(uid))
}

// checkDiskPath returns an error if the path of a disk's directory, from a record or from the mount table, is not one of the kind.
func checkDiskPath(k kind, disk string) error {
	parts := strings.Split(disk, "/")
	if len(parts) != k.levels() || k == kindISCSI && !strings.HasPrefix(parts[0], "iface-") {
		return fmt.Errorf("%q is not the directory of a disk", disk)
	}
	for _, part := range parts {
		if err := checkName("directory of the disk", part); err != nil || part == devicesDir {
			return fmt.Errorf("%q is not the directory of a disk", disk)
		}
	}
	return nil
}

// sanOf lists the volumes of a pod on disks of a storage area network: those with a record, and those that upstream's kubelet has set up.
func (v *Volumes) sanOf(uid types.UID) ([]*bound, error) {
	records, err := v.records(uid)
	if err != nil {
		return nil, err
	}
	var all []*bound
	for _, b := range records {
		if b.Kind.san() {
			all = append(all, &b)
		}
	}
	for _, k := range []kind{kindISCSI, kindFC} {
		if all, err = v.findSAN(uid, k, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// findSAN adds the volumes of a pod that have no record: they are on the disks whose file system is mounted for the pod, and those whose device is.
func (v *Volumes) findSAN(uid types.UID, k kind, all []*bound) ([]*bound, error) {
	plugin, err := v.cfg.Disk.Resolve(v.layout.sanPlugin(k)) // as the mount table names it
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resolve directory of disks: %w", err)
	}
	parent := filepath.Join(v.layout.volumes(uid), k.dir())
	entries, err := v.cfg.Disk.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	add := func(name, disk string, block bool) {
		if checkDiskPath(k, disk) != nil {
			return
		}
		if b := v.boundOfDisk(name, k, disk, block); !slices.ContainsFunc(all, func(have *bound) bool { return have.key() == b.key() && have.Block == block }) {
			all = append(all, b)
		}
	}
	for _, e := range entries {
		points, err := v.cfg.Host.MountsOfSame(filepath.Join(parent, e.Name()), plugin)
		if err != nil {
			return nil, err
		}
		for _, point := range points {
			add(e.Name(), strings.TrimPrefix(point, plugin+"/"), false)
		}
	}
	if there, err := v.entryOf(filepath.Dir(v.layout.devicesOf(uid, k)), k.dir()); there == nil || err != nil {
		return all, err
	}
	disks, err := v.disksBelow(filepath.Join(plugin, devicesDir), k.levels())
	if err != nil {
		return nil, err
	}
	for _, disk := range disks {
		held, err := v.entryOf(filepath.Join(plugin, devicesDir, disk), string(uid))
		if err != nil {
			return nil, err
		}
		if held != nil {
			add(filepath.Base(disk), disk, true)
		}
	}
	return all, nil
}

// disksBelow lists the directories of disks that are this many levels below a directory.
func (v *Volumes) disksBelow(dir string, levels int) (disks []string, err error) {
	entries, err := v.cfg.Disk.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if levels == 1 {
			disks = append(disks, e.Name())
			continue
		}
		below, err := v.disksBelow(filepath.Join(dir, e.Name()), levels-1)
		if err != nil {
			return nil, err
		}
		for _, one := range below {
			disks = append(disks, filepath.Join(e.Name(), one))
		}
	}
	return disks, nil
}

// connectedDisks lists the disks that the node has directories of, as file systems and as devices.
func (v *Volumes) connectedDisks() (all []*bound, err error) {
	for _, k := range []kind{kindISCSI, kindFC} {
		for _, block := range []bool{false, true} {
			plugin := v.layout.sanPlugin(k)
			if block {
				plugin = filepath.Join(plugin, devicesDir)
			}
			disks, err := v.disksBelow(plugin, k.levels())
			if err != nil {
				return nil, err
			}
			for _, disk := range disks {
				if checkDiskPath(k, disk) == nil {
					all = append(all, v.boundOfDisk(filepath.Base(disk), k, disk, block))
				}
			}
		}
	}
	return all, nil
}
