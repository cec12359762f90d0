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

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Config is what a server needs. NodeName, Authenticator, Authorizer, Pods and Log are required; an endpoint whose
// source is nil answers 404 or says that it is disabled.
type Config struct {
	// NodeName is the name of the node in authorisation: "nodes/proxy" of this node.
	NodeName string
	// Authenticator and Authorizer guard every request of Handler.
	Authenticator Authenticator
	Authorizer    Authorizer
	// Pods is what the node runs.
	Pods Pods
	// MirrorUID is the UID by which the API server knows a static pod; nil, or empty: it does not.
	MirrorUID func(static *v1.Pod) types.UID
	// Runtime does what the container runtime does for a user.
	Runtime Runtime
	// Enable are the switches of KubeletConfiguration.
	Enable Enable
	// Sources are the endpoints whose content others make.
	Sources Sources
	// Checks are health checks beside ping and log, for example syncloop. The first failing one makes /healthz fail.
	Checks []Check
	// StreamingByGet lets those who may get nodes/proxy use exec, attach, run and port-forward by GET (WebSocket), as
	// upstream's kubelet does. Else they must have the right to create nodes/proxy too, as by POST.
	StreamingByGet bool
	// StreamIdle is how long a stream of exec, attach or port-forward may carry nothing; 0: for ever.
	StreamIdle time.Duration
	// UnknownConnections bounds the connections of a listener whose clients have not been let in yet; 0: DefaultUnknownConnections.
	UnknownConnections int
	// Registerer takes the server's own metrics; nil: they are not counted.
	Registerer prometheus.Registerer
	// Dial connects to a streaming URL of the runtime; nil: over TCP, with TLS where the URL says https.
	Dial func(ctx context.Context, u *url.URL) (net.Conn, error)
	Log  *slog.Logger
}

// Enable has the switches of KubeletConfiguration with the same names.
type Enable struct {
	// Debugging serves run, exec, attach, portForward, containerLogs, runningpods, configz and all that follows.
	Debugging bool
	SystemLog bool // /logs/
	Profiling bool // /debug/pprof/
	Flags     bool // /debug/flags/v
	Flagz     bool // /flagz: the gate ComponentFlagz
	Statusz   bool // /statusz: the gate ComponentStatusz
}

// Pods tells what the node runs. All methods may be called concurrently, and return values that nobody changes.
type Pods interface {
	// List returns the desired pods with their newest statuses.
	List() []*v1.Pod
	// Pod returns one of them; the mirror pod of a static pod is found as the static pod.
	Pod(namespace, name string) (*v1.Pod, bool)
	// Observed returns the newest inspection of a pod.
	Observed(uid types.UID) (*pod.Observed, bool)
}

// Streams says which of its streams a command gets. At least one of the first three is set, and Stderr is not when
// TTY is.
type Streams struct{ Stdin, Stdout, Stderr, TTY bool }

// Runtime is what the API asks of the container runtime. All methods may be called concurrently. Errors keep the
// gRPC status of the runtime in their chain. Exec, Attach and PortForward return the URL at which the runtime
// serves the stream, once.
type Runtime interface {
	Exec(ctx context.Context, containerID string, cmd []string, s Streams) (*url.URL, error)
	Attach(ctx context.Context, containerID string, s Streams) (*url.URL, error)
	PortForward(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error)
	// ExecSync runs a command to its end and returns what it wrote. A command that ends with another code than
	// zero is an error.
	ExecSync(ctx context.Context, containerID string, cmd []string) (output []byte, err error)
}

// Check is a health check. Func may be called concurrently and must not block.
type Check struct {
	Name string
	Func func() error
}

// Sources are endpoints whose content others make; a nil one answers 404.
type Sources struct {
	// Stats serves /stats/summary, Resource /metrics/resource, CAdvisor /metrics/cadvisor, Probes /metrics/probes.
	Stats, Resource, CAdvisor, Probes http.Handler
	// Metrics are those of /metrics.
	Metrics prometheus.Gatherer
	// RunningPods returns the pods that the runtime has, as /runningpods shows them.
	RunningPods func(ctx context.Context) ([]*v1.Pod, error)
	// Configz returns the configuration in effect (KubeletConfiguration v1beta1, with kind and apiVersion).
	Configz func() any
	// Flags returns the command line flags in effect, for /flagz.
	Flags func() map[string]string
	// SetVerbosity serves PUT /debug/flags/v.
	SetVerbosity func(value string) error
	// SystemLogDir is the directory that /logs/ shows, /var/log; empty: none.
	SystemLogDir string
	// Version and Started are shown by /statusz: the Kubernetes version, and when the agent began.
	Version string
	Started time.Time
	// Extra are further endpoints by ServeMux pattern ("GET /explain/"), behind "nodes/proxy".
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
