package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// ClaimStatus writes the status of claims. Calls may be concurrent.
type ClaimStatus interface {
	// PatchClaimStatus applies a strategic merge patch to the status of a claim, and returns the claim after that.
	PatchClaimStatus(ctx context.Context, namespace, name string, body []byte) (*v1.PersistentVolumeClaim, error)
}

// The reasons of events about the size of volumes.
const (
	reasonExpanded  = "FileSystemResizeSuccessful"
	reasonReadOnly  = "FileSystemResizeFailed"
	reasonNotResize = "VolumeResizeFailed"
)

// expansion is the input of expand: a volume of a pod, with its claim.
type expansion struct {
	uid types.UID
	in  *csispec.Input
	b   *bound
	// secret is the Secret that grow needs; nil: none.
	secret *v1.SecretReference
	// grow expands the volume to a size in bytes.
	grow func(ctx context.Context, size int64, secrets map[string]string) error
}

// byDriver returns the expansion of a volume by its CSI driver. path is where the volume is published, or staged if it is not published yet.
func byDriver(uid types.UID, in *csispec.Input, d Driver, b *bound, path string) *expansion {
	return &expansion{uid: uid, in: in, b: b, secret: in.PV.Spec.CSI.NodeExpandSecretRef, grow: func(ctx context.Context, size int64, secrets map[string]string) error {
		with := *in
		with.Secrets = secrets
		return d.Expand(ctx, csispec.Expand(&with, size, path))
	}}
}

// expand expands a volume, if the claim says that the node has to. It keeps the size in the record x.b, which the caller writes. The
// caller holds the volume's lock.
//
// If expand returns an error, the volume does not have its new size yet, and the caller should try again. If another try cannot help,
// expand returns nil: the driver says that the size is not possible, or that the volume must not be in use.
func (v *Volumes) expand(ctx context.Context, x *expansion) error {
	plan := csispec.PlanExpansion(x.in.Claim, x.in.PV, x.b.Size)
	if !plan.Do {
		x.b.Size = max(x.b.Size, plan.Size.Value())
		return nil
	}
	if x.b.ReadOnly {
		v.tellSize(x, v1.EventTypeWarning, reasonReadOnly, "MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", x.b.PersistentVolume)
		return nil
	}
	secrets, err := v.secrets(ctx, x.secret)
	if err != nil {
		return err
	}
	claim := x.in.Claim
	if plan.Begin {
		if claim, err = v.patchClaim(ctx, claim, csispec.ExpansionBegins); err != nil {
			return err
		}
	}
	if err := x.grow(ctx, plan.Size.Value(), secrets); err != nil {
		return v.expansionFailed(ctx, x, claim, plan, err)
	}
	x.b.Size = plan.Size.Value()
	v.tellSize(x, v1.EventTypeNormal, reasonExpanded, "MountVolume.NodeExpandVolume succeeded for volume %q %s", x.b.PersistentVolume, v.cfg.Claims.Node().Name)
	if !plan.Finish {
		return nil
	}
	_, err = v.patchClaim(ctx, claim, func(c *v1.PersistentVolumeClaim) ([]byte, error) { return csispec.ExpansionEnds(c, plan.Size) })
	return err
}

// expandMounting expands a volume while it is being mounted. path is where it is staged, or published if it is not staged.
func (v *Volumes) expandMounting(ctx context.Context, in *csispec.Input, d Driver, b *bound, path string) error {
	if in.Claim == nil || !in.Can.Expand {
		return nil
	}
	return v.expand(ctx, byDriver(in.Pod.UID, in, d, b, path))
}

// expansionFailed writes the driver's error into the claim's status and to events.
func (v *Volumes) expansionFailed(ctx context.Context, x *expansion, claim *v1.PersistentVolumeClaim, plan csispec.Expansion, failed error) error {
	v.tellSize(x, v1.EventTypeWarning, reasonNotResize, "NodeExpandVolume failed for volume %q : %v", x.b.PersistentVolume, failed)
	// If the claim requests another size by now, the controller can continue only after the node has given up the size of plan.
	asked := claim.Spec.Resources.Requests[v1.ResourceStorage]
	infeasible := csispec.Infeasible(failed) || csispec.Final(failed) && asked.Cmp(plan.Size) != 0
	if csispec.Final(failed) && plan.Finish {
		if _, err := v.patchClaim(ctx, claim, func(c *v1.PersistentVolumeClaim) ([]byte, error) {
			return csispec.ExpansionFails(c, time.Now(), failed, infeasible && plan.Begin)
		}); err != nil {
			return errors.Join(failed, err)
		}
	}
	if csispec.InUse(failed) {
		v.visits.refused(x.uid, x.b)
		return nil
	}
	if infeasible && plan.Begin {
		return nil
	}
	return failed
}

