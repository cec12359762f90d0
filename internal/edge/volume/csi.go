package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// Driver is the node service of a CSI driver. Calls may be concurrent. Each ends with its context or after a bound of its own, and
// may be repeated.
type Driver interface {
	Can() csispec.Capabilities
	Stage(ctx context.Context, req *csi.NodeStageVolumeRequest) error
	Unstage(ctx context.Context, req *csi.NodeUnstageVolumeRequest) error
	Publish(ctx context.Context, req *csi.NodePublishVolumeRequest) error
	Unpublish(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) error
}

const (
	// volumeData is upstream's file beside a published or staged volume: the driver and its name of the volume.
	volumeData = "vol_data.json"
	// stagedMark says that the staging of a volume has come to its end. Without it, the volume is staged again.
	stagedMark = "staged"
	mountDir   = "mount"
	globalDir  = "globalmount"
)

// staging returns the directory of a staged volume: its mount, and the files about it.
func (l layout) staging(b *bound) string {
	return filepath.Join(l.root, pluginsDir, "kubernetes.io/csi", b.Driver, csispec.StagingDir(b.Handle))
}

// published returns the directory of a CSI volume of a pod: its mount, and the files about it.
func (l layout) published(uid types.UID, b *bound) string {
	return l.volume(uid, kindCSI, b.PersistentVolume)
}

// csiObject reads the CSIDriver object of a driver; nil: the cluster has none.
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

// driver returns a registered driver. Otherwise the pod is tried again as soon as the driver registers.
func (v *Volumes) driver(name string, uid types.UID, what string) (Driver, error) {
	if d := v.cfg.Driver(name); d != nil {
		return d, nil
	}
	v.waits.add(waitDriver+name, uid)
	if d := v.cfg.Driver(name); d != nil { // it may have registered just before the pod began to wait
		return d, nil
	}
	return nil, fmt.Errorf("waits for CSI driver %s to register on this node%s", name, what)
}

// DriverRegistered makes the pods that wait for a driver try again.
func (v *Volumes) DriverRegistered(name string) { v.wake(waitDriver + name) }

const waitDriver = "driver/"

// resolveCSI completes what a CSI volume stands for, and checks that it can be mounted now.
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

// maxHandle bounds a driver's name of a volume, as CSI does.
const maxHandle = 16 << 10

func checkHandle(handle string) error {
	if handle == "" || len(handle) > maxHandle {
		return fmt.Errorf("volumeHandle has %d bytes: it must have between 1 and %d", len(handle), maxHandle)
	}
	return nil
}

