package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/claims"
)

// Claims reads the objects behind persistent volumes from the API server. Calls may be concurrent. The Node authorizer lets a node
// get the claims of its pods and their volumes, but not watch them.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// Node returns this node with its labels. It does no IO.
	Node() *v1.Node
}

// Binder makes the directories of persistent volumes visible to pods. A call may hang if the directory's file system does.
type Binder interface {
	// OpenDir opens a directory at a path that an administrator gave; unix.ENOTDIR: it is none.
	OpenDir(path string) (*os.File, error)
	// Mounted reports whether something is mounted on dir, also a bind mount. It does not hang.
	Mounted(dir string) (bool, error)
	// SetMountOptions applies options of mount(8) to one mount, and returns those that a bind mount cannot have.
	SetMountOptions(target string, options []string) (without []string, err error)
	// HasGroup reports whether SetGroup has done its work before. SetGroup gives a tree to a group.
	HasGroup(dir string, gid int) (bool, error)
	SetGroup(ctx context.Context, dir string, gid int) error
}

// askWithin bounds a request about a claim.
const askWithin = 10 * time.Second

var errNoClaims = errors.New("this node has no API server, through which claims are bound: use hostPath")

// found is a persistent volume that a pod may use.
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
		return found{}, &worded{text: claims.Missing(p, vol).Error(), cause: err}
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
		return found{}, &worded{text: fmt.Sprintf("persistentvolume %q of persistentvolumeclaim %q not found", pvName, name), cause: err}
	case err != nil:
		return found{}, fmt.Errorf("read persistentvolume %s: %w", pvName, err)
	}
	return found{claim, pv}, claims.CheckVolume(p, vol, claim, pv, api.Node())
}

// boundOf describes the use of a persistent volume by a pod.
func boundOf(f found, vol *v1.Volume) (bound, error) {
	b := bound{PersistentVolume: f.pv.Name, Claim: f.claim.Name, Exclusive: claims.Exclusive(f.claim), ReadOnly: claims.ReadOnly(vol)}
	switch src := &f.pv.Spec.PersistentVolumeSource; {
	case src.Local != nil:
		b.Kind, b.Path = kindLocal, src.Local.Path
	case src.HostPath != nil:
		b.Kind, b.Path = kindHostPath, src.HostPath.Path
	default:
		return b, fmt.Errorf("%w: persistentvolume %q is of the kind %s (use one of the kinds local or hostPath, or another node)",
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
	if s.CSI != nil {
		return fmt.Sprintf("csi (driver %s)", s.CSI.Driver)
	}
	return sourceName(&v1.VolumeSource{
		NFS: s.NFS, FC: s.FC, Cinder: nil, Glusterfs: nil, Flocker: s.Flocker, AWSElasticBlockStore: s.AWSElasticBlockStore,
		GCEPersistentDisk: s.GCEPersistentDisk, AzureDisk: s.AzureDisk, VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte,
		PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	})
}

// setUpClaim makes a persistent volume visible to a pod. The record on disk is written before the mount, and again when all is
// done; a volume that is done and mounted needs no request.
func (v *Volumes) setUpClaim(ctx context.Context, p Pod, vol *v1.Volume) error {
	uid := p.Pod.UID
	if b, err := v.readRecord(uid, vol.Name); err == nil && b.Done {
		still, err := v.stillThere(uid, b)
		if err != nil || still {
			return err
		}
	}
	f, err := findClaim(ctx, v.cfg.Claims, p.Pod, vol)
	if err != nil {
		return err
	}
	b, err := boundOf(f, vol)
	if err != nil {
		return err
	}
	unlock, err := v.ofVolume.lock(ctx, b.PersistentVolume)
	if err != nil {
		return fmt.Errorf("wait for other work on persistentvolume %q: %w", b.PersistentVolume, err)
	}
	defer unlock()
	others, err := v.othersWith(b.PersistentVolume, uid)
	if err != nil {
		return err
	}
	if b.Exclusive && len(others) > 0 {
		v.waits.add(b.PersistentVolume, uid)
		return claims.InUse(b.Claim, v.nameOf(others[0]))
	}
	b.Pod = p.Pod.Namespace + "/" + p.Pod.Name
	if err := v.writeRecord(uid, vol.Name, b); err != nil {
		return err
	}
	if err := v.mountClaim(ctx, p.Pod, f.pv, b, len(others) == 0); err != nil {
		return err
	}
	b.Done = true
	return v.writeRecord(uid, vol.Name, b)
}

// mountClaim carries out one kind of persistent volume. first: no other pod of this node uses the volume.
func (v *Volumes) mountClaim(ctx context.Context, p *v1.Pod, pv *v1.PersistentVolume, b bound, first bool) error {
	if b.Kind == kindHostPath {
		return checkHostPath(&v1.HostPathVolumeSource{Path: b.Path, Type: pv.Spec.HostPath.Type})
	}
	return v.mountLocal(ctx, p, pv, b, first)
}

// mountLocal binds the directory of a local volume. A mount of an interrupted attempt, or of another agent, stays.
func (v *Volumes) mountLocal(ctx context.Context, p *v1.Pod, pv *v1.PersistentVolume, b bound, first bool) error {
	dir := b.dir(v.layout, p.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mounted, err := v.cfg.Host.Mounted(dir)
	if err != nil {
		return err
	}
	if !mounted {
		if err := v.bindLocal(b.Path, dir); err != nil {
			return err
		}
	}
	options := pv.Spec.MountOptions
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

func (v *Volumes) bindLocal(path, dir string) error {
	f, err := v.cfg.Host.OpenDir(path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("local path %q does not exist on this node: make the directory, or mount the disk there", path)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("local path %q is not a directory: block devices are not supported yet; make a file system on it, mount it, and name that directory", path)
	case err != nil:
		return err
	}
	defer f.Close()
	return v.cfg.Host.Bind(f, dir)
}

// giveToGroup gives a persistent volume to the fsGroup of the pod, as fsGroupChangePolicy says.
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

// stillThere reports whether a volume whose set-up was done is there yet: a reboot takes mounts away.
func (v *Volumes) stillThere(uid types.UID, b bound) (bool, error) {
	if b.Kind == kindHostPath {
		return true, nil
	}
	return v.cfg.Host.Mounted(b.dir(v.layout, uid))
}