// patchClaim changes the status of a claim.
func (v *Volumes) patchClaim(ctx context.Context, claim *v1.PersistentVolumeClaim, make func(*v1.PersistentVolumeClaim) ([]byte, error)) (*v1.PersistentVolumeClaim, error) {
	body, err := make(claim)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	after, err := v.cfg.ClaimStatus.PatchClaimStatus(ctx, claim.Namespace, claim.Name, body)
	if err != nil {
		return nil, fmt.Errorf("write the status of persistentvolumeclaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return after, nil
}

// tellSize records an event on the pod and on the claim.
func (v *Volumes) tellSize(x *expansion, eventType, reason, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	v.cfg.Event(x.b.ref(x.uid), eventType, reason, text)
	c := x.in.Claim
	v.cfg.Event(&v1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}, eventType, reason, text)
}

// expandOnline compares the size of a mounted volume with its persistent volume, and expands the volume if it has grown. Nodes may
// read persistent volumes and claims but not watch them, so it is called about once a minute. again is false if the volume is gone, or
// if its driver cannot expand volumes.
func (v *Volumes) expandOnline(ctx context.Context, uid types.UID, volume string) (again bool) {
	b, err := v.readRecord(uid, volume)
	if err != nil || !b.Done {
		return !errors.Is(err, errNotSetUp)
	}
	var d Driver
	if b.Kind == kindCSI {
		if d = v.cfg.Driver(b.Driver); d == nil {
			return true
		}
		if !d.Can().Expand {
			return false
		}
	}
	if err := v.expandIfGrown(ctx, uid, volume, d); err != nil && ctx.Err() == nil {
		v.cfg.Log.Warn("cannot expand a volume; the agent tries again", "pod", b.Pod, "persistentVolume", b.PersistentVolume, "after", visitEvery, "err", err)
	}
	return true
}

// expandIfGrown expands a mounted volume if its persistent volume is larger than its record says. d is nil for a local volume.
func (v *Volumes) expandIfGrown(ctx context.Context, uid types.UID, volume string, d Driver) error {
	b, err := v.readRecord(uid, volume)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	pv, err := v.cfg.Claims.PersistentVolume(asking, b.PersistentVolume)
	if err != nil {
		return fmt.Errorf("read persistentvolume %s: %w", b.PersistentVolume, err)
	}
	if pv, err = csispec.Translated(pv); err != nil {
		return err
	}
	size := pv.Spec.Capacity[v1.ResourceStorage]
	if size.Value() <= b.Size || pv.Spec.ClaimRef == nil {
		return nil
	}
	csi, local := pv.Spec.CSI, pv.Spec.Local
	if d != nil && (csi == nil || csi.Driver != b.Driver || csi.VolumeHandle != b.Handle) || d == nil && (local == nil || filepath.Join("/", local.Path) != b.Path) {
		return fmt.Errorf("persistentvolume %s is another volume now", b.PersistentVolume)
	}
	claim, err := v.cfg.Claims.Claim(asking, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	if err != nil {
		return fmt.Errorf("read persistentvolumeclaim %s/%s: %w", pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name, err)
	}
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on volume %q: %w", b.PersistentVolume, err)
	}
	defer unlock()
	if b, err = v.readRecord(uid, volume); err != nil || !b.Done { // the pod has ended
		return nil //nolint:nilerr // a volume without a record needs no size
	}
	in := &csispec.Input{PV: pv, Claim: claim, Handle: b.Handle, Block: b.Block}
	x := v.byTools(uid, in, &b)
	if d != nil {
		in.Can = d.Can()
		if in.Can.Stage {
			in.StagingPath = v.layout.stagingPath(&b)
		}
		x = byDriver(uid, in, d, &b, b.dir(v.layout, uid))
	}
	before := b.Size
	err = v.expand(ctx, x)
	if b.Size == before {
		return err
	}
	return errors.Join(err, v.writeRecord(uid, volume, &b))
}
