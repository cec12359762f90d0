package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Claims reads the objects behind persistent volumes from the API server. Calls may be concurrent. The Node authorizer lets a node
// get the claims of its pods and their volumes, but not watch them.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// CSIDriver, Secret and Attachment return the objects of these names.
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Attachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	// Node returns this node with its labels and its status, as the API server has it. It does no IO.
	Node() *v1.Node
}

// Binder makes the directories of persistent volumes visible to pods. A call may hang if the directory's file system hangs.
type Binder interface {
	// OpenDir opens a directory at the path that an administrator wrote into a persistent volume. If the path is no directory, the
	// error is unix.ENOTDIR.
	OpenDir(path string) (*os.File, error)
	// Mounted reports whether there is a mount on dir, also a bind mount. It does not hang, even if the mounted file system hangs.
	Mounted(dir string) (bool, error)
	// MountsOfSame lists the mount points at or below a directory of the file system that is mounted on dir. Like Mounted, it does not hang.
	MountsOfSame(dir, below string) ([]string, error)
	// SetMountOptions applies options of mount(8) to one mount. It returns the options that a bind mount cannot have.
	SetMountOptions(target string, options []string) (without []string, err error)
	// HasGroup reports whether an earlier SetGroup of dir and gid was complete. SetGroup gives a directory and all below it to a group.
	HasGroup(dir string, gid int) (bool, error)
	SetGroup(ctx context.Context, dir string, gid int) error
}

// askWithin is the time limit of a request to the API server. The two requests for a claim and for its persistent volume share this
// time.
const askWithin = 10 * time.Second

var errNoClaims = errors.New("this node has no API server, through which claims are bound: use hostPath")

// found is a claim with the persistent volume that it is bound to.
type found struct {
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
}

// findClaim reads and checks the claim of a volume and the persistent volume that it is bound to.
func findClaim(ctx context.Context, api Claims, p *v1.Pod, vol *v1.Volume) (found, error) {
	if api == nil {
		return found{}, errNoClaims
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	name := claims.Name(p, vol)
	claim, err := api.Claim(ctx, p.Namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return found{}, &pod.Lacking{What: pod.LackClaim, Err: &worded{text: claims.Missing(p, vol).Error(), cause: err}}
	case err != nil:
		return found{}, fmt.Errorf("read persistentvolumeclaim %s/%s: %w", p.Namespace, name, err)
	}
	pvName, err := claims.Check(p, vol, claim)
	if err != nil {
		return found{}, err
	}
	if err := checkName("name of the persistentvolume", pvName); err != nil {
		return found{}, err
	}
	pv, err := api.PersistentVolume(ctx, pvName)
	switch {
	case apierrors.IsNotFound(err):
		return found{}, &pod.Lacking{
			What: pod.LackBinding, Err: &worded{text: fmt.Sprintf("persistentvolume %q of persistentvolumeclaim %q not found", pvName, name), cause: err},
		}
	case err != nil:
		return found{}, fmt.Errorf("read persistentvolume %s: %w", pvName, err)
	}
	if pv, err = csispec.Translated(pv); err != nil {
		return found{}, err
	}
	return found{claim, pv}, claims.CheckVolume(p, vol, claim, pv, api.Node())
}

// boundOf returns the record for the use of a persistent volume by a pod.
func boundOf(f found, vol *v1.Volume) (*bound, error) {
	b := &bound{PersistentVolume: f.pv.Name, Claim: f.claim.Name, Exclusive: claims.Exclusive(f.claim), ReadOnly: claims.ReadOnly(vol)}
	switch src := &f.pv.Spec.PersistentVolumeSource; {
	case src.Local != nil:
		b.Kind, b.Path, b.Block = kindLocal, src.Local.Path, claims.Block(f.pv)
	case src.HostPath != nil:
		b.Kind, b.Path = kindHostPath, src.HostPath.Path
	case src.NFS != nil:
		b.Kind, b.ReadOnly = kindNFS, b.ReadOnly || src.NFS.ReadOnly
		return b, nil
	case src.ISCSI != nil, src.FC != nil:
		return b, b.setDisk(f.pv)
	case src.CSI != nil:
		b.Kind, b.Driver, b.Handle, b.Block = kindCSI, src.CSI.Driver, src.CSI.VolumeHandle, claims.Block(f.pv)
		return b, nil
	default:
		return b, fmt.Errorf("%w: persistentvolume %q is of the kind %s (use one of the kinds csi, nfs, iscsi, fc, local or hostPath, or another node)",
			ErrUnsupported, f.pv.Name, persistentKind(src))
	}
	if b.Path == "" || hasBackstep(b.Path) {
		return b, fmt.Errorf("persistentvolume %q: path %q must not be empty or contain '..'", f.pv.Name, b.Path)
	}
	b.Path = filepath.Join("/", b.Path)
	return b, nil
}

func hasBackstep(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == ".." {
			return true
		}
	}
	return false
}

