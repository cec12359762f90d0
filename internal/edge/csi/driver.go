package csi

import (
	"context"
	"fmt"
	"net"
	"sync"
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

// Timeout bounds one call. It is as long as that of upstream's kubelet, because a driver may need that long, for example to write back the
// data of a file system before it unmounts it. So a driver that hangs delays the end of a pod by up to this time with each call.
const Timeout = 2 * time.Minute

// The bounds of an answer, in bytes.
const (
	maxAnswer   = 1 << 20
	maxHeaders  = 64 << 10 // gRPC sends the text of an error in headers
	maxNodeID   = 256      // the maximum in the CSI specification
	maxTopology = 4 << 10  // all keys and values together; the maximum in the CSI specification
)

// Driver is a CSI driver of this node.
type Driver struct {
	name string
	conn *grpc.ClientConn // nil: the driver is in this process
	node csi.NodeClient
	can  csispec.Capabilities
	done Called

	mu      sync.Mutex
	calls   int // in flight
	retired bool
}

// Called is called after each call to a driver: with the method, such as NodePublishVolume, the name of the status code of the answer, such
// as OK, and how long the call took. It must not block.
type Called func(driver, method, code string, took time.Duration)

// Info is what a driver reports about itself and about the node.
type Info struct {
	// NodeID is the ID that the driver uses for the node.
	NodeID string
	// MaxVolumes is how many volumes of the driver the node can have; 0 or less: not limited.
	MaxVolumes int64
	// Topology says where the node is. The driver defines the keys and values.
	Topology map[string]string
}

// Dial connects to the service of a driver.
type Dial func(ctx context.Context, endpoint string) (net.Conn, error)

// Socket connects to a driver whose endpoint is the path of a socket.
func Socket(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// New returns the driver with this name, to whose endpoint dial connects. done may be nil.
func New(name, endpoint string, dial Dial, done Called) (*Driver, error) {
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	params.Backoff.BaseDelay, params.Backoff.MaxDelay = 100*time.Millisecond, 3*time.Second
	conn, err := grpc.NewClient("passthrough:///driver", // the dialer knows the endpoint, which need not be a valid URL
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, endpoint) }),
		grpc.WithConnectParams(params), grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0),
		grpc.WithDisableServiceConfig(), grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %s: %w", name, err)
	}
	if done == nil {
		done = func(string, string, string, time.Duration) {}
	}
	return &Driver{name: name, conn: conn, node: csi.NewNodeClient(conn), done: done}, nil
}

// Close ends the connection. Calls in flight fail.
func (d *Driver) Close() {
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// Retire ends the connection as soon as no call is in flight. Use it when another Driver takes the place of this one: both may be connected to the
// same process, for example if it has restarted and then registers. That process would still work on a call that is cut off here, while the
// next call for the same volume arrives.
func (d *Driver) Retire() {
	d.mu.Lock()
	d.retired = true
	idle := d.calls == 0
	d.mu.Unlock()
	if idle {
		d.Close()
	}
}

// begins counts a call in flight, until the returned function is called.
func (d *Driver) begins() (ended func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	return func() {
		d.mu.Lock()
		d.calls--
		last := d.retired && d.calls == 0
		d.mu.Unlock()
		if last {
			d.Close()
		}
	}
}

// Can returns the capabilities that the driver reported when Ask was called.
func (d *Driver) Can() csispec.Capabilities { return d.can }

// Ask asks the driver about itself and the node. It must have returned before any other call.
func (d *Driver) Ask(ctx context.Context) (Info, error) {
	caps, err := call(ctx, d, "NodeGetCapabilities", d.node.NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return Info{}, err
	}
	d.can = csispec.CapabilitiesOf(caps.GetCapabilities())
	return d.Info(ctx)
}

// Info asks the driver about the node.
func (d *Driver) Info(ctx context.Context) (Info, error) {
	info, err := call(ctx, d, "NodeGetInfo", d.node.NodeGetInfo, &csi.NodeGetInfoRequest{})
	if err != nil {
		return Info{}, err
	}
	if err := checkInfo(info); err != nil {
		return Info{}, fmt.Errorf("CSI driver %s, NodeGetInfo: %w", d.name, err)
	}
	return Info{NodeID: info.GetNodeId(), MaxVolumes: info.GetMaxVolumesPerNode(), Topology: info.GetAccessibleTopology().GetSegments()}, nil
}

// checkInfo refuses an answer that is longer than CSI allows, because it becomes labels and annotations of the Node.
func checkInfo(info *csi.NodeGetInfoResponse) error {
	if id := info.GetNodeId(); id == "" || len(id) > maxNodeID {
		return fmt.Errorf("the answer's node_id has %d bytes: it must have between 1 and %d", len(id), maxNodeID)
	}
	size := 0
	for key, value := range info.GetAccessibleTopology().GetSegments() {
		size += len(key) + len(value)
	}
	if size > maxTopology {
		return fmt.Errorf("the answer's accessible_topology has %d bytes, more than %d", size, maxTopology)
	}
	return nil
}

// Stage stages a volume on the node.
func (d *Driver) Stage(ctx context.Context, req *csi.NodeStageVolumeRequest) error {
	_, err := call(ctx, d, "NodeStageVolume", d.node.NodeStageVolume, req)
	return err
}

// Unstage undoes Stage.
func (d *Driver) Unstage(ctx context.Context, req *csi.NodeUnstageVolumeRequest) error {
	_, err := call(ctx, d, "NodeUnstageVolume", d.node.NodeUnstageVolume, req)
	return err
}

// Publish makes a volume visible to a pod.
func (d *Driver) Publish(ctx context.Context, req *csi.NodePublishVolumeRequest) error {
	_, err := call(ctx, d, "NodePublishVolume", d.node.NodePublishVolume, req)
	return err
}

// Unpublish undoes Publish.
func (d *Driver) Unpublish(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) error {
	_, err := call(ctx, d, "NodeUnpublishVolume", d.node.NodeUnpublishVolume, req)
	return err
}

// Stats returns the used and the free space of a published volume.
func (d *Driver) Stats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return call(ctx, d, "NodeGetVolumeStats", d.node.NodeGetVolumeStats, req)
}

// Expand makes the driver grow a volume on the node, after the volume itself has grown.
func (d *Driver) Expand(ctx context.Context, req *csi.NodeExpandVolumeRequest) error {
	_, err := call(ctx, d, "NodeExpandVolume", d.node.NodeExpandVolume, req)
	return err
}

// call makes one call. Its error is a *csispec.CallError. It does not wrap the error of gRPC, whose text comes from the driver and
// has no bound.
func call[Q, A any](ctx context.Context, d *Driver, name string, f func(context.Context, Q, ...grpc.CallOption) (A, error), req Q) (A, error) {
	defer d.begins()()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	answer, err := f(ctx, req)
	st := status.Convert(err)
	d.done(d.name, name, codeName(st.Code()), time.Since(began))
	failed := &csispec.CallError{Driver: d.name, Method: name, Code: csispec.Code(st.Code())}
	switch {
	case err == nil:
		return answer, nil
	case st.Code() == codes.DeadlineExceeded && !time.Now().Before(deadline): // before the deadline, it is an answer of the driver
		failed.Text = fmt.Sprintf("no answer within %s", time.Since(began).Round(time.Second))
	default:
		failed.Text = pod.Text(st.Message())
	}
	return answer, failed
}

// codeName returns the name of a status code. A driver may answer with any number, and those that gRPC does not define count as Unknown.
func codeName(c codes.Code) string {
	if c > codes.Unauthenticated {
		c = codes.Unknown
	}
	return c.String()
}
