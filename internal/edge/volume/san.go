package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// Pods of a node share a disk of a storage area network. The first one connects it, and the node disconnects it after the last one has ended (see stagings). Nothing is
// disconnected while its file system is mounted, in whatever mount namespace.

// SCSI finds, adds and removes the disks of a storage area network. hostfs.Host says what the methods do. ScanUnit, ScanFibreChannel and RemoveDisk may
// wait for ever for a disk that does not answer. Calls may be concurrent.
type SCSI interface {
	ISCSISessions(target string) ([]hostfs.ISCSISession, error)
	ScanUnit(host, unit int) error
	ScanFibreChannel() error
	DiskLinks(by string) (map[string]string, error)
	MultipathOf(device string) (multipath string, paths []string, err error)
	DiskID(device string) string
	RemoveDisk(device string) error
}

const (
	// connectWithin is how long it may take to connect a disk: the logins, and until the kernel shows the disk.
	connectWithin = 4 * time.Minute
	// diskWithin is how long the kernel may take to show a disk after it was asked to look for it.
	diskWithin = 30 * time.Second
	// multipathWithin is how long multipathd may take to make one device of several paths.
	multipathWithin = 10 * time.Second
	// scanWithin is how long the kernel may look for a disk, or write what is in the cache of a disk that it forgets.
	scanWithin = time.Minute
)

// setDisk completes the record of a volume on a disk of a storage area network. It returns an error if the source of the volume is not valid.
func (b *bound) setDisk(pv *v1.PersistentVolume) (err error) {
	b.Block = claims.Block(pv)
	if src := pv.Spec.ISCSI; src != nil {
		b.Kind, b.ReadOnly = kindISCSI, b.ReadOnly || src.ReadOnly
		b.Disk, b.Handle, err = iscsiNames(src, pv.Name)
		return err
	}
	b.Kind, b.ReadOnly = kindFC, b.ReadOnly || pv.Spec.FC.ReadOnly
	b.Disk, b.Handle, err = fcNames(pv.Spec.FC)
	return err
}

// setUpSAN sets up a volume whose disk the pod itself names. Such a volume has no persistent volume: it is treated like one with the name of the
// pod's volume.
func (v *Volumes) setUpSAN(ctx context.Context, p *v1.Pod, vol *v1.Volume) error {
	have, err := v.mountedBefore(p.UID, vol.Name)
	if err != nil || have != nil {
		return err
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: vol.Name}}
	if src := vol.ISCSI; src != nil {
		pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{
			TargetPortal: src.TargetPortal, IQN: src.IQN, Lun: src.Lun, ISCSIInterface: src.ISCSIInterface, FSType: src.FSType, ReadOnly: src.ReadOnly,
			Portals: src.Portals, DiscoveryCHAPAuth: src.DiscoveryCHAPAuth, SessionCHAPAuth: src.SessionCHAPAuth, InitiatorName: src.InitiatorName,
		}
		if src.SecretRef != nil {
			pv.Spec.ISCSI.SecretRef = &v1.SecretReference{Namespace: p.Namespace, Name: src.SecretRef.Name}
		}
	}
	pv.Spec.FC = vol.FC
	b := &bound{PersistentVolume: vol.Name, Inline: true}
	if err := b.setDisk(pv); err != nil {
		return err
	}
	return v.setUpBound(ctx, p, vol, b, &csispec.Input{PV: pv})
}

// mountSAN makes a disk available to a pod: its file system, or the disk itself (volumeMode Block). The caller holds the volume's lock and has written
// the record. If first is true, no other pod of the node uses the disk, and mountSAN gives its file system to the pod's fsGroup.
func (v *Volumes) mountSAN(ctx context.Context, p *v1.Pod, pv *v1.PersistentVolume, b *bound, first bool) error {
	if b.Attach {
		if _, err := v.attached(ctx, b); err != nil {
			return err
		}
	}
	if b.Block {
		device, err := v.connect(ctx, pv, b)
		if err != nil {
			return err
		}
		if err := v.linkDevice(p.UID, b, device); err != nil {
			return err
		}
		return v.holdDevice(v.layout.sanDevice(p.UID, b), device)
	}
	dir := b.dir(v.layout, p.UID)
	if err := v.bindVolume(dir, func() (string, error) { return v.mountSANDisk(ctx, pv, b) }); err != nil {
		return err
	}
	if b.ReadOnly {
		_, err := v.cfg.Host.SetMountOptions(dir, []string{"ro"})
		return err
	}
	if first {
		return v.giveToGroup(ctx, p, dir)
	}
	return nil
}

// mountSANDisk mounts the file system of a disk, unless it is mounted already, and returns the directory of the mount.
func (v *Volumes) mountSANDisk(ctx context.Context, pv *v1.PersistentVolume, b *bound) (string, error) {
	at := v.layout.sanDisk(b)
	mounted, err := v.cfg.Host.Mounted(at)
	if err != nil || mounted {
		return at, err
	}
	device, err := v.connect(ctx, pv, b)
	if err != nil {
		return "", err
	}
	return at, v.mountDisk(ctx, &disk{device: device, dir: at, fsType: fsTypeOf(pv), options: csispec.MountOptions(pv, b.SELinux), readOnly: b.ReadOnly})
}