// persistentKind returns the name of the field of a persistent volume's source.
func persistentKind(s *v1.PersistentVolumeSource) string {
	return sourceName(&v1.VolumeSource{
		Cinder: nil, Glusterfs: nil, Flocker: s.Flocker, AWSElasticBlockStore: s.AWSElasticBlockStore,
		GCEPersistentDisk: s.GCEPersistentDisk, AzureDisk: s.AzureDisk, VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte,
		PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	})
}

// setUpClaim sets up a volume with a claim: it makes the persistent volume visible to the pod.
func (v *Volumes) setUpClaim(ctx context.Context, p Pod, vol *v1.Volume) error {
	have, err := v.mountedBefore(p.Pod.UID, vol.Name)
	if err != nil || have != nil && !v.visits.republishes(have) {
		return err
	}
	return v.orAsBefore(p.Pod, vol, have, v.bindClaim(ctx, p.Pod, vol, have))
}

// bindClaim finds the persistent volume of a claim and makes it visible to the pod.
func (v *Volumes) bindClaim(ctx context.Context, p *v1.Pod, vol *v1.Volume, have *bound) error {
	f, err := findClaim(ctx, v.cfg.Claims, p, vol)
	if err != nil {
		return err
	}
	b, err := boundOf(f, vol)
	if err == nil {
		err = checkDirectory(p, vol, b)
	}
	if err != nil {
		return err
	}
	return v.setUpBound(ctx, p, vol, b.after(have), &csispec.Input{PV: f.pv, Claim: f.claim})
}

// checkDirectory refuses a persistent volume whose directory below that of the pod would be the one of another volume: the directory of a volume without a
// claim has the name of the pod's volume, which the author of the pod chooses.
func checkDirectory(p *v1.Pod, vol *v1.Volume, b *bound) error {
	for _, other := range usedVolumes(p) {
		if other.Name != b.PersistentVolume || other.Name == vol.Name {
			continue
		}
		if k, err := kindOf(other); err == nil && k == b.Kind && k.hasDirectory() {
			return fmt.Errorf("the persistentvolume %q would have the same directory as the volume %q of the pod: give this volume another name", b.PersistentVolume, other.Name)
		}
	}
	return nil
}

// mountedBefore returns the record of a volume if the record says that the set-up has succeeded and the volume is still mounted.
// Otherwise it returns nil. It sends no request.
func (v *Volumes) mountedBefore(uid types.UID, volume string) (*bound, error) {
	b, err := v.readRecord(uid, volume)
	if err != nil || !b.Done {
		return nil, nil //nolint:nilerr // without a record the caller sets the volume up
	}
	if there, err := v.stillThere(uid, &b); !there || err != nil {
		return nil, err
	}
	v.visits.add(uid, volume, &b, v.asksHealth(&b))
	return &b, nil
}

// after returns b, which is the new record of a volume that is set up once more. have is the earlier record, or nil if the volume is not
// mounted. If both records are about the same volume, Done is set in b, and Size is copied from have to b.
func (b *bound) after(have *bound) *bound {
	if have != nil && have.key() == b.key() {
		b.Done, b.Size = true, have.Size
	}
	return b
}

// orAsBefore handles the result err of a set-up. If the volume was mounted before (have is its record), a failure to publish the volume
// again becomes an event, and orAsBefore returns nil, because the pod can continue to use the mount. Otherwise it returns err.
func (v *Volumes) orAsBefore(p *v1.Pod, vol *v1.Volume, have *bound, err error) error {
	if err == nil || have == nil {
		return err
	}
	ref := have.ref(p.UID)
	v.cfg.Event(ref, v1.EventTypeWarning, ReasonFailedMount, fmt.Sprintf("volume %q stays mounted, but cannot be published again: %v", vol.Name, err))
	return nil
}

