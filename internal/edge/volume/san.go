package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// A disk of a storage area network (SAN), which is reached by iSCSI or by Fibre Channel, has these paths. Upstream's kubelet has the same.
// <disk> is iface-<interface>/<portal>-<target>-lun-<unit> for iSCSI, and <port names>-lun-<unit> or <identifiers> for Fibre Channel.
//
//	<root>/plugins/kubernetes.io/<kind>/<disk>                        mount of the disk's file system, bind-mounted for each pod
//	<root>/plugins/kubernetes.io/<kind>/volumeDevices/<disk>/<uid>    volumeMode Block: bind mount of the device for one pod
//	<root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>             the volume of a pod
//	<root>/pods/<uid>/volumeDevices/kubernetes.io~<kind>/<persistent volume>    link to the device, for the runtime
//
// Pods of a node share a disk. The first one connects it, and the machine disconnects it when the last one has ended. Nothing is disconnected
// while its file system is mounted, in whatever mount namespace.

// SCSI finds, adds and removes the disks of a storage area network. hostfs.Host says what the methods do. None of them waits for a disk for
// longer than its context.
type SCSI interface {
	ISCSISessions(target string) ([]hostfs.ISCSISession, error)
	ScanUnit(ctx context.Context, host, unit int) error
	ScanFibreChannel(ctx context.Context) error
	DiskLinks(by string) (map[string]string, error)
	MultipathOf(device string) (multipath string, paths []string, err error)
	RemoveDisk(ctx context.Context, device string) error
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

// san reports whether volumes of this kind are disks of a storage area network.
func (k kind) san() bool { return k == kindISCSI || k == kindFC }

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

// checkDiskPath returns an error if the path of a disk's directory, from a record or from the mount table, is not one of the kind.
func checkDiskPath(k kind, disk string) error {
	parts := strings.Split(disk, "/")
	if want := map[kind]int{kindISCSI: 2, kindFC: 1}[k]; len(parts) != want || k == kindISCSI && !strings.HasPrefix(parts[0], "iface-") {
		return fmt.Errorf("%q is not the directory of a disk", disk)
	}
	for _, part := range parts {
		if err := checkName("directory of the disk", part); err != nil || part == devicesDir {
			return fmt.Errorf("%q is not the directory of a disk", disk)
		}
	}
	return nil
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
	at := v.layout.sanDisk(b)
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
	mounted, err := v.cfg.Host.Mounted(at)
	if err != nil {
		return err
	}
	if !mounted {
		device, err := v.connect(ctx, pv, b)
		if err != nil {
			return err
		}
		if err := v.mountDisk(ctx, &disk{device: device, dir: at, fsType: fsTypeOf(pv), options: pv.Spec.MountOptions, readOnly: b.ReadOnly}); err != nil {
			return err
		}
	}
	dir := b.dir(v.layout, p.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	if mounted, err = v.cfg.Host.Mounted(dir); err != nil {
		return err
	}
	if !mounted {
		if err := v.bindLocal(at, dir); err != nil {
			return err
		}
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

// connect connects the disk of a volume, unless it is connected, and returns the path of its device: of the multipath device if the disk has several paths.
func (v *Volumes) connect(ctx context.Context, pv *v1.PersistentVolume, b *bound) (device string, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	dir := v.layout.sanDisk(b)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make directory of the disk: %w", err)
	}
	var devices []string
	several := false
	if b.Kind == kindISCSI {
		several = len(pv.Spec.ISCSI.Portals) > 0
		devices, err = v.connectISCSI(ctx, pv, dir)
	} else {
		several = len(pv.Spec.FC.TargetWWNs) > 1 || len(pv.Spec.FC.WWIDs) > 1
		devices, err = v.connectFC(ctx, pv.Spec.FC)
	}
	if err != nil {
		return "", err
	}
	patience := time.Duration(0)
	if several && len(devices) > 1 {
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
		b := &bound{PersistentVolume: name, Kind: k, Disk: disk, Handle: handleOf(k, disk), Attach: v.cfg.Claims != nil, Block: block, Done: true}
		if checkDiskPath(k, disk) == nil && !slices.ContainsFunc(all, func(have *bound) bool { return have.key() == b.key() && have.Block == block }) {
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
	disks, err := v.disksBelow(filepath.Join(plugin, devicesDir), map[kind]int{kindISCSI: 2, kindFC: 1}[k])
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

// handleOf returns the name that the attach-detach controller gives to a disk, from the path of its directory.
func handleOf(k kind, disk string) string {
	if k == kindISCSI {
		t := iscsiOfPath(disk)
		return fmt.Sprintf("%s:%s:%s", strings.TrimSuffix(t.Portals[0], ":"+iscsiPort), t.IQN, t.Lun)
	}
	ids, unit, byPort := fcOfPath(disk)
	return fcHandle(ids, unit, byPort)
}

// takeDownSAN unmounts the volumes of a pod on disks of a storage area network, and disconnects the disks that no other pod of the node uses. It does so
// for all of them concurrently.
func (v *Volumes) takeDownSAN(ctx context.Context, uid types.UID) error {
	all, err := v.sanOf(uid)
	if err != nil {
		return err
	}
	return together(all, func(b *bound) error {
		began := time.Now()
		err := v.takeDownDisk(ctx, uid, b, all)
		v.unmounted(ctx, b.Kind, "", b.Block, began, err)
		if err != nil {
			return fmt.Errorf("volume %q: %w", b.PersistentVolume, err)
		}
		return nil
	})
}

// takeDownDisk ends the use of a disk by a volume of a pod, whose volumes of this sort are own.
func (v *Volumes) takeDownDisk(ctx context.Context, uid types.UID, b *bound, own []*bound) error {
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on the volume: %w", err)
	}
	defer unlock()
	if err := v.adopt(uid, b); err != nil {
		return err
	}
	if b.Block {
		err = v.unmapDevice(uid, b, v.layout.sanDevice(uid, b))
	} else {
		err = v.removeMount(ctx, b.dir(v.layout, uid), b.dir(v.layout, uid))
	}
	if err != nil {
		return err
	}
	others, err := v.othersWith(b, uid)
	if err != nil {
		return err
	}
	if len(others) == 0 && !slices.ContainsFunc(own, func(o *bound) bool { return o != b && o.key() == b.key() && v.isThere(uid, o) }) {
		if err := v.releaseDisk(ctx, b); err != nil {
			return err
		}
	}
	if err := v.removeRecord(uid, b); err != nil {
		return err
	}
	v.wake(b.key())
	return nil
}

// isThere reports whether a volume of a pod is still mounted. If that cannot be known, it is.
func (v *Volumes) isThere(uid types.UID, b *bound) bool {
	there, err := v.stillThere(uid, b)
	return there || err != nil
}

// unmapDevice undoes holdDevice and linkDevice.
func (v *Volumes) unmapDevice(uid types.UID, b *bound, held string) error {
	if err := v.cfg.Host.DetachLoop(held); err != nil {
		return err
	}
	if err := v.removeFile(held); err != nil {
		return err
	}
	if err := os.Remove(v.layout.deviceLink(uid, b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove link to device: %w", err)
	}
	return nil
}

// releaseDisk unmounts a disk that no pod uses any more, disconnects it, and removes its directory. The file system is never detached lazily: it
// would still be written to when its disk is gone.
func (v *Volumes) releaseDisk(ctx context.Context, b *bound) error {
	dir := v.layout.sanDisk(b)
	if there, err := v.entryOf(filepath.Dir(dir), filepath.Base(dir)); err != nil || there == nil {
		return err
	}
	for range unmountRounds {
		mounted, err := v.cfg.Host.Mounted(dir)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		if _, err := v.runTool(ctx, dir, unmountWithin, "umount", "-c", dir); err != nil {
			return fmt.Errorf("unmount the disk: %w", err)
		}
	}
	if mounted, err := v.cfg.Host.Mounted(dir); err != nil || mounted {
		return errors.Join(err, fmt.Errorf("something keeps mounting on %s", dir))
	}
	devices, err := v.devicesOfDisk(b, dir)
	if err == nil {
		err = v.removeDisks(ctx, dir, devices)
	}
	if err == nil && b.Kind == kindISCSI {
		err = v.logoutISCSI(ctx, b, dir)
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

// devicesOfDisk returns the devices of a disk that is not mounted any more.
func (v *Volumes) devicesOfDisk(b *bound, dir string) ([]string, error) {
	if b.Kind == kindISCSI {
		return v.iscsiDevices(v.iscsiOf(b, dir))
	}
	ids, unit, byPort := fcOfPath(b.Disk)
	return v.fcDevices(ids, unit, byPort)
}

// removeDisks makes the kernel forget devices, and the multipath devices that were made of them.
func (v *Volumes) removeDisks(ctx context.Context, dir string, devices []string) error {
	all := slices.Clone(devices)
	for _, device := range devices {
		multipath, paths, err := v.cfg.Host.MultipathOf(device)
		if err != nil {
			return err
		}
		if multipath == "" {
			continue
		}
		if _, err := v.runTool(ctx, dir, unmountWithin, "multipath", "-f", multipath); err != nil {
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
		if err := v.cfg.Host.RemoveDisk(ctx, device); err != nil {
			return err
		}
	}
	return nil
}
