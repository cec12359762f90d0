package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodeService is the driver's node service. What is staged and published stands in the mount table and in the list of loop devices.
type nodeService struct {
	csi.UnimplementedNodeServer
	store store
	node  string
	mu    sync.Mutex // one call at a time
}

func (d *nodeService) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *nodeService) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// NodeStageVolume gives the volume a loop device and mounts its file system, which it makes before the first use.
func (d *nodeService) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.store.read(r.VolumeId)
	switch {
	case err != nil:
		return nil, err
	case have.Node != d.node || r.PublishContext[attachedTo] != d.node:
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is not attached to this node, but to %q", have.Node)
	}
	loop, err := d.loop(ctx, r.VolumeId)
	if err == nil && loop == "" {
		loop, err = tool(ctx, "losetup", "--find", "--show", d.store.image(r.VolumeId))
	}
	if err == nil && !have.Block {
		err = d.mountDevice(ctx, loop, r.StagingTargetPath, r.GetVolumeCapability().GetMount().GetMountFlags())
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// mountDevice mounts the file system of a device, unless it is mounted.
func (d *nodeService) mountDevice(ctx context.Context, device, target string, options []string) error {
	on, err := mounted(target)
	if err != nil || on {
		return err
	}
	made, err := hasXFS(device)
	if err == nil && !made {
		_, err = tool(ctx, "mkfs.xfs", "-q", device)
	}
	if err == nil {
		err = os.MkdirAll(target, 0o750)
	}
	if err == nil {
		_, err = tool(ctx, "mount", "-t", "xfs", "-o", strings.Join(append([]string{"rw"}, options...), ","), device, target)
	}
	return err
}

// hasXFS reports whether there is an XFS file system on a device.
func hasXFS(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err != nil {
		return false, err
	}
	return string(magic) == "XFSB", nil
}

// NodeUnstageVolume undoes NodeStageVolume. It fails while anything still uses the device.
func (d *nodeService) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkID(r.VolumeId); err != nil {
		return nil, err
	}
	err := unmount(r.StagingTargetPath)
	if err == nil {
		err = d.detach(ctx, r.VolumeId)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// detach takes the loop device of a volume away.
func (d *nodeService) detach(ctx context.Context, id string) error {
	loop, err := d.loop(ctx, id)
	if err != nil || loop == "" {
		return err
	}
	if _, err := tool(ctx, "losetup", "--detach", loop); err != nil {
		return err
	}
	if loop, err = d.loop(ctx, id); err == nil && loop != "" {
		err = fmt.Errorf("%s is still in use", loop)
	}
	return err
}

// loop returns the loop device of a volume; "" if it has none.
func (d *nodeService) loop(ctx context.Context, id string) (string, error) {
	out, err := tool(ctx, "losetup", "--associated", d.store.image(id), "--noheadings", "--output", "NAME")
	first, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(first), err
}

// NodePublishVolume shows a pod its volume by a bind mount: of the staged file system, of the device, or of the directory of an inline volume.
func (d *nodeService) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkID(r.VolumeId); err != nil {
		return nil, err
	}
	source, err := r.StagingTargetPath, error(nil)
	switch {
	case r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true":
		source = d.store.inline(r.VolumeId)
		err = os.MkdirAll(source, 0o755)
	case r.GetVolumeCapability().GetBlock() != nil:
		if source, err = d.loop(ctx, r.VolumeId); source == "" && err == nil {
			err = errors.New("the volume is not staged")
		}
	default:
		on := false
		if on, err = mounted(source); !on && err == nil {
			err = errors.New("the volume is not staged")
		}
	}
	if err == nil {
		err = bind(source, r.TargetPath, r.GetVolumeCapability().GetBlock() == nil, r.Readonly)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// bind mounts source on target, unless something is mounted there.
func bind(source, target string, dir, readOnly bool) error {
	on, err := mounted(target)
	if err != nil || on {
		return err
	}
	if dir {
		err = os.MkdirAll(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount of %s on %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// NodeUnpublishVolume undoes NodePublishVolume. The data of an inline volume ends with it.
func (d *nodeService) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkID(r.VolumeId); err != nil {
		return nil, err
	}
	err := unmount(r.TargetPath)
	if err == nil {
		if err = os.Remove(r.TargetPath); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.RemoveAll(d.store.inline(r.VolumeId))
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume makes the device as large as the volume, and then the file system as large as the device, while they are in use.
func (d *nodeService) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.store.read(r.VolumeId)
	if err != nil {
		return nil, err
	}
	loop, err := d.loop(ctx, r.VolumeId)
	if err == nil && loop == "" {
		return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	if err == nil {
		_, err = tool(ctx, "losetup", "--set-capacity", loop)
	}
	if err == nil && !have.Block {
		_, err = tool(ctx, "xfs_growfs", r.VolumePath)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: have.Bytes}, nil
}

func (d *nodeService) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	have, err := d.store.read(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if have.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: have.Bytes}}}, nil
	}
	on, err := mounted(r.VolumePath)
	if err != nil || !on {
		return nil, status.Errorf(codes.NotFound, "the volume is not mounted on %s (%v)", r.VolumePath, err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(r.VolumePath, &s); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize, Used: int64(s.Blocks-s.Bfree) * s.Bsize,
		},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
	}}, nil
}

// mounted reports whether something is mounted on a path.
func mounted(path string) (bool, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // the mount table has resolved paths
		path = real
	}
	found, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	return len(found) > 0, err
}

// unmount unmounts what is mounted on a path, if anything is.
func unmount(path string) error {
	on, err := mounted(path)
	if err != nil || !on {
		return err
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// tool runs a program and returns its output. The error has what the program wrote to its standard error.
func tool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
