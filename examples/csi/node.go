package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodeService is the driver's node service. What is staged and published stands in the mount table and in the list of loop devices.
type nodeService struct {
	csi.UnimplementedNodeServer
	store store
	name  string // of the driver
	node  string
	most  int64      // how many volumes the node can have; 0: any number
	mu    sync.Mutex // one call at a time
}

func (d *nodeService) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	out := &csi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: d.most}
	if d.store.kind == local {
		out.AccessibleTopology = topology(d.name, d.node)
	}
	return out, nil
}

func (d *nodeService) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_VOLUME_CONDITION, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	switch d.store.kind {
	case disk:
		types = append(types, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	case local:
		types = append(types, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	case share:
		types = append(types, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range types {
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
	if _, err := d.stage(ctx, r.VolumeId, r.StagingTargetPath, r.VolumeCapability); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage gives a volume a loop device, which it returns, and mounts the file system of the device on path, unless the capability wants a block
// device. It may be repeated.
func (d *nodeService) stage(ctx context.Context, id, path string, want *csi.VolumeCapability) (loop string, err error) {
	loop, err = d.loop(ctx, id)
	if err == nil && loop == "" {
		loop, err = tool(ctx, "losetup", "--find", "--show", d.store.image(id))
	}
	if err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	if want.GetBlock() != nil {
		return loop, nil
	}
	on, err := mounted(path)
	if err == nil && !on {
		if err = os.MkdirAll(path, 0o750); err == nil {
			err = mountDevice(ctx, loop, d.store.half(id), path, want.GetMount())
		}
	}
	if err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	return loop, nil
}

// NodeUnstageVolume undoes NodeStageVolume. It fails while anything still uses the device.
func (d *nodeService) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkID(r.VolumeId); err != nil {
		return nil, err
	}
	if err := d.unstage(ctx, r.VolumeId, r.StagingTargetPath); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// unstage undoes stage.
func (d *nodeService) unstage(ctx context.Context, id, path string) error {
	if err := unmount(path); err != nil {
		return err
	}
	return d.detach(ctx, id)
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

// NodePublishVolume shows a pod its volume by a bind mount: of the staged file system, of the device, of the shared directory, or of the
// directory of an inline volume.
func (d *nodeService) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkID(r.VolumeId); err != nil {
		return nil, err
	}
	source, err := d.source(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := bind(source, r.TargetPath, r.GetVolumeCapability().GetBlock() == nil, r.Readonly); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// source returns what is to be mounted for a pod.
func (d *nodeService) source(ctx context.Context, r *csi.NodePublishVolumeRequest) (string, error) {
	if r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		return d.inline(r)
	}
	have, err := d.store.read(r.VolumeId)
	if err != nil {
		return "", err
	}
	var loop string
	staging := r.StagingTargetPath
	switch d.store.kind {
	case share:
		if err := giveGroup(d.store.shared(r.VolumeId), r.GetVolumeCapability().GetMount().GetVolumeMountGroup()); err != nil {
			return "", status.Error(codes.Internal, err.Error())
		}
		return d.store.shared(r.VolumeId), nil
	case local:
		if have.Home != d.node {
			return "", status.Errorf(codes.FailedPrecondition, "the volume is not on this node, but on %q", have.Home)
		}
		staging = d.store.staging(d.node, r.VolumeId)
		if loop, err = d.stage(ctx, r.VolumeId, staging, r.VolumeCapability); err != nil {
			return "", err
		}
	case disk:
		loop, err = d.loop(ctx, r.VolumeId)
		on := loop != ""
		if err == nil && on && r.GetVolumeCapability().GetBlock() == nil {
			on, err = mounted(staging)
		}
		if err != nil || !on {
			return "", status.Errorf(codes.FailedPrecondition, "the volume is not staged (%v)", err)
		}
	}
	if r.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		others, err := mountsOf(loop, staging, r.TargetPath)
		if err != nil || len(others) > 0 {
			return "", status.Errorf(codes.FailedPrecondition, "another pod has the volume, and its access mode allows only one: %v (%v)", others, err)
		}
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return loop, nil
	}
	return staging, nil
}

// inline makes the directory of an inline volume.
func (d *nodeService) inline(r *csi.NodePublishVolumeRequest) (string, error) {
	dir := d.store.inline(r.VolumeId)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = giveGroup(dir, r.GetVolumeCapability().GetMount().GetVolumeMountGroup())
	}
	if err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	return dir, nil
}

// NodeUnpublishVolume undoes NodePublishVolume. The data of an inline volume ends with it.
func (d *nodeService) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
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
	if err == nil && d.store.kind == local {
		err = d.release(ctx, r.VolumeId)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// release takes the loop device of a volume away that no pod has any more. The driver staged the volume itself.
func (d *nodeService) release(ctx context.Context, id string) error {
	loop, err := d.loop(ctx, id)
	if err != nil || loop == "" {
		return err
	}
	staging := d.store.staging(d.node, id)
	if pods, err := mountsOf(loop, staging); err != nil || len(pods) > 0 {
		return err
	}
	if err := d.unstage(ctx, id, staging); err != nil {
		return err
	}
	return os.RemoveAll(staging)
}

// NodeExpandVolume makes the device as large as the volume, and then the file system as large as the device, while they are in use. If the file system cannot
// grow while it is mounted, the code is FailedPrecondition.
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
		err = grow(ctx, loop, r.VolumePath)
	}
	switch {
	case errors.Is(err, errMounted):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: have.Bytes}, nil
}

func (d *nodeService) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	out := &csi.NodeGetVolumeStatsResponse{VolumeCondition: &csi.VolumeCondition{Message: "the volume is healthy"}}
	have, err := d.store.read(r.VolumeId)
	switch {
	case status.Code(err) == codes.NotFound && exists(d.store.inline(r.VolumeId)):
	case err != nil:
		return nil, err
	case !exists(d.store.content(r.VolumeId)):
		out.VolumeCondition = &csi.VolumeCondition{Abnormal: true, Message: "somebody has deleted " + d.store.content(r.VolumeId)}
	}
	if have.Block {
		out.Usage = []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: have.Bytes}}
		return out, nil
	}
	on, err := mounted(r.VolumePath)
	if err != nil || !on {
		return nil, status.Errorf(codes.NotFound, "the volume is not mounted on %s (%v)", r.VolumePath, err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(r.VolumePath, &s); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	out.Usage = []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize, Used: int64(s.Blocks-s.Bfree) * s.Bsize,
		},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
	}
	return out, nil
}
