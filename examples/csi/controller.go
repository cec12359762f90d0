package main

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// controller is the driver's controller service: it makes, copies, attaches and grows volumes. A volume is attached to one node at a time.
type controller struct {
	csi.UnimplementedControllerServer
	store store
	name  string     // of the driver
	mu    sync.Mutex // one call at a time
}

// smallest is the size in bytes of the smallest volume: that of the smallest file system that mkfs.xfs makes.
const smallest = 300 << 20

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if c.store.kind != share {
		types = append(types, csi.ControllerServiceCapability_RPC_CLONE_VOLUME)
	}
	switch c.store.kind {
	case disk:
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	case local:
		types = append(types, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	case share:
	}
	out := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		out.Capabilities = append(out.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return out, nil
}

// check refuses what volumes of this kind cannot do: a disk is used by one node at a time, and a directory is neither a block device nor has
// it a file system of its own.
func (k kind) check(all []*csi.VolumeCapability) error {
	if len(all) == 0 {
		return status.Error(codes.InvalidArgument, "volume_capabilities is missing")
	}
	for _, one := range all {
		fs := one.GetMount().GetFsType()
		if k == share {
			if one.GetBlock() != nil || fs != "" {
				return status.Error(codes.InvalidArgument, "a shared directory is no block device and has no file system of its own")
			}
			continue
		}
		switch one.GetAccessMode().GetMode() {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
			csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		default:
			return status.Errorf(codes.InvalidArgument, "access mode %s: only one node at a time can use a volume", one.GetAccessMode().GetMode())
		}
		if fs != "" && fs != xfs && fs != ext4 {
			return status.Errorf(codes.InvalidArgument, "file system %s: the driver makes only %s and %s", fs, xfs, ext4)
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
	if err := c.store.kind.check(r.VolumeCapabilities); err != nil {
		return nil, err
	}
	from, err := c.sourceOf(r)
	if err != nil {
		return nil, err
	}
	block := r.VolumeCapabilities[0].GetBlock() != nil
	least, most := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	have, err := c.store.read(r.Name)
	switch {
	case status.Code(err) == codes.NotFound:
		want, err := c.wanted(r, record{Bytes: max(least, smallest), Block: block, Source: from})
		if err != nil {
			return nil, err
		}
		if most > 0 && want.Bytes > most {
			return nil, status.Errorf(codes.OutOfRange, "the smallest volume has %d bytes", want.Bytes)
		}
		if err := c.make(r.Name, want); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		have = want
	case err != nil:
		return nil, err
	case have.Block != block || have.Source != from || // the source of a copy need not be there any more
		have.Bytes < least || most > 0 && have.Bytes > most:
		return nil, status.Errorf(codes.AlreadyExists, "there is another volume %s, of %d bytes", r.Name, have.Bytes)
	}
	volume := &csi.Volume{VolumeId: r.Name, CapacityBytes: have.Bytes, ContentSource: r.VolumeContentSource}
	if have.Home != "" {
		volume.AccessibleTopology = []*csi.Topology{topology(c.name, have.Home)}
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

// sourceOf returns the volume of which a volume is to be a copy; "": of none.
func (c *controller) sourceOf(r *csi.CreateVolumeRequest) (string, error) {
	if r.VolumeContentSource == nil {
		return "", nil
	}
	from := r.VolumeContentSource.GetVolume().GetVolumeId()
	if from == "" || c.store.kind == share {
		return "", status.Error(codes.InvalidArgument, "a volume can be a copy only of another volume, and only of a disk")
	}
	return from, nil
}

// wanted completes the record of a volume that does not exist yet.
func (c *controller) wanted(r *csi.CreateVolumeRequest, want record) (record, error) {
	if want.Source != "" {
		source, err := c.store.read(want.Source)
		if err != nil {
			return want, err
		}
		if source.Block != want.Block {
			return want, status.Error(codes.InvalidArgument, "a block device cannot be a copy of a file system, nor a file system of a block device")
		}
		want.Bytes = max(want.Bytes, source.Bytes)
	}
	if c.store.kind == local {
		// The first topology is the best one. Preferred has those of requisite in the order of preference, if it is there.
		requirement := r.GetAccessibilityRequirements()
		for _, t := range slices.Concat(requirement.GetPreferred(), requirement.GetRequisite()) {
			if want.Home = t.GetSegments()[topologyKey(c.name)]; want.Home != "" {
				return want, nil
			}
		}
		return want, status.Errorf(codes.InvalidArgument, "accessibility_requirements has no topology %s", topologyKey(c.name))
	}
	return want, nil
}

// make makes a volume. A volume without a record does not exist, so the record is written last, and what an interrupted call has left is deleted first.
func (c *controller) make(id string, want record) error {
	if err := c.store.discard(id); err != nil {
		return err
	}
	if want.Source != "" {
		if err := c.store.clone(want.Source, id); err != nil {
			return err
		}
	}
	return c.store.write(id, want)
}

// topologyKey returns the key of the topology whose value is the name of a node.
func topologyKey(driver string) string { return driver + "/node" }

func topology(driver, node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{topologyKey(driver): node}}
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
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: have.Bytes, NodeExpansionRequired: c.store.kind != share}, nil
}

// ListVolumes answers in the order of the IDs. A token is the number of the first volume.
func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, err := c.store.ids()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	first := 0
	if r.StartingToken != "" {
		if first, err = strconv.Atoi(r.StartingToken); err != nil || first < 0 || first > len(ids) {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is not of this driver", r.StartingToken)
		}
	}
	out, end := &csi.ListVolumesResponse{}, len(ids)
	if most := int(r.MaxEntries); most > 0 && first+most < end {
		end = first + most
		out.NextToken = strconv.Itoa(end)
	}
	for _, id := range ids[first:end] {
		have, err := c.store.read(id)
		if err != nil {
			return nil, err
		}
		entry := &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id, CapacityBytes: have.Bytes}, Status: &csi.ListVolumesResponse_VolumeStatus{}}
		if have.Node != "" {
			entry.Status.PublishedNodeIds = []string{have.Node}
		}
		out.Entries = append(out.Entries, entry)
	}
	return out, nil
}

// GetCapacity returns the free space in the directory of the volumes, which is that of every node.
func (c *controller) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(c.store.dir, &s); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.GetCapacityResponse{AvailableCapacity: int64(s.Bavail) * s.Bsize, MinimumVolumeSize: wrapperspb.Int64(smallest)}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, err := c.store.read(r.VolumeId); err != nil {
		return nil, err
	}
	if err := c.store.kind.check(r.VolumeCapabilities); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.VolumeCapabilities}}, nil
}
