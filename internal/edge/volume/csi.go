package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Driver is the node service of a CSI driver. Calls may be concurrent. Each call ends with its context, or after a timeout of its own,
// and may be repeated.
type Driver interface {
	Can() csispec.Capabilities
	Stage(ctx context.Context, req *csi.NodeStageVolumeRequest) error
	Unstage(ctx context.Context, req *csi.NodeUnstageVolumeRequest) error
	Publish(ctx context.Context, req *csi.NodePublishVolumeRequest) error
	Unpublish(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) error
	Stats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error)
	Expand(ctx context.Context, req *csi.NodeExpandVolumeRequest) error
}

// csiObject reads the CSIDriver object of a driver. It returns nil if the cluster has none.
func (v *Volumes) csiObject(ctx context.Context, driver string) (*storagev1.CSIDriver, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	d, err := v.cfg.Claims.CSIDriver(ctx, driver)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CSIDriver %s: %w", driver, err)
	}
	return d, nil
}

// driver returns a registered driver. If the driver is not registered, driver returns an error that ends with the text of what, and the
// work on the pod is tried again as soon as the driver registers.
func (v *Volumes) driver(name string, uid types.UID, what string) (Driver, error) {
	if d := v.cfg.Driver(name); d != nil {
		return d, nil
	}
	v.waits.add(waitDriver+name, uid)
	if d := v.cfg.Driver(name); d != nil { // the driver may have registered just before the pod began to wait
		return d, nil
	}
	return nil, &pod.Lacking{What: pod.LackDriver, Err: fmt.Errorf("waits for CSI driver %s to register on this node%s", name, what)}
}

// DriverRegistered must be called after a driver has registered: the work on the pods and on the staged volumes that wait for it is tried
// again. It may have been away for long, or be a newer one, so the node also looks which of its mounted volumes have grown.
func (v *Volumes) DriverRegistered(name string) {
	v.wake(waitDriver + name)
	v.stagings.hasten(name)
	v.visits.registered(name, v.asksDriver(name))
}

const waitDriver = "driver/"

// resolveCSI reads the CSIDriver object of a volume, sets the fields of b (the volume's record) that depend on this object, and finds the
// driver. It fails if the driver is not registered, or if it does not allow volumes like b (persistent or inline).
func (v *Volumes) resolveCSI(ctx context.Context, uid types.UID, b *bound) (object *storagev1.CSIDriver, d Driver, err error) {
	if err := errors.Join(checkName("name of the CSI driver", b.Driver), checkHandle(b.Handle)); err != nil {
		return nil, nil, err
	}
	if v.cfg.Claims == nil {
		return nil, nil, errNoClaims
	}
	if object, err = v.csiObject(ctx, b.Driver); err != nil {
		return nil, nil, err
	}
	if err := csispec.CheckMode(object, b.Driver, b.Inline); err != nil {
		return nil, nil, err
	}
	b.Attach = !b.Inline && csispec.NeedsAttach(object)
	b.Republish = object != nil && object.Spec.RequiresRepublish != nil && *object.Spec.RequiresRepublish
	d, err = v.driver(b.Driver, uid, "")
	return object, d, err
}

// maxHandle is the longest handle of a volume, in bytes. The handle is the name by which the driver knows the volume. It counts as the records and volumeData
// contain it, in JSON, because these files have a bound too (maxRecord).
const maxHandle = 16 << 10

func checkHandle(handle string) error {
	size := len(handle)
	if size > 0 && size <= maxHandle {
		text, err := json.Marshal(handle)
		if err != nil {
			return fmt.Errorf("encode volumeHandle: %w", err)
		}
		size = len(text) - len(`""`)
	}
	switch {
	case size == 0 || size > maxHandle:
		return fmt.Errorf("volumeHandle has %d bytes as JSON text: it must have between 1 and %d", size, maxHandle)
	case !utf8.ValidString(handle): // the records would contain another handle
		return errors.New("volumeHandle is no valid UTF-8")
	}
	return nil
}