// connect connects the disk of a volume, unless it is connected, and returns the path of its device: of the multipath device if the disk has several paths.
func (v *Volumes) connect(ctx context.Context, pv *v1.PersistentVolume, b *bound) (device string, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	dir := v.layout.sanDisk(b)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make directory of the disk: %w", err)
	}
	var devices []string
	multipath := false
	if b.Kind == kindISCSI {
		multipath = len(pv.Spec.ISCSI.Portals) > 0
		devices, err = v.connectISCSI(ctx, pv, dir)
	} else {
		multipath = len(pv.Spec.FC.TargetWWNs) > 1 || len(pv.Spec.FC.WWIDs) > 1
		devices, err = v.connectFC(ctx, pv.Spec.FC)
	}
	if err != nil {
		return "", err
	}
	patience := time.Duration(0)
	if multipath && len(devices) > 1 {
		patience = multipathWithin
	}
	_ = poll(ctx, patience, func() bool {
		for _, one := range devices {
			if device, _, err = v.cfg.Host.MultipathOf(one); device != "" || err != nil {
				return true
			}
		}
		return false
	})
	if err != nil {
		return "", err
	}
	if device != "" {
		return device, nil
	}
	return devices[0], nil
}

// poll calls done at once, and then again after short pauses that grow, until it returns true, or the time within has passed. The kernel makes devices
// without telling anybody but udev, which a machine need not have.
func poll(ctx context.Context, within time.Duration, done func() bool) bool {
	end := time.Now().Add(within)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if done() {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		t := time.NewTimer(min(pause, left))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}

// fsTypeOf returns the type of file system that the source of a persistent volume names.
func fsTypeOf(pv *v1.PersistentVolume) string {
	if pv.Spec.ISCSI != nil {
		return pv.Spec.ISCSI.FSType
	}
	return pv.Spec.FC.FSType
}

// takeDownSAN unmounts the volumes of a pod on disks of a storage area network, all of them concurrently. The disks that no other pod of the node uses are
// disconnected afterwards: see stagings.
func (v *Volumes) takeDownSAN(ctx context.Context, uid types.UID) error {
	all, err := v.sanOf(uid)
	if err != nil {
		return err
	}
	return together(all, func(b *bound) error {
		began := time.Now()
		err := v.takeDownDisk(ctx, uid, b)
		v.unmounted(ctx, b.Kind, "", b.Block, began, err)
		if err != nil {
			return fmt.Errorf("volume %q: %w", b.PersistentVolume, err)
		}
		return nil
	})
}

// takeDownDisk ends the use of a disk by a volume of a pod.
func (v *Volumes) takeDownDisk(ctx context.Context, uid types.UID, b *bound) error {
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on the volume: %w", err)
	}
	defer unlock()
	if err := v.adopt(uid, b); err != nil {
		return err
	}
	var paths []diskPath
	if b.Block {
		held := v.layout.sanDevice(uid, b)
		if paths, err = v.pathsAt(held, b.Kind); err == nil {
			err = v.unmapDevice(uid, b, held)
		}
	} else {
		err = v.removeMount(ctx, b.dir(v.layout, uid), b.dir(v.layout, uid))
	}
	if err != nil {
		return err
	}
	if err := v.leaveStaged(b); err != nil { // before the record is removed, so that the volume is in use all the time
		return err
	}
	v.hold(b, paths)
	if err := v.removeRecord(uid, b); err != nil {
		return err
	}
	v.wake(b.key())
	return nil
}

// releaseDisk unmounts a disk that no pod uses any more, as a file system or as a device, and removes its directory. It disconnects the disk, unless
// pods use it in the other volumeMode. The file system is never detached lazily: it would still be written to when its disk is gone.
func (v *Volumes) releaseDisk(ctx context.Context, b *bound) error {
	dir := v.layout.sanDisk(b)
	if there, err := v.entryOf(filepath.Dir(dir), filepath.Base(dir)); err != nil || there == nil {
		return err
	}
	if !b.Block {
		paths, err := v.pathsAt(dir, b.Kind)
		if err != nil {
			return err
		}
		v.hold(b, paths)
	}
	err := v.unmountAll(dir, func(dir string) error {
		_, err := v.runTool(ctx, dir, unmountWithin, "umount", "-c", dir)
		return err
	})
	if err != nil {
		return fmt.Errorf("unmount the disk: %w", err)
	}
	other := *b
	other.Block = !b.Block
	otherDir := v.layout.sanDisk(&other)
	asOther, err := v.entryOf(filepath.Dir(otherDir), filepath.Base(otherDir))
	switch {
	case err != nil:
	case asOther != nil: // a pod has the disk in the other volumeMode
	case b.Kind == kindISCSI:
		err = v.disconnectISCSI(ctx, v.iscsiOf(b, dir), dir)
	default:
		err = v.disconnectFC(ctx, b, dir)
	}
	if err != nil {
		return fmt.Errorf("disconnect the disk: %w", err)
	}
	if err := v.cfg.Host.RemoveTree(ctx, dir); err != nil {
		return err
	}
	if b.Kind == kindISCSI {
		_ = os.Remove(filepath.Dir(dir)) // the directory of the interface; it stays if there are other disks
	}
	return nil
}

// removeDisks makes the kernel forget devices. Of a multipath device, and of a path of one, it forgets all paths, after multipath(8) has taken the
// multipath device apart.
func (v *Volumes) removeDisks(ctx context.Context, dir string, devices []string) error {
	var all []string
	for _, device := range devices {
		multipath, paths, err := v.cfg.Host.MultipathOf(device)
		if err != nil {
			return err
		}
		if multipath == "" {
			paths = []string{device}
		} else if _, err := v.runTool(ctx, dir, unmountWithin, "multipath", "-f", multipath); err != nil {
			return fmt.Errorf("remove multipath device: %w", err)
		}
		for _, path := range paths {
			if !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	for _, device := range all {
		if err := v.scsi.do(ctx, "remove/"+device, func() error { return v.cfg.Host.RemoveDisk(device) }); err != nil {
			return err
		}
	}
	return nil
}
