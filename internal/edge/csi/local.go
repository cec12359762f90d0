package csi

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// NewLocal returns a driver of this name that is in this process: calls go to server, without a connection. done may be nil. A driver in this
// process is simulated, so it costs a node no goroutine and no buffers.
func NewLocal(name string, server csi.NodeServer, done Called) *Driver {
	if done == nil {
		done = func(string, string, string, time.Duration) {}
	}
	return &Driver{name: name, node: local{server}, done: done}
}

// local calls a server in this process.
type local struct{ server csi.NodeServer }

var _ csi.NodeClient = local{}

func (l local) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest, _ ...grpc.CallOption) (*csi.NodeStageVolumeResponse, error) {
	return l.server.NodeStageVolume(ctx, r)
}

func (l local) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest, _ ...grpc.CallOption) (*csi.NodeUnstageVolumeResponse, error) {
	return l.server.NodeUnstageVolume(ctx, r)
}

func (l local) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest, _ ...grpc.CallOption) (*csi.NodePublishVolumeResponse, error) {
	return l.server.NodePublishVolume(ctx, r)
}

func (l local) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest, _ ...grpc.CallOption) (*csi.NodeUnpublishVolumeResponse, error) {
	return l.server.NodeUnpublishVolume(ctx, r)
}

func (l local) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest, _ ...grpc.CallOption) (*csi.NodeGetVolumeStatsResponse, error) {
	return l.server.NodeGetVolumeStats(ctx, r)
}

func (l local) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest, _ ...grpc.CallOption) (*csi.NodeExpandVolumeResponse, error) {
	return l.server.NodeExpandVolume(ctx, r)
}

func (l local) NodeGetCapabilities(ctx context.Context, r *csi.NodeGetCapabilitiesRequest, _ ...grpc.CallOption) (*csi.NodeGetCapabilitiesResponse, error) {
	return l.server.NodeGetCapabilities(ctx, r)
}

func (l local) NodeGetInfo(ctx context.Context, r *csi.NodeGetInfoRequest, _ ...grpc.CallOption) (*csi.NodeGetInfoResponse, error) {
	return l.server.NodeGetInfo(ctx, r)
}