// mountCSI stages and publishes a volume. The caller holds the volume's lock and has written the record.
func (v *Volumes) mountCSI(ctx context.Context, p *v1.Pod, in *csispec.Input, d Driver, b *bound) (err error) {
	in.Pod, in.Can, in.Handle, in.ReadOnly = p, d.Can(), b.Handle, b.ReadOnly
	if b.Attach {
		if in.PublishContext, err = v.attached(ctx, b); err != nil {
			return err
		}
	}
	if b.Block {
		return v.mapCSI(ctx, in, d, b)
	}
	dir := v.layout.published(p.UID, b)
	in.TargetPath = filepath.Join(dir, mountDir)
	if !b.Inline && in.Can.Stage {
		in.StagingPath = filepath.Join(v.layout.staging(b), globalDir)
		if err := v.stage(ctx, in, d, b); err != nil {
			return err
		}
		if err := v.expandMounting(ctx, in, d, b, in.StagingPath); err != nil {
			return err
		}
	}
	if in.Secrets, err = v.secrets(ctx, publishSecret(in)); err != nil {
		return err
	}
	if in.Tokens, err = v.tokens(ctx, in); err != nil {
		return err
	}
	if err := v.cfg.Disk.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mode := storagev1.VolumeLifecyclePersistent
	if b.Inline {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	node := v.cfg.Claims.Node().Name
	data := stagingData(b)
	maps.Copy(data, map[string]string{
		"specVolID": b.PersistentVolume, "nodeName": node, "volumeLifecycleMode": string(mode), "attachmentID": csispec.Attachment(b.Handle, b.Driver, node),
	})
	if err := v.writeVolumeData(dir, data); err != nil {
		return err
	}
	if err := d.Publish(ctx, csispec.Publish(in)); err != nil {
		return err
	}
	if err := v.checkTarget(dir, b); err != nil {
		return err
	}
	if in.StagingPath == "" {
		if err := v.expandMounting(ctx, in, d, b, in.TargetPath); err != nil {
			return err
		}
	}
	if csispec.AgentSetsGroup(in) {
		return v.giveToGroup(ctx, p, in.TargetPath)
	}
	return nil
}

// checkTarget checks that the target path of a volume that a driver has published is a directory. A driver may report success without
// having made the directory, and a link at this path would lead the runtime to another directory of the node.
//
// For an inline volume, checkTarget makes a missing directory: some drivers make none for an inline volume that stays empty, and
// runtimes then make it. Data in this directory ends with the pod, like the data of any inline volume. For a persistent volume, a
// missing directory is an error, because the data of the volume must not get into a directory of the node.
func (v *Volumes) checkTarget(dir string, b *bound) error {
	driver := b.Driver
	target, err := v.entryOf(dir, mountDir)
	switch {
	case err != nil:
		return err
	case target == nil && b.Inline:
		v.cfg.Log.Warn("a CSI driver made nothing at the target_path of an inline volume, which is an empty directory now", "driver", driver, "volume", b.PersistentVolume, "pod", b.Pod)
		return v.cfg.Disk.MkdirAll(filepath.Join(dir, mountDir), 0o755)
	case target == nil:
		return fmt.Errorf("CSI driver %s said that it published the volume, but there is nothing at its target_path", driver)
	case !target.IsDir():
		return fmt.Errorf("CSI driver %s said that it published the volume, but its target_path is no directory: %s", driver, target.Type())
	}
	return nil
}

// stage stages a volume, unless it is staged already.
func (v *Volumes) stage(ctx context.Context, in *csispec.Input, d Driver, b *bound) error {
	dir := v.layout.staging(b)
	known, err := v.isStaged(b) // by an earlier attempt, for another pod, or for one that has ended
	if err != nil {
		return err
	}
	data, err := v.loadVolumeData(dir)
	if failedToRead(err) {
		return fmt.Errorf("read %s: %w", volumeData, err)
	}
	dead := known && v.dead(ctx, in.StagingPath)
	if err == nil && v.cfg.SELinux != nil && data[labelKey] != b.SELinux { // of a pod that has ended: no other pod has the volume with another label
		if err := v.unstage(ctx, d, b); err != nil {
			return fmt.Errorf("unstage the volume, which has %s: %w", labelled(data[labelKey]), err)
		}
		known, dead = false, false
	} else if data[stagedMark] != "" && !dead {
		mounted, err := v.cfg.Host.Mounted(in.StagingPath)
		if err != nil || mounted {
			return err
		}
	}
	staged := *in
	if staged.Secrets, err = v.secrets(ctx, in.PV.Spec.CSI.NodeStageSecretRef); err != nil { // before there is a directory, which would say that the driver was called
		return err
	}
	if dead {
		v.cfg.Log.Warn("the file system of a staged volume is dead: its driver is asked to stage it again", "driver", b.Driver, "persistentVolume", b.PersistentVolume)
	} else if err := v.cfg.Disk.MkdirAll(in.StagingPath, 0o750); err != nil {
		return fmt.Errorf("make staging directory: %w", err)
	}
	if err := v.writeVolumeData(dir, stagingData(b)); err != nil {
		return err
	}
	if err := d.Stage(ctx, csispec.Stage(&staged)); err != nil {
		if csispec.Final(err) && !known {
			v.forgetStaging(ctx, b)
		}
		return err
	}
	data = stagingData(b)
	data[stagedMark] = "true"
	return v.writeVolumeData(dir, data)
}

// forgetStaging removes the directory of a volume whose first staging has ended with a final error: the driver has done nothing that it must undo, so it is
// not called to unstage the volume when the pod ends. After any other error it may have staged the volume, or may still do so. The directory also stays if
// it was there before: then the volume was perhaps staged before, although some drivers mount nothing there. The caller holds the volume's lock.
func (v *Volumes) forgetStaging(ctx context.Context, b *bound) {
	dir := v.layout.staging(b)
	target := filepath.Join(dir, globalDir)
	mounted, err := v.cfg.Host.Mounted(target)
	if err == nil && !mounted {
		err = v.removeMount(ctx, dir, target)
	}
	if err != nil {
		v.cfg.Log.Warn("cannot remove the directory of a volume that was not staged; the driver unstages it when the pod ends", "persistentVolume", b.PersistentVolume, "err", err)
	}
}

// removeMount deletes the directory of a volume that its driver has unmounted. If something is still mounted on target, removeMount
// unmounts it first, and deletes nothing in it.
func (v *Volumes) removeMount(ctx context.Context, dir, target string) error {
	if err := v.unmountAll(target, v.cfg.Host.Unmount); err != nil {
		return err
	}
	// This fails if target is not empty, because a driver may keep data there without a mount.
	if err := v.cfg.Disk.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove mount point that the driver has unmounted: %w", err)
	}
	return v.cfg.Host.RemoveTree(ctx, dir)
}

