package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// Devices finds block devices, and keeps their names from being reused while a pod uses them.
type Devices interface {
	// IsBlockDevice reports whether a path is a block device, also through links.
	IsBlockDevice(path string) (bool, error)
	// DeviceAt returns the device whose file system is mounted at a path, or which is itself bind-mounted there; "": there is none.
	DeviceAt(path string) (device string, err error)
	// AttachLoop attaches a loop device to the device at path, unless one is attached already. While a pod uses the device, no other
	// device can then get its name. DetachLoop detaches the loop device. It is no error if none is attached.
	AttachLoop(path string) error
	DetachLoop(path string) error
}

const (
	devicesDir = "volumeDevices"
	stagingDir = "staging" // in which drivers stage block volumes
	publishDir = "publish" // in which they publish them
)

// A block volume of a CSI driver has these paths. Upstream's kubelet has the same.
//
//	<root>/plugins/kubernetes.io/csi/volumeDevices/staging/<persistent volume>          directory for the driver, if it stages volumes
//	<root>/plugins/kubernetes.io/csi/volumeDevices/publish/<persistent volume>/<uid>    the device for one pod, which the driver makes
//	<root>/plugins/kubernetes.io/csi/volumeDevices/<persistent volume>/data             vol_data.json
//	<root>/plugins/kubernetes.io/csi/volumeDevices/<persistent volume>/dev/<uid>        bind mount of the device, held by a loop device
//	<root>/pods/<uid>/volumeDevices/kubernetes.io~csi/<persistent volume>               link to the device, for the runtime
func (l layout) devices() string {
	return filepath.Join(l.root, pluginsDir, "kubernetes.io/csi", devicesDir)
}
func (l layout) device(b *bound) string     { return filepath.Join(l.devices(), b.PersistentVolume) }
func (l layout) deviceData(b *bound) string { return filepath.Join(l.device(b), "data") }
func (l layout) deviceStaging(b *bound) string {
	return filepath.Join(l.devices(), stagingDir, b.PersistentVolume)
}
func (l layout) devicesOf(uid types.UID, k kind) string {
	return filepath.Join(l.pod(uid), devicesDir, k.dir())
}

func (l layout) devicePublished(uid types.UID, b *bound) string {
	return filepath.Join(l.devices(), publishDir, b.PersistentVolume, string(uid))
}

func (l layout) deviceHeld(uid types.UID, b *bound) string {
	return filepath.Join(l.device(b), "dev", string(uid))
}

// deviceLink returns the path of the link to a block volume. The runtime gets this path.
func (l layout) deviceLink(uid types.UID, b *bound) string {
	return filepath.Join(l.devicesOf(uid, b.Kind), b.PersistentVolume)
}

// mapCSI makes a block volume of a driver available to a pod. The caller holds the volume's lock and has written the record.
func (v *Volumes) mapCSI(ctx context.Context, in *csispec.Input, d Driver, b *bound) (err error) {
	uid := in.Pod.UID
	if b.PersistentVolume == stagingDir || b.PersistentVolume == publishDir {
		return fmt.Errorf("a block volume cannot have the name %s: on the node it would have the directory in which the drivers work on all block volumes", b.PersistentVolume)
	}
	in.Block, in.TargetPath = true, v.layout.devicePublished(uid, b)
	if err := v.writeDeviceData(b); err != nil {
		return err
	}
	if in.Can.Stage {
		in.StagingPath = v.layout.deviceStaging(b)
		if err := v.stageDevice(ctx, in, d, b); err != nil {
			return err
		}
	}
	if in.Secrets, err = v.secrets(ctx, publishSecret(in)); err != nil {
		return err
	}
	if in.Tokens, err = v.tokens(ctx, in); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(in.TargetPath), 0o750); err != nil {
		return fmt.Errorf("make directory of devices: %w", err)
	}
	if err := v.linkDevice(uid, b, in.TargetPath); err != nil { // before Publish: the link shows that the driver must unpublish the device
		return err
	}
	if err := d.Publish(ctx, csispec.Publish(in)); err != nil {
		return err
	}
	is, err := v.cfg.Host.IsBlockDevice(in.TargetPath)
	if err != nil {
		return err
	}
	if !is {
		return fmt.Errorf("CSI driver %s said that it published the volume, but its target_path is no block device", b.Driver)
	}
	if err := v.holdDevice(v.layout.deviceHeld(uid, b), in.TargetPath); err != nil {
		return err
	}
	return v.expandMounting(ctx, in, d, b, in.TargetPath)
}

// writeDeviceData writes vol_data.json for a block volume. The file names the driver and the driver's handle of the volume.
func (v *Volumes) writeDeviceData(b *bound) error {
	dir := v.layout.deviceData(b)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make directory of devices: %w", err)
	}
	node := v.cfg.Claims.Node().Name
	return v.writeVolumeData(dir, map[string]string{
		"specVolID": b.PersistentVolume, "volumeHandle": b.Handle, "driverName": b.Driver, "nodeName": node,
		"attachmentID": csispec.Attachment(b.Handle, b.Driver, node),
	})
}

// stageDevice stages a block volume. Unlike a file system, a staged device leaves no mount, so after a reboot the agent cannot see
// whether the device is still staged. So stageDevice stages the volume again, which drivers have to allow, unless a pod already uses
// the device.
func (v *Volumes) stageDevice(ctx context.Context, in *csispec.Input, d Driver, b *bound) error {
	used, err := v.deviceIsUsed(b)
	if err != nil || used {
		return err
	}
	if err := os.MkdirAll(in.StagingPath, 0o750); err != nil {
		return fmt.Errorf("make staging directory: %w", err)
	}
	staged := *in
	if staged.Secrets, err = v.secrets(ctx, in.PV.Spec.CSI.NodeStageSecretRef); err != nil {
		return err
	}
	return d.Stage(ctx, csispec.Stage(&staged))
}

