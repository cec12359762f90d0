package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Config configures a Server. NodeName, Authenticator, Authorizer, Pods and Log are required. If a field is nil, the endpoints that
// need it answer 404, or 405 with the text that the endpoint is disabled.
type Config struct {
	// NodeName is the name of this node's Node object. The Authorizer decides what a user may do with this Node.
	NodeName string
	// Authenticator and Authorizer guard every request of Handler.
	Authenticator Authenticator
	Authorizer    Authorizer
	// Pods returns the node's pods.
	Pods Pods
	// MirrorUID returns the UID of a static pod's mirror in the API. It may be nil, and returns "" if there is no
	// mirror.
	MirrorUID func(static *v1.Pod) types.UID
	// Runtime sends the requests of users to the container runtime.
	Runtime Runtime
	// Enable says which optional endpoints are served.
	Enable Enable
	// Sources serve the endpoints whose content comes from other packages.
	Sources Sources
	// Checks are health checks in addition to ping and log, for example syncloop. /healthz fails with the first check that fails.
	Checks []Check
	// StreamingByGet lets users who may get nodes/proxy use exec, attach, run and port-forward by GET (WebSocket), as
	// upstream's kubelet does. Without it they also need the right to create nodes/proxy, as for POST.
	StreamingByGet bool
	// StreamIdle is how long a stream of exec, attach or port-forward may carry no data before it is cut; 0: no limit.
	StreamIdle time.Duration
	// UnknownConnections bounds the connections of a listener whose clients have not been authorised yet; 0:
	// DefaultUnknownConnections.
	UnknownConnections int
	// Clock is the node's clock, for the logs of containers, whose lines have its times.
	Clock nodeclock.Clock
	// Registerer takes the server's own metrics; nil: they are not registered.
	Registerer prometheus.Registerer
	// Dial connects to a streaming URL of the runtime; nil: it connects over TCP, with TLS if the URL's scheme is https.
	Dial func(ctx context.Context, u *url.URL) (net.Conn, error)
	Log  *slog.Logger
}

// Enable says which optional endpoints are served: it has the switches of KubeletConfiguration, such as enableDebuggingHandlers, and two
// feature gates.
type Enable struct {
	// Debugging serves run, exec, attach, portForward, containerLogs, checkpoint, runningpods, configz, and the endpoints of
	// SystemLog, Profiling, Flags, Flagz and Statusz, if these are set too.
	Debugging bool
	SystemLog bool // /logs/
	// SystemLogQuery answers node log queries at /logs/, if SystemLog serves it.
	SystemLogQuery bool
	Profiling      bool // /debug/pprof/
	Flags          bool // /debug/flags/v
	Flagz          bool // /flagz: the feature gate ComponentFlagz
	Statusz        bool // /statusz: the feature gate ComponentStatusz
}

// Pods returns what the node runs. All methods may be called concurrently. The values that they return must not be changed.
type Pods interface {
	// List returns the desired pods with their newest statuses.
	List() []*v1.Pod
	// Pod returns the pod of a name. For the name of a mirror pod, it returns the static pod.
	Pod(namespace, name string) (*v1.Pod, bool)
	// Observed returns the newest inspection of a pod.
	Observed(uid types.UID) (*pod.Observed, bool)
	// Settled reports whether the node knows its pods and what the runtime has of them. It does not for a moment after its start.
	Settled() bool
}

// Streams says which streams between the client and a command are connected. At least one of the first three is set. Stderr is never
// set together with TTY.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Runtime is the part of the container runtime that the API needs. All methods may be called concurrently. Errors keep
// the gRPC status of the runtime in their chain. Exec, Attach and PortForward return the URL at which the runtime serves the stream.
// The URL can be used once.
type Runtime interface {
	Exec(ctx context.Context, containerID string, cmd []string, s Streams) (*url.URL, error)
	Attach(ctx context.Context, containerID string, s Streams) (*url.URL, error)
	PortForward(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error)
	// ExecSync runs a command to its end and returns its output. A command that exits with a code other than zero is an
	// error.
	ExecSync(ctx context.Context, containerID string, cmd []string) (output []byte, err error)
}

// Check is a health check. Func may be called concurrently and must not block.
type Check struct {
	Name string
	Func func() error
}

// Sources serve the endpoints whose content comes from other packages. An endpoint without a source answers 404.
type Sources struct {
	// Stats serves /stats/summary, Resource /metrics/resource, CAdvisor /metrics/cadvisor, Probes /metrics/probes.
	Stats, Resource, CAdvisor, Probes http.Handler
	// Metrics gathers the metrics that /metrics shows.
	Metrics prometheus.Gatherer
	// RunningPods returns the pods that the runtime has, in the form for /runningpods.
	RunningPods func(ctx context.Context) ([]*v1.Pod, error)
	// Configz returns the configuration in effect (KubeletConfiguration v1beta1, with kind and apiVersion).
	Configz func() any
	// Flags returns the command line flags in effect, for /flagz.
	Flags func() map[string]string
	// SetVerbosity serves PUT /debug/flags/v.
	SetVerbosity func(value string) error
	// SystemLogDir is the directory that /logs/ shows, /var/log; empty: /logs/ is disabled.
	SystemLogDir string
	// Journalctl is the command that reads the system's journal, for node log queries; "": the node has no journal.
	Journalctl string
	// Checkpoint writes a checkpoint of a running container, and returns the path of the checkpoint's file; nil: /checkpoint/ is not
	// served. Enable.Debugging must be set, too. A timeout of 0 means the default timeout. Checkpoint may be called concurrently.
	Checkpoint func(ctx context.Context, p *v1.Pod, containerID, container string, timeout time.Duration) (path string, err error)
	// Version and Started appear in /statusz: the Kubernetes version, and when the agent started.
	Version string
	Started time.Time
	// Console serves the web page at /console/; nil: there is no page. ConsoleRefused answers the request of a browser whose user
	// may not see the page; user is "" if the user is not known.
	Console        http.Handler
	ConsoleRefused func(w http.ResponseWriter, status int, node, user string)
	// Extra are further endpoints by ServeMux pattern ("GET /explain/"). A client needs the right to nodes/proxy for them.
	Extra map[string]http.Handler
}

func (c *Config) check() error {
	switch {
	case c.NodeName == "":
		return errors.New("server: NodeName is empty")
	case c.Authenticator == nil || c.Authorizer == nil:
		return errors.New("server: Authenticator and Authorizer are required")
	case c.Pods == nil:
		return errors.New("server: Pods is required")
	case c.Log == nil:
		return errors.New("server: Log is required")
	}
	return nil
}