func publishSecret(in *csispec.Input) *v1.SecretReference {
	switch {
	case in.PV != nil:
		return in.PV.Spec.CSI.NodePublishSecretRef
	case in.Inline.NodePublishSecretRef != nil:
		return &v1.SecretReference{Namespace: in.Pod.Namespace, Name: in.Inline.NodePublishSecretRef.Name}
	}
	return nil
}

// secrets returns the data of the Secret that a call needs. It returns nil if ref is nil, because the call then needs no Secret.
func (v *Volumes) secrets(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := v.cfg.Claims.Secret(ctx, ref.Namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &worded{text: fmt.Sprintf("secret %s/%s of the volume not found: create it", ref.Namespace, ref.Name), cause: err}
	case err != nil:
		return nil, fmt.Errorf("read secret %s/%s of the volume: %w", ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(s.Data))
	for key, value := range s.Data {
		out[key] = string(value)
	}
	return out, nil
}

// tokens returns the tokens of the pod's service account that the CSIDriver object asks for, as JSON text; "": it asks for none.
func (v *Volumes) tokens(ctx context.Context, in *csispec.Input) (string, error) {
	if in.Driver == nil || len(in.Driver.Spec.TokenRequests) == 0 {
		return "", nil
	}
	type token struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expirationTimestamp"`
	}
	tokens := map[string]token{}
	for _, r := range in.Driver.Spec.TokenRequests {
		text, expires, err := v.cfg.Objects.ServiceAccountToken(ctx, in.Pod, r.Audience, r.ExpirationSeconds)
		if err != nil {
			return "", fmt.Errorf("token of %s/%s for CSI driver %s: %w", in.Pod.Namespace, in.Pod.Spec.ServiceAccountName, in.Driver.Name, err)
		}
		tokens[r.Audience] = token{text, expires.UTC().Truncate(time.Second)}
	}
	out, err := json.Marshal(tokens)
	if err != nil {
		return "", fmt.Errorf("encode tokens: %w", err)
	}
	return string(out), nil
}

// takeDownCSI unpublishes the CSI volumes of a pod. The volumes that no other pod of the node uses are unstaged afterwards: see stagings.
func (v *Volumes) takeDownCSI(ctx context.Context, uid types.UID) error {
	all, err := v.csiOf(uid)
	if err != nil || len(all) == 0 {
		return err
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() {
			began := time.Now()
			err := v.takeDownOne(ctx, uid, b)
			v.unmounted(ctx, kindCSI, b.Driver, b.Block, began, err)
			if err != nil {
				errs[i] = fmt.Errorf("volume %q: %w", b.PersistentVolume, err)
			}
		})
	}
	wg.Wait()
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		return several(errs)
	}
	return nil
}

