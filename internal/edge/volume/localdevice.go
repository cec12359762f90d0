package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// A local volume that is a block device has these paths. Upstream's kubelet uses the same paths.
//
//	<root>/plugins/kubernetes.io/local-volume/mounts/<persistent volume>                 mount of its file system, bind-mounted for each pod
//	<root>/plugins/kubernetes.io~local-volume/volumeDevices/<persistent volume>/<uid>    volumeMode Block: bind mount of the device for one pod
//	<root>/pods/<uid>/volumeDevices/kubernetes.io~local-volume/<persistent volume>       link to the device, for the runtime
func (l layout) localMount(name string) string {
	return filepath.Join(l.root, pluginsDir, "kubernetes.io/local-volume/mounts", name)
}

func (l layout) localDevices(name string) string {
	return filepath.Join(l.root, pluginsDir, kindLocal.dir(), devicesDir, name)
}

func (l layout) localDevice(uid types.UID, name string) string {
	return filepath.Join(l.localDevices(name), string(uid))
}

// mountLocalDevice mounts the file system of a local block device, unless it is mounted already, and returns the directory of the
// mount. It formats a device without content first.
func (v *Volumes) mountLocalDevice(ctx context.Context, pv *v1.PersistentVolume, b *bound) (string, error) {
	dir := v.layout.localMount(b.PersistentVolume)
	mounted, err := v.cfg.Host.Mounted(dir)
	if err != nil || mounted {
		return dir, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make directory of local volume: %w", err)
	}
	d := &disk{device: b.Path, dir: dir, options: pv.Spec.MountOptions, readOnly: b.ReadOnly}
	if t := pv.Spec.Local.FSType; t != nil {
		d.fsType = *t
	}
	return dir, v.mountDisk(ctx, d)
}

// byTools returns the expansion of a local volume. Its administrator has made the directory or the device larger. The node only grows the file
// system of a device, unless the pod has the device itself.
func (v *Volumes) byTools(uid types.UID, in *csispec.Input, b *bound) *expansion {
	return &expansion{uid: uid, in: in, b: b, grow: func(ctx context.Context, _ int64, _ map[string]string) error {
		device, err := v.cfg.Host.IsBlockDevice(b.Path)
		if err != nil || !device || b.Block {
			return err
		}
		return v.growDisk(ctx, &disk{device: b.Path, dir: v.layout.localMount(b.PersistentVolume)})
	}}
}

// expandLocal expands a local volume while it is being mounted.
func (v *Volumes) expandLocal(ctx context.Context, p *v1.Pod, in *csispec.Input, b *bound) error {
	if in.Claim == nil {
		return nil
	}
	return v.expand(ctx, v.byTools(p.UID, in, b))
}

// mapLocal makes a local block device available to a pod. The caller holds the volume's lock and has written the record.
func (v *Volumes) mapLocal(uid types.UID, b *bound) error {
	is, err := v.cfg.Host.IsBlockDevice(b.Path)
	if err != nil {
		return err
	}
	if !is {
		return fmt.Errorf("local path %q is no block device, and the persistent volume has volumeMode Block: name a device of this node", b.Path)
	}
	real, err := filepath.EvalSymlinks(b.Path) // the path may be a link, for example one in /dev/disk
	if err != nil {
		return fmt.Errorf("find local device: %w", err)
	}
	if err := v.linkDevice(uid, b, real); err != nil {
		return err
	}
	return v.holdDevice(v.layout.localDevice(uid, b.PersistentVolume), real)
}

// releaseLocal ends a pod's use of its local block devices, and unmounts their file systems if no other pod uses them. The pod's own
// mounts must be gone already.
func (v *Volumes) releaseLocal(ctx context.Context, uid types.UID) error {
	names := map[string]bool{}
	for _, dir := range []string{filepath.Join(v.layout.volumes(uid), kindLocal.dir()), v.layout.devicesOf(uid, kindLocal)} {
		entries, err := v.cfg.Disk.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list local volumes: %w", err)
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	for name := range names {
		if err := v.releaseLocalOne(ctx, uid, &bound{Kind: kindLocal, PersistentVolume: name}); err != nil {
			return err
		}
	}
	return nil
}

func (v *Volumes) releaseLocalOne(ctx context.Context, uid types.UID, b *bound) error {
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on the volume: %w", err)
	}
	defer unlock()
	if err := v.unmapDevice(uid, b, v.layout.localDevice(uid, b.PersistentVolume)); err != nil {
		return err
	}
	others, err := v.othersWith(b, uid)
	if err != nil {
		return err
	}
	if len(others) == 0 {
		if err := v.unmountLocalDevice(ctx, b); err != nil {
			return err
		}
	}
	// Remove this directory last and with the lock held, because it shows that the pod uses the volume. So if two pods end at the same
	// time, the second one finds that it is the last user.
	if err := os.Remove(v.layout.volume(uid, kindLocal, b.PersistentVolume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove volume directory: %w", err)
	}
	return v.removeRecord(uid, b)
}

// unmountLocalDevice unmounts the file system of a local block device, and removes the directories that its pods share.
func (v *Volumes) unmountLocalDevice(ctx context.Context, b *bound) error {
	if err := os.Remove(v.layout.localDevices(b.PersistentVolume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove directory of device: %w", err)
	}
	dir := v.layout.localMount(b.PersistentVolume)
	if there, err := v.entryOf(filepath.Dir(dir), filepath.Base(dir)); err != nil || there == nil {
		return err
	}
	return v.removeMount(ctx, dir, dir)
}
