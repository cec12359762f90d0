package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// This file has what the disk says about CSI volumes: where they are, the files beside them, and which of them a pod has. The calls to
// drivers are in csi.go.

const (
	// volumeData is a file beside a published or staged volume. It names the driver and the driver's handle of the volume. Upstream's kubelet
	// writes and reads it too.
	volumeData = "vol_data.json"
	// stagedMark is a key in this file of a staged volume. Without it, the volume is staged again, because the last staging may have
	// failed. The mark is no file of its own: upstream's kubelet removes the directory only if nothing but its own files is in it.
	stagedMark = "wherryStaged"
	// labelKey is the key in this file for the SELinux label with which the volume is mounted.
	labelKey  = "seLinuxMountContext"
	mountDir  = "mount"
	globalDir = "globalmount"
)

// staging returns the directory of a staged volume, which contains the mount point and the files about the volume.
func (l layout) staging(b *bound) string {
	return filepath.Join(l.root, pluginsDir, "kubernetes.io/csi", b.Driver, csispec.StagingDir(b.Handle))
}

// stagingPath returns the path at which a driver stages a volume, or the directory of a disk of a storage area network.
func (l layout) stagingPath(b *bound) string {
	switch {
	case b.Kind.san():
		return l.sanDisk(b)
	case b.Block:
		return l.deviceStaging(b)
	}
	return filepath.Join(l.staging(b), globalDir)
}

// published returns the directory of a CSI volume of a pod, which contains the mount point and the files about the volume.
func (l layout) published(uid types.UID, b *bound) string {
	return l.volume(uid, kindCSI, b.PersistentVolume)
}

// csiOf lists the CSI volumes of a pod: those with a record in the directory claims, and those that upstream's kubelet published. It fails
// if a directory cannot be read, because a volume that is not listed may be unstaged while the pod uses it.
func (v *Volumes) csiOf(uid types.UID) ([]*bound, error) {
	records, err := v.records(uid)
	if err != nil {
		return nil, err
	}
	byDir := map[string]*bound{}
	for _, b := range records {
		if b.Kind == kindCSI {
			byDir[b.PersistentVolume] = &b
		}
	}
	for _, block := range []bool{false, true} {
		if err := v.findCSI(uid, block, byDir); err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Values(byDir)), nil
}

// findCSI adds to byDir the CSI volumes of a pod that have no record, because upstream's kubelet published them. It finds them by their
// directories or, if block is true, by the links to their devices.
func (v *Volumes) findCSI(uid types.UID, block bool, byDir map[string]*bound) error {
	all := filepath.Join(v.layout.volumes(uid), kindCSI.dir())
	if block {
		all = v.layout.devicesOf(uid, kindCSI)
	}
	entries, err := v.cfg.Disk.ReadDir(all)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list CSI volumes: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if byDir[name] != nil {
			continue
		}
		dir := filepath.Join(all, name)
		if block {
			dir = v.layout.deviceData(&bound{PersistentVolume: name})
		}
		b, err := v.readVolumeData(dir)
		if failedToRead(err) {
			return fmt.Errorf("read %s: %w", volumeData, err)
		}
		if err != nil && !block {
			staged, errMounts := v.stagedOnto(filepath.Join(dir, mountDir))
			if errMounts != nil {
				return errMounts
			}
			if staged != nil {
				b, err = staged, nil
			}
		}
		if err != nil {
			v.cfg.Log.Warn("a CSI volume has no valid "+volumeData+": the agent unmounts it without its driver", "pod", uid, "volume", name, "err", err)
			continue
		}
		b.PersistentVolume, b.Block = name, block
		byDir[name] = b
	}
	return nil
}

// stagedOnto returns the staged volume whose file system is mounted at a path, or nil if there is none, or if it is not clear which one it is. It tells which
// volume a pod has whose own file about it is lost, so that the volume is not unstaged under the pod.
func (v *Volumes) stagedOnto(target string) (*bound, error) {
	plugin, err := v.cfg.Disk.Resolve(filepath.Dir(v.layout.devices())) // as the mount table names it
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resolve directory of CSI drivers: %w", err)
	}
	points, err := v.cfg.Host.MountsOfSame(target, plugin)
	if err != nil {
		return nil, err
	}
	slices.Sort(points)
	if points = slices.Compact(points); len(points) != 1 || filepath.Base(points[0]) != globalDir {
		return nil, nil
	}
	b, err := v.readVolumeData(filepath.Dir(points[0]))
	if failedToRead(err) {
		return nil, fmt.Errorf("read %s: %w", volumeData, err)
	}
	return b, nil
}

// stagingData returns the content of the file volumeData beside a volume that is being staged or unstaged.
func stagingData(b *bound) map[string]string {
	data := map[string]string{"volumeHandle": b.Handle, "driverName": b.Driver}
	if b.SELinux != "" {
		data[labelKey] = b.SELinux
	}
	return data
}

func (v *Volumes) writeVolumeData(dir string, data map[string]string) error {
	text, err := json.Marshal(data)
	if err == nil {
		err = v.cfg.Disk.ReplaceFile(filepath.Join(dir, volumeData), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", volumeData, err)
	}
	return nil
}

// loadVolumeData reads the file volumeData in the directory of a volume. It returns no data with an error.
func (v *Volumes) loadVolumeData(dir string) (map[string]string, error) {
	text, err := v.cfg.Disk.ReadFile(filepath.Join(dir, volumeData))
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	if err := json.Unmarshal(text, &data); err != nil {
		return nil, err
	}
	return data, nil
}

// readVolumeData reads the file volumeData beside a volume of a pod.
func (v *Volumes) readVolumeData(dir string) (*bound, error) {
	data, err := v.loadVolumeData(dir)
	if err == nil {
		err = errors.Join(checkName("driverName", data["driverName"]), checkHandle(data["volumeHandle"]))
	}
	if err != nil {
		return nil, err
	}
	inline := data["volumeLifecycleMode"] == string(storagev1.VolumeLifecycleEphemeral)
	return &bound{
		PersistentVolume: filepath.Base(dir), Kind: kindCSI, Driver: data["driverName"], Handle: data["volumeHandle"], Inline: inline, Attach: !inline, SELinux: data[labelKey],
	}, nil
}

// entryOf returns an entry of a directory that belongs to the agent, or nil if there is none. It does not touch the entry itself, because
// a dead file system may be mounted on it.
func (v *Volumes) entryOf(dir, name string) (fs.DirEntry, error) {
	entries, err := v.cfg.Disk.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find volume on disk: %w", err)
	}
	if i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name }); i >= 0 {
		return entries[i], nil
	}
	return nil, nil
}
