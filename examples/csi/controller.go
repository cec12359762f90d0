package main

import (
	"context"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controller is the driver's controller service: it makes, attaches and grows volumes. A volume is attached to one node at a time.
type controller struct {
	csi.UnimplementedControllerServer
	store store
	mu    sync.Mutex // one call at a time
}

// smallest is the size in bytes of the smallest volume: that of the smallest file system that mkfs.xfs makes.
const smallest = 300 << 20

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		out.Capabilities = append(out.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// checkCapabilities refuses what the driver cannot do: a volume that several nodes use at once, and file systems other than XFS.
func checkCapabilities(all []*csi.VolumeCapability) error {
	if len(all) == 0 {
		return status.Error(codes.InvalidArgument, "volume_capabilities is missing")
	}
	for _, one := range all {
		switch one.GetAccessMode().GetMode() {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		default:
			return status.Errorf(codes.InvalidArgument, "access mode %s: only one node at a time can use a volume", one.GetAccessMode().GetMode())
		}
		if t := one.GetMount().GetFsType(); t != "" && t != "xfs" {
			return status.Errorf(codes.InvalidArgument, "file system %s: the driver makes only xfs", t)
		}
	}
	return nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := checkID(r.Name); err != nil {
		return nil, err
	}
	if err := checkCapabilities(r.VolumeCapabilities); err != nil {
		return nil, err
	}
	least, most := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	want := record{Bytes: max(least, smallest), Block: r.VolumeCapabilities[0].GetBlock() != nil}
	have, err := c.store.read(r.Name)
	switch {
	case status.Code(err) == codes.NotFound:
		if most > 0 && want.Bytes > most {
			return nil, status.Errorf(codes.OutOfRange, "the smallest volume has %d bytes", want.Bytes)
		}
		if have, err = want, c.store.write(r.Name, want); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	case err != nil:
		return nil, err
	case have.Block != want.Block || have.Bytes < least || most > 0 && have.Bytes > most:
		return nil, status.Errorf(codes.AlreadyExists, "there is another volume %s, of %d bytes", r.Name, have.Bytes)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.Name, CapacityBytes: have.Bytes}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.store.read(r.VolumeId)
	switch {
	case status.Code(err) == codes.NotFound:
		return &csi.DeleteVolumeResponse{}, nil
	case err != nil:
		return nil, err
	case have.Node != "":
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is attached to node %s", have.Node)
	}
	if err := c.store.remove(r.VolumeId); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.store.read(r.VolumeId)
	switch {
	case err != nil:
		return nil, err
	case r.NodeId == "":
		return nil, status.Error(codes.InvalidArgument, "node_id is missing")
	case have.Node != "" && have.Node != r.NodeId:
		return nil, status.Errorf(codes.FailedPrecondition, "the volume is attached to node %s", have.Node)
	}
	have.Node = r.NodeId
	if err := c.store.write(r.VolumeId, have); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{attachedTo: r.NodeId}}, nil
}

// attachedTo is the key of the publish context that names the node to which a volume is attached.
const attachedTo = "attachedTo"

func (c *controller) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.store.read(r.VolumeId)
	switch {
	case status.Code(err) == codes.NotFound || err == nil && r.NodeId != "" && have.Node != r.NodeId:
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	case err != nil:
		return nil, err
	}
	have.Node = ""
	if err := c.store.write(r.VolumeId, have); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have, err := c.store.read(r.VolumeId)
	if err != nil {
		return nil, err
	}
	have.Bytes = max(have.Bytes, r.GetCapacityRange().GetRequiredBytes())
	if most := r.GetCapacityRange().GetLimitBytes(); most > 0 && have.Bytes > most {
		return nil, status.Errorf(codes.OutOfRange, "the volume has %d bytes and cannot shrink", have.Bytes)
	}
	if err := c.store.write(r.VolumeId, have); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: have.Bytes, NodeExpansionRequired: true}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, err := c.store.read(r.VolumeId); err != nil {
		return nil, err
	}
	if err := checkCapabilities(r.VolumeCapabilities); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.VolumeCapabilities}}, nil
}