// mountCSI stages and publishes a volume. The caller holds the volume's lock and has written the record.
func (v *Volumes) mountCSI(ctx context.Context, p *v1.Pod, in *csispec.Input, d Driver, b *bound) (err error) {
	dir := v.layout.published(p.UID, b)
	in.Pod, in.Can, in.Handle, in.ReadOnly = p, d.Can(), b.Handle, b.ReadOnly
	in.TargetPath = filepath.Join(dir, mountDir)
	if b.Attach {
		if in.PublishContext, err = v.attached(ctx, b); err != nil {
			return err
		}
	}
	if !b.Inline && in.Can.Stage {
		in.StagingPath = filepath.Join(v.layout.staging(b), globalDir)
		if err := v.stage(ctx, in, d, b); err != nil {
			return err
		}
	}
	if in.Secrets, err = v.secrets(ctx, publishSecret(in)); err != nil {
		return err
	}
	if in.Tokens, err = v.tokens(ctx, in); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mode := storagev1.VolumeLifecyclePersistent
	if b.Inline {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	node := v.cfg.Claims.Node().Name
	if err := writeVolumeData(dir, map[string]string{
		"specVolID": b.PersistentVolume, "volumeHandle": b.Handle, "driverName": b.Driver, "nodeName": node,
		"volumeLifecycleMode": string(mode), "attachmentID": csispec.Attachment(b.Handle, b.Driver, node),
	}); err != nil {
		return err
	}
	if err := d.Publish(ctx, csispec.Publish(in)); err != nil {
		return err
	}
	if !entryOf(dir, mountDir) {
		return fmt.Errorf("CSI driver %s said that it published the volume, but there is nothing at its target_path", b.Driver)
	}
	if csispec.AgentSetsGroup(in) {
		return v.giveToGroup(ctx, p, in.TargetPath)
	}
	return nil
}

// stage stages a volume, unless it has been staged and is there.
func (v *Volumes) stage(ctx context.Context, in *csispec.Input, d Driver, b *bound) error {
	dir := v.layout.staging(b)
	if entryOf(dir, stagedMark) {
		mounted, err := v.cfg.Host.Mounted(in.StagingPath)
		if err != nil || mounted {
			return err
		}
	}
	if err := os.MkdirAll(in.StagingPath, 0o750); err != nil {
		return fmt.Errorf("make staging directory: %w", err)
	}
	if err := writeVolumeData(dir, map[string]string{"volumeHandle": b.Handle, "driverName": b.Driver}); err != nil {
		return err
	}
	staged := *in
	var err error
	if staged.Secrets, err = v.secrets(ctx, in.PV.Spec.CSI.NodeStageSecretRef); err != nil {
		return err
	}
	if err := d.Stage(ctx, csispec.Stage(&staged)); err != nil {
		return err
	}
	if err := hostfs.ReplaceFile(filepath.Join(dir, stagedMark), nil, 0o600); err != nil {
		return fmt.Errorf("mark volume as staged: %w", err)
	}
	return nil
}

// unstage undoes stage.
func (v *Volumes) unstage(ctx context.Context, d Driver, b *bound) error {
	dir := v.layout.staging(b)
	if err := os.Remove(filepath.Join(dir, stagedMark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("mark volume as not staged: %w", err)
	}
	target := filepath.Join(dir, globalDir)
	if d.Can().Stage {
		if err := d.Unstage(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: b.Handle, StagingTargetPath: target}); err != nil {
			return err
		}
	}
	return v.removeMount(ctx, dir, target)
}

// removeMount deletes the directory of a volume that its driver has unmounted. What the driver has left mounted is unmounted, and
// never deleted.
func (v *Volumes) removeMount(ctx context.Context, dir, target string) error {
	for range unmountRounds {
		mounted, err := v.cfg.Host.Mounted(target)
		if err != nil {
			return err
		}
		if !mounted {
			// The target must be empty: if a driver keeps data there without a mount, nothing of it is deleted.
			if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove mount point that the driver has unmounted: %w", err)
			}
			return v.cfg.Host.RemoveTree(ctx, dir)
		}
		if err := v.cfg.Host.Unmount(target); err != nil {
			return err
		}
	}
	return fmt.Errorf("something keeps mounting on %s", target)
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

// secrets reads the Secret that a call needs; nil: none.
func (v *Volumes) secrets(ctx context.Context, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s, err := v.cfg.Claims.Secret(ctx, ref.Namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &worded{text: fmt.Sprintf("secret %s/%s of the CSI volume not found: create it", ref.Namespace, ref.Name), cause: err}
	case err != nil:
		return nil, fmt.Errorf("read secret %s/%s of the CSI volume: %w", ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(s.Data))
	for key, value := range s.Data {
		out[key] = string(value)
	}
	return out, nil
}

// tokens returns the tokens of the pod's service account that the driver asks for, as the JSON text that drivers read.
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

func writeVolumeData(dir string, data map[string]string) error {
	text, err := json.Marshal(data)
	if err == nil {
		err = hostfs.ReplaceFile(filepath.Join(dir, volumeData), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", volumeData, err)
	}
	return nil
}

// entryOf reports whether a directory of the agent has an entry. It does not look at the entry itself, on which a dead file system
// may be mounted.
func entryOf(dir, name string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
}

// csiOf lists the CSI volumes of a pod: those with a record, and those that upstream's kubelet published.
func (v *Volumes) csiOf(uid types.UID) []*bound {
	byDir := map[string]*bound{}
	for _, b := range v.records(uid) {
		if b.Kind == kindCSI {
			byDir[b.PersistentVolume] = &b
		}
	}
	all := filepath.Join(v.layout.volumes(uid), kindCSI.dir())
	entries, _ := os.ReadDir(all) // nearly always missing
	for _, e := range entries {
		if byDir[e.Name()] != nil {
			continue
		}
		data := map[string]string{}
		text, err := hostfs.ReadUntrusted(filepath.Join(all, e.Name(), volumeData), 1, maxRecord)
		if err == nil {
			err = json.Unmarshal(text, &data)
		}
		if err == nil {
			err = errors.Join(checkName("driverName", data["driverName"]), checkHandle(data["volumeHandle"]))
		}
		if err != nil {
			v.cfg.Log.Warn("a CSI volume has no readable "+volumeData+"; what is mounted there is unmounted without its driver", "pod", uid, "volume", e.Name(), "err", err)
			continue
		}
		inline := data["volumeLifecycleMode"] == string(storagev1.VolumeLifecycleEphemeral)
		byDir[e.Name()] = &bound{
			PersistentVolume: e.Name(), Kind: kindCSI, Driver: data["driverName"], Handle: data["volumeHandle"], Inline: inline, Attach: !inline,
		}
	}
	return slices.Collect(maps.Values(byDir))
}

// takeDownCSI unpublishes the CSI volumes of a pod, and unstages those that no other pod of the node uses.
func (v *Volumes) takeDownCSI(ctx context.Context, uid types.UID) error {
	all := v.csiOf(uid)
	if len(all) == 0 {
		return nil
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() {
			if err := v.takeDownOne(ctx, uid, b); err != nil {
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
	published := entryOf(filepath.Dir(dir), filepath.Base(dir))
	last := false
	if !b.Inline && entryOf(filepath.Dir(v.layout.staging(b)), filepath.Base(v.layout.staging(b))) {
		others, err := v.othersWith(b, uid)
		if err != nil {
			return err
		}
		last = len(others) == 0
	}
	if err := v.adopt(uid, b); err != nil {
		return err
	}
	if published || last {
		d, err := v.driver(b.Driver, uid, ", which has to unmount the volume")
		if err != nil {
			return err
		}
		if published {
			target := filepath.Join(dir, mountDir)
			if err := d.Unpublish(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: b.Handle, TargetPath: target}); err != nil {
				return err
			}
			if err := v.removeMount(ctx, dir, target); err != nil {
				return err
			}
		}
		if last {
			if err := v.unstage(ctx, d, b); err != nil {
				return err
			}
		}
	}
	if err := v.removeRecord(uid, b); err != nil {
		return err
	}
	v.wake(b.key())
	return nil
}

// setUpInline makes an inline CSI volume of a pod.
func (v *Volumes) setUpInline(ctx context.Context, p Pod, vol *v1.Volume) error {
	b := bound{
		PersistentVolume: vol.Name, Kind: kindCSI, Inline: true, Driver: vol.CSI.Driver, Handle: csispec.InlineHandle(p.Pod.UID, vol.Name),
		ReadOnly: vol.CSI.ReadOnly != nil && *vol.CSI.ReadOnly,
	}
	done, err := v.alreadyDone(p.Pod.UID, vol.Name)
	if done || err != nil {
		return err
	}
	return v.setUpBound(ctx, p.Pod, vol, &b, &csispec.Input{Inline: vol.CSI})
}

// attached returns what the attacher says of a volume, once the volume is attached to the node and the node's status says that the
// volume is in use, so that nobody detaches it. It waits a little for that, and then fails with the reason.
func (v *Volumes) attached(ctx context.Context, b *bound) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	for {
		changed := v.nodeChanged.next()
		node := v.cfg.Claims.Node()
		name := csispec.UniqueName(b.Driver, b.Handle)
		said := slices.Contains(node.Status.VolumesInUse, name)
		if said && slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name }) {
			return v.attachment(ctx, b, node.Name)
		}
		select {
		case <-changed:
			continue
		case <-ctx.Done():
		}
		if !said {
			return nil, errors.New("waits for the API server to have the node's status, which says that the volume is in use")
		}
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
		defer cancel()
		if _, err := v.attachment(ask, b, node.Name); err != nil {
			return nil, err
		}
		return nil, errors.New("waits for the attach-detach controller to list the volume in the node's status (volumesAttached)")
	}
}

// attachPatience is how long the set-up of a volume waits for its attachment before the pod gets an event. The pod keeps its slot of the
// start gate during this wait.
const attachPatience = 10 * time.Second

// attachment reads the VolumeAttachment of a volume.
func (v *Volumes) attachment(ctx context.Context, b *bound, node string) (map[string]string, error) {
	a, err := v.cfg.Claims.Attachment(ctx, csispec.Attachment(b.Handle, b.Driver, node))
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err): // forbidden: the API server's authorizer has not seen it yet
		return nil, &worded{text: "waits for the attach-detach controller to attach the volume to this node: there is no VolumeAttachment", cause: err}
	case err != nil:
		return nil, fmt.Errorf("read VolumeAttachment: %w", err)
	case a.Status.AttachError != nil:
		return nil, fmt.Errorf("the volume cannot be attached to this node: %s (since %s)", strings.TrimSpace(a.Status.AttachError.Message),
			a.Status.AttachError.Time.UTC().Format(time.RFC3339))
	case !a.Status.Attached:
		return nil, fmt.Errorf("waits for CSI driver %s to attach the volume to this node", b.Driver)
	}
	return a.Status.AttachmentMetadata, nil
}

// NodeChanged tells that the status of the Node has changed: volumes may have been attached.
func (v *Volumes) NodeChanged() { v.nodeChanged.tell() }

// broadcast wakes all who wait. The zero value is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that the next call of tell closes.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