// setUpBound writes the record of a volume, mounts the volume, and marks the record as done. So there is a record of every mount, even if
// the agent ends at any step.
func (v *Volumes) setUpBound(ctx context.Context, p *v1.Pod, vol *v1.Volume, b *bound, in *csispec.Input) error {
	var driver Driver
	var err error
	if b.Kind == kindCSI {
		if in.Driver, driver, err = v.resolveCSI(ctx, p.UID, b); err != nil {
			return err
		}
	}
	if b.Kind.san() { // the attach-detach controller keeps a disk from being used on two nodes
		b.Attach = v.cfg.Claims != nil
	}
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on volume %q: %w", b.PersistentVolume, err)
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	var others []types.UID
	if !b.Inline || b.Kind.san() {
		if others, err = v.othersWith(b, p.UID); err != nil {
			return err
		}
	}
	if b.Exclusive && len(others) > 0 {
		v.waits.add(b.key(), p.UID)
		return claims.InUse(b.Claim, v.nameOf(others[0]))
	}
	if b.SELinux, err = v.seLinuxLabel(p, vol.Name, b, in); err != nil {
		return err
	}
	if err := v.seLinuxConflict(p.UID, b, others); err != nil {
		return err
	}
	in.SELinux = b.SELinux
	b.Pod = p.Namespace + "/" + p.Name
	admitted := false
	if b.Attach && !b.Done {
		if admitted, err = v.using.admit(b.unique()); err != nil {
			return err
		}
	}
	if err := v.writeRecord(p.UID, vol.Name, b); err != nil {
		if admitted {
			v.using.withdraw(b.unique())
		}
		return err
	}
	switch b.Kind {
	case kindCSI:
		err = v.mountCSI(ctx, p, in, driver, b)
	case kindNFS:
		unlock() // with the lock held, a server that does not answer would delay the volume's pods one after the other
		err = v.setUpNFS(ctx, &v1.NFSVolumeSource{Server: in.PV.Spec.NFS.Server, Path: in.PV.Spec.NFS.Path, ReadOnly: b.ReadOnly},
			b.dir(v.layout, p.UID), in.PV.Spec.MountOptions)
	case kindISCSI, kindFC:
		err = v.mountSAN(ctx, p, in.PV, b, len(others) == 0)
	case kindHostPath:
		err = v.setUpHostPath(ctx, &v1.HostPathVolumeSource{Path: b.Path, Type: in.PV.Spec.HostPath.Type})
	case kindLocal:
		if err = v.touch(ctx, b.Path); err != nil {
			err = fmt.Errorf("local path %q: %w", b.Path, err)
		} else if b.Block {
			err = v.mapLocal(p.UID, b)
		} else {
			err = v.mountLocal(ctx, p, in.PV, b, len(others) == 0)
		}
		if err == nil {
			err = v.expandLocal(ctx, p, in, b)
		}
	}
	if err != nil {
		return err
	}
	b.Done = true
	if err := v.writeRecord(p.UID, vol.Name, b); err != nil {
		return err
	}
	v.visits.add(p.UID, vol.Name, b, v.asksHealth(b))
	return nil
}

// mountLocal makes a bind mount of the directory of a local volume, or of the file system of a local block device. It keeps an
// existing mount, which an interrupted try or another agent has made. If first is true, no other pod of the node uses the volume, and
// mountLocal gives the volume to the pod's fsGroup.
func (v *Volumes) mountLocal(ctx context.Context, p *v1.Pod, pv *v1.PersistentVolume, b *bound, first bool) error {
	dir := b.dir(v.layout, p.UID)
	device, err := v.cfg.Host.IsBlockDevice(b.Path)
	if err != nil {
		return err
	}
	err = v.bindVolume(dir, func() (string, error) {
		if device {
			return v.mountLocalDevice(ctx, pv, b)
		}
		return b.Path, nil
	})
	if err != nil {
		return err
	}
	options := pv.Spec.MountOptions
	if device { // mountLocalDevice has mounted the file system with the options
		options = nil
	}
	if b.ReadOnly {
		options = append(options[:len(options):len(options)], "ro")
	}
	without, err := v.cfg.Host.SetMountOptions(dir, options)
	if err != nil {
		return err
	}
	if len(without) > 0 {
		v.cfg.Log.Warn("mount options without effect: a local volume is a bind mount, and they concern its whole file system",
			"persistentVolume", pv.Name, "options", strings.Join(without, ","))
	}
	if first && !b.ReadOnly {
		return v.giveToGroup(ctx, p, dir)
	}
	return nil
}

// bindVolume makes a bind mount on dir, the directory of a pod's volume, unless something is mounted there. source returns what is mounted.
func (v *Volumes) bindVolume(dir string, source func() (path string, err error)) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mounted, err := v.cfg.Host.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	path, err := source()
	if err != nil {
		return err
	}
	f, err := v.cfg.Host.OpenDir(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("local path %q does not exist on this node: make the directory, or mount the disk there", path)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("local path %q is neither a directory nor a block device", path)
	case err != nil:
		return err
	}
	defer f.Close()
	return v.cfg.Host.Bind(f, dir)
}

// giveToGroup gives a persistent volume to the fsGroup of the pod. With fsGroupChangePolicy OnRootMismatch, it changes the files only
// if the top directory does not belong to the group yet.
func (v *Volumes) giveToGroup(ctx context.Context, p *v1.Pod, dir string) error {
	group := fsGroup(p)
	if group < 0 {
		return nil
	}
	if policy := p.Spec.SecurityContext.FSGroupChangePolicy; policy != nil && *policy == v1.FSGroupChangeOnRootMismatch {
		done, err := v.cfg.Host.HasGroup(dir, group)
		if err != nil || done {
			return err
		}
	}
	return v.cfg.Host.SetGroup(ctx, dir, group)
}

// stillThere reports whether a volume that was set up is still mounted; after a reboot it is not.
func (v *Volumes) stillThere(uid types.UID, b *bound) (bool, error) {
	switch {
	case b.Kind == kindHostPath:
		return true, nil
	case b.Block && b.Kind.san():
		return v.cfg.Host.Mounted(v.layout.sanDevice(uid, b))
	case b.Block && b.Kind == kindLocal:
		return v.cfg.Host.Mounted(v.layout.localDevice(uid, b.PersistentVolume))
	case b.Block:
		return v.isMapped(uid, b)
	}
	return v.cfg.Host.Mounted(b.dir(v.layout, uid))
}
