package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Timeout bounds one call.
const Timeout = 2 * time.Minute

// maxAnswer bounds one answer of a driver.
const maxAnswer = 4 << 20

// Driver is a CSI driver of this node.
type Driver struct {
	name string
	conn *grpc.ClientConn
	node csi.NodeClient
	can  csispec.Capabilities
}

// Info is what a driver says of itself and of the node.
type Info struct {
	// NodeID is the driver's own name of the node.
	NodeID string
	// MaxVolumes is how many volumes the node can have; 0: not limited.
	MaxVolumes int64
	// Topology says where the node is, in the driver's own terms.
	Topology map[string]string
}

// New returns the driver behind a socket.
func New(name, socket string) (*Driver, error) {
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	params.Backoff.BaseDelay, params.Backoff.MaxDelay = 100*time.Millisecond, 3*time.Second
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}),
		grpc.WithConnectParams(params), grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %s: %w", name, err)
	}
	return &Driver{name: name, conn: conn, node: csi.NewNodeClient(conn)}, nil
}

// Close ends the connection. Calls in flight fail.
func (d *Driver) Close() { _ = d.conn.Close() }

// Name returns the driver's name.
func (d *Driver) Name() string { return d.name }

// Can returns what Ask has learned.
func (d *Driver) Can() csispec.Capabilities { return d.can }

// Ask asks the driver about itself. It must have returned before any other call.
func (d *Driver) Ask(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	caps, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return Info{}, d.failed("NodeGetCapabilities", err)
	}
	d.can = csispec.CapabilitiesOf(caps.GetCapabilities())
	info, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return Info{}, d.failed("NodeGetInfo", err)
	}
	if info.GetNodeId() == "" {
		return Info{}, d.failed("NodeGetInfo", errors.New("the answer has no node_id"))
	}
	return Info{NodeID: info.GetNodeId(), MaxVolumes: info.GetMaxVolumesPerNode(), Topology: info.GetAccessibleTopology().GetSegments()}, nil
}

// Stage stages a volume on the node.
func (d *Driver) Stage(ctx context.Context, req *csi.NodeStageVolumeRequest) error {
	return call(ctx, d, "NodeStageVolume", d.node.NodeStageVolume, req)
}

// Unstage undoes Stage.
func (d *Driver) Unstage(ctx context.Context, req *csi.NodeUnstageVolumeRequest) error {
	return call(ctx, d, "NodeUnstageVolume", d.node.NodeUnstageVolume, req)
}

// Publish makes a volume visible to a pod.
func (d *Driver) Publish(ctx context.Context, req *csi.NodePublishVolumeRequest) error {
	return call(ctx, d, "NodePublishVolume", d.node.NodePublishVolume, req)
}

// Unpublish undoes Publish.
func (d *Driver) Unpublish(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) error {
	return call(ctx, d, "NodeUnpublishVolume", d.node.NodeUnpublishVolume, req)
}

func call[Q, A any](ctx context.Context, d *Driver, name string, f func(context.Context, Q, ...grpc.CallOption) (A, error), req Q) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if _, err := f(ctx, req); err != nil {
		return d.failed(name, err)
	}
	return nil
}

// Error is the failure of a call.
type Error struct {
	// Final: the driver has answered, so the call has no effect that is still under way.
	Final bool
	text  string
	cause error
}

// Error returns the driver's own words.
func (e *Error) Error() string { return e.text }

// Unwrap returns the error of the call.
func (e *Error) Unwrap() error { return e.cause }

func (d *Driver) failed(call string, err error) error {
	st := status.Convert(err)
	e := &Error{cause: err, Final: true}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Unknown:
		e.Final = false
	}
	e.text = fmt.Sprintf("CSI driver %s, %s: %s", d.name, call, pod.Text(st.Message()))
	if st.Code() == codes.DeadlineExceeded {
		e.text = fmt.Sprintf("CSI driver %s, %s: no answer within %s", d.name, call, Timeout)
	}
	return e
}