// isMapped reports whether the device of a volume is published for a pod and held. A device that a driver has made at its target_path, for example with
// mknod, is still there after a reboot, and may be that of another volume then. The agent's own bind mount has gone: it shows that the device is the right one.
func (v *Volumes) isMapped(uid types.UID, b *bound) (bool, error) {
	is, err := v.cfg.Host.IsBlockDevice(v.layout.devicePublished(uid, b))
	if err != nil || !is {
		return false, err
	}
	return v.cfg.Host.Mounted(v.layout.deviceHeld(uid, b))
}

// deviceIsUsed reports whether the device of a volume is published for any pod of this node.
func (v *Volumes) deviceIsUsed(b *bound) (bool, error) {
	entries, err := os.ReadDir(filepath.Dir(v.layout.devicePublished("uid", b)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("list devices: %w", err)
	}
	for _, e := range entries {
		if is, err := v.isMapped(types.UID(e.Name()), b); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// linkDevice makes a symbolic link to a device. The runtime gets the path of this link.
func (v *Volumes) linkDevice(uid types.UID, b *bound, target string) error {
	link := v.layout.deviceLink(uid, b)
	err := os.MkdirAll(filepath.Dir(link), 0o750)
	if have, readErr := os.Readlink(link); err == nil && readErr == nil && have == target {
		return nil
	}
	if err == nil {
		if err = os.Remove(link); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Symlink(target, link)
	}
	if err != nil {
		return fmt.Errorf("link device: %w", err)
	}
	return nil
}

// holdDevice bind-mounts the device at the path target on the path held, which belongs to the agent, and attaches a loop device to held.
func (v *Volumes) holdDevice(held, target string) error {
	mounted, err := v.cfg.Host.Mounted(held)
	if err != nil {
		return err
	}
	if !mounted {
		if err := makeTarget(held, false); err != nil {
			return err
		}
		f, err := v.cfg.Host.OpenBeneath(filepath.Dir(target), filepath.Base(target))
		if err != nil {
			return fmt.Errorf("hold device: %w", err)
		}
		defer f.Close()
		if err := v.cfg.Host.Bind(f, held); err != nil {
			return fmt.Errorf("hold device: %w", err)
		}
	}
	return v.cfg.Host.AttachLoop(held)
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

// unmapCSI undoes mapCSI. The volume stays staged.
func (v *Volumes) unmapCSI(ctx context.Context, uid types.UID, d Driver, b *bound) error {
	held, target := v.layout.deviceHeld(uid, b), v.layout.devicePublished(uid, b)
	if err := v.cfg.Host.DetachLoop(held); err != nil {
		return err
	}
	if err := v.removeFile(held); err != nil {
		return err
	}
	if err := d.Unpublish(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: b.Handle, TargetPath: target}); err != nil {
		return err
	}
	if err := v.removeFile(target); err != nil {
		return err
	}
	if err := os.Remove(v.layout.deviceLink(uid, b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove link to device: %w", err)
	}
	return nil
}

// unstageDevice undoes stageDevice, and removes the directories that the pods of a block volume share.
func (v *Volumes) unstageDevice(ctx context.Context, d Driver, b *bound) error {
	staging := v.layout.deviceStaging(b)
	if d.Can().Stage {
		if err := d.Unstage(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: b.Handle, StagingTargetPath: staging}); err != nil {
			return err
		}
	}
	for _, dir := range []string{staging, filepath.Dir(v.layout.devicePublished("uid", b))} {
		if err := v.removeMount(ctx, dir, dir); err != nil {
			return err
		}
	}
	return v.cfg.Host.RemoveTree(ctx, v.layout.device(b)) // remove this directory last, because it contains vol_data.json
}

// removeFile unmounts and removes a file on which a device may be mounted.
func (v *Volumes) removeFile(path string) error {
	if err := v.unmountAll(path, v.cfg.Host.Unmount); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove device: %w", err)
	}
	return nil
}

// Devices returns the block devices for the next attempt of a container: its volumeDevices. Call it after SetUp has succeeded. The error is
// an *Error.
func (v *Volumes) Devices(p *v1.Pod, c *v1.Container) ([]*runtimeapi.Device, error) {
	return devicesOf(p, c, places{v.layout, v.readRecord})
}

func devicesOf(p *v1.Pod, c *v1.Container, where places) (all []*runtimeapi.Device, err error) {
	for i := range c.VolumeDevices {
		want := &c.VolumeDevices[i]
		one, err := where.device(p, want)
		if err != nil {
			return nil, &Error{
				Volume: want.Name, Reason: ReasonFailedMount, Err: err,
				Message: fmt.Sprintf("container %q, volumeDevices[%d] at %s: %v", c.Name, i, want.DevicePath, err),
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// device returns the device of one element of volumeDevices.
func (w places) device(p *v1.Pod, want *v1.VolumeDevice) (*runtimeapi.Device, error) {
	if !slices.ContainsFunc(p.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == want.Name }) {
		return nil, fmt.Errorf("the pod has no volume %q: add it to spec.volumes", want.Name)
	}
	b, err := w.bound(p.UID, want.Name)
	if err != nil {
		return nil, err
	}
	if !b.Block {
		return nil, errors.New("the volume is no block device")
	}
	access := "mrw" // mknod, read, write
	if b.ReadOnly {
		access = "r"
	}
	return &runtimeapi.Device{HostPath: w.layout.deviceLink(p.UID, &b), ContainerPath: want.DevicePath, Permissions: access}, nil
}