func (v *Volumes) takeDownOne(ctx context.Context, uid types.UID, b *bound) error {
	unlock, err := v.ofVolume.lock(ctx, b.key())
	if err != nil {
		return fmt.Errorf("wait for other work on the volume: %w", err)
	}
	defer unlock()
	dir := v.layout.published(uid, b)
	if b.Block {
		dir = v.layout.deviceLink(uid, b)
	}
	published, err := v.entryOf(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return err
	}
	if published != nil {
		d, err := v.driver(b.Driver, uid, ", which has to unmount the volume")
		if err != nil {
			return err
		}
		if err := v.unpublish(ctx, uid, d, b); err != nil {
			return err
		}
	}
	if err := v.leaveStaged(b); err != nil { // before the record is removed, so that the volume is in use all the time
		return err
	}
	if err := v.removeRecord(uid, b); err != nil {
		return err
	}
	v.wake(b.key())
	return nil
}

// unpublish calls the driver to unpublish a volume of a pod, and removes the volume's directory or device from the pod.
func (v *Volumes) unpublish(ctx context.Context, uid types.UID, d Driver, b *bound) error {
	if b.Block {
		return v.unmapCSI(ctx, uid, d, b)
	}
	dir := v.layout.published(uid, b)
	target := filepath.Join(dir, mountDir)
	if err := d.Unpublish(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: b.Handle, TargetPath: target}); err != nil {
		return err
	}
	if b.Inline { // the data of the volume ends with the pod, also what a container has written into the directory that checkTarget made
		if err := v.unmountAll(target, v.cfg.Host.Unmount); err != nil {
			return err
		}
		return v.cfg.Host.RemoveTree(ctx, dir)
	}
	return v.removeMount(ctx, dir, target)
}

// setUpInline sets up an inline CSI volume of a pod.
func (v *Volumes) setUpInline(ctx context.Context, p Pod, vol *v1.Volume) error {
	b := &bound{
		PersistentVolume: vol.Name, Kind: kindCSI, Inline: true, Driver: vol.CSI.Driver, Handle: csispec.InlineHandle(p.Pod.UID, vol.Name),
		ReadOnly: vol.CSI.ReadOnly != nil && *vol.CSI.ReadOnly,
	}
	have, err := v.mountedBefore(p.Pod.UID, vol.Name)
	if err != nil || have != nil && !v.visits.republishes(have) {
		return err
	}
	return v.orAsBefore(p.Pod, vol, have, v.setUpBound(ctx, p.Pod, vol, b.after(have), &csispec.Input{Inline: vol.CSI}))
}

// setUpInTree sets up a volume of a former in-tree plugin that a pod names directly, without a claim. Unlike an inline CSI volume, the
// volume does not belong to the pod: it is attached and staged like a persistent volume.
func (v *Volumes) setUpInTree(ctx context.Context, p Pod, vol *v1.Volume) error {
	have, err := v.mountedBefore(p.Pod.UID, vol.Name)
	if err != nil || have != nil && !v.visits.republishes(have) {
		return err
	}
	pv, err := csispec.TranslatedInline(vol, p.Pod.Namespace)
	if err != nil {
		return err
	}
	// The author of the pod has chosen the name. No other volume may have its directory.
	switch driver := pv.Spec.CSI.Driver; {
	case strings.Contains(pv.Name, "~"):
		return fmt.Errorf("the name of the disk, %q, must not contain '~', which stands for '/' in the name of its directory", pv.Name)
	case !strings.HasPrefix(pv.Name, driver+"-") && !strings.ContainsAny(pv.Name, "/#"): // a name that a persistent volume may have
		return fmt.Errorf("%q is no name of a disk of CSI driver %s", pv.Name, driver)
	}
	pv.Name = strings.ReplaceAll(pv.Name, "/", "~") // the name of a vSphere volume has its path; upstream's kubelet has the same directory
	if err := checkName("name of the volume", pv.Name); err != nil {
		return err
	}
	b := &bound{PersistentVolume: pv.Name, Kind: kindCSI, Driver: pv.Spec.CSI.Driver, Handle: pv.Spec.CSI.VolumeHandle, ReadOnly: pv.Spec.CSI.ReadOnly}
	return v.orAsBefore(p.Pod, vol, have, v.setUpBound(ctx, p.Pod, vol, b.after(have), &csispec.Input{PV: pv}))
}
