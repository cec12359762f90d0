package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxMessage is the size limit of a CRI message in bytes. A node with many pods has long lists.
const maxMessage = 16 << 20

// DefaultTimeout is runtimeRequestTimeout of KubeletConfiguration: "the timeout for all runtime requests except
// long running requests - pull, logs, exec and attach".
const DefaultTimeout = 2 * time.Minute

// Dial opens a connection to a CRI endpoint: unix:///path, or a bare absolute path. It does not wait for the runtime: calls
// fail with a clear error while the runtime is down, and succeed once it is up.
func Dial(endpoint string) (*grpc.ClientConn, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	params := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	params.Backoff.BaseDelay, params.Backoff.MaxDelay = 100*time.Millisecond, 3*time.Second
	return grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}),
		grpc.WithConnectParams(params),
		grpc.WithUnaryInterceptor(newReceipts().intercept),
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

func socketPath(endpoint string) (string, error) {
	if filepath.IsAbs(endpoint) {
		return endpoint, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || !filepath.IsAbs(u.Path) {
		return "", fmt.Errorf("containerRuntimeEndpoint %q: use unix:///absolute/path/to.sock, for example unix:///run/containerd/containerd.sock", endpoint)
	}
	return u.Path, nil
}

// Config configures a Client.
type Config struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Timeout bounds each call; 0: DefaultTimeout. RunSandbox may take twice as long. The bound of StopContainer is Timeout plus the grace
	// period, and that of ExecSync is Timeout plus its own timeout. ExecSync without a timeout is not bounded.
	Timeout time.Duration
	// ReadTermination reads a container's termination message from the node, given the container's CRI status; nil: the client
	// uses the runtime's own message.
	ReadTermination func(*runtimeapi.ContainerStatus) string
	// EventArrived, when set, is called for each container event with the time since the runtime created the event. It must not
	// block.
	EventArrived func(late time.Duration)
}

// Client calls one runtime.
type Client struct {
	cfg Config

	mu sync.Mutex
	// resized holds the containers whose resources have changed since their status was last read. Their last inspection is out
	// of date.
	resized map[string]bool
}

// New returns a Client. It makes no call.
func New(cfg Config) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	return &Client{cfg: cfg}
}

func (c *Client) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// IsNotFound reports whether the runtime answered that the object does not exist.
func IsNotFound(err error) bool {
	if err == nil {
		return false
	}
	if status.Code(unwrapStatus(err)) == codes.NotFound {
		return true
	}
	// containerd 1.x returns the sandbox store's error without a code in some calls, and that error ends with the words "not found". In
	// errors about something else that is missing, for example a CNI plugin, these words are not at the end.
	msg := err.Error()
	return status.Code(unwrapStatus(err)) == codes.Unknown && (strings.HasSuffix(msg, ": not found") || strings.HasSuffix(msg, "ID does not exist"))
}

// IsUnknown reports whether a failed call may have taken effect anyway, because a deadline passed or the connection was lost.
func IsUnknown(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	switch status.Code(unwrapStatus(err)) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return true
	}
	return false
}

// IsUnimplemented reports whether the runtime does not implement the call.
func IsUnimplemented(err error) bool { return status.Code(unwrapStatus(err)) == codes.Unimplemented }

// Message returns the runtime's own error message, without gRPC's prefix.
func Message(err error) string {
	if err == nil {
		return ""
	}
	if s, ok := status.FromError(unwrapStatus(err)); ok && s.Message() != "" {
		return s.Message()
	}
	return err.Error()
}

// StatusText returns the runtime's error as gRPC prints it, with its code, and without the context that this agent added.
// Upstream's events have errors in this form.
func StatusText(err error) string { return unwrapStatus(err).Error() }

func unwrapStatus(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ok := e.(interface{ GRPCStatus() *status.Status }); ok {
			return e
		}
	}
	return err
}

// Services returns the CRI clients for two connections, which may be the same.
func Services(runtime, images *grpc.ClientConn) (runtimeapi.RuntimeServiceClient, runtimeapi.ImageServiceClient) {
	return runtimeapi.NewRuntimeServiceClient(runtime), runtimeapi.NewImageServiceClient(images)
}
