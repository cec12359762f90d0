package heartbeat

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// These are the timings of upstream's kubelet.
const (
	DefaultStatusFrequency = 10 * time.Second
	DefaultReportFrequency = 5 * time.Minute
	DefaultLeaseDuration   = 40 * time.Second

	tries         = 5
	fastInterval  = 100 * time.Millisecond
	fastFor       = 120 * time.Second
	backOffFirst  = 200 * time.Millisecond
	backOffMax    = 7 * time.Second
	leaseFraction = 0.25 // the renewal interval and the timeout of one request, as a fraction of the lease's duration
	leaseJitter   = 0.04 // the largest random delay, as a fraction of the renewal interval
	repeatLogged  = time.Minute
)

// Source computes the Node that this agent wants the API to have. The heartbeat makes one call at a time; a call should
// end within seconds. The implementation should ask the runtime before the first call: otherwise an agent that restarts
// beside a healthy runtime would make a Ready node NotReady for a moment.
type Source interface {
	// Initial makes the Node for registration. It is called again for each try.
	Initial(ctx context.Context) nodestatus.Result
	// Update computes the Node from the one in the API, which it must not change. It is called every StatusFrequency,
	// and every 100 ms while the node starts, so it should cache expensive facts for a moment. If settled is true, the last call of Update
	// had this same Node, and its result made no difference to it. Update may then return the zero Result, which means that nothing has
	// changed since; this spares a node at rest the computation.
	Update(ctx context.Context, node *v1.Node, settled bool) nodestatus.Result
}

// Recorder records events of the node. It must not block.
type Recorder interface {
	NodeEvent(eventType, reason, message string)
}

// Leases renews leases for many nodes. Many agents in one process can share one Leases, which has one timer. Without a Leases,
// each Heartbeat renews its lease in a loop of its own.
type Leases interface {
	// Keep begins to renew the lease of a node and returns at once. uid returns the UID of the Node object, for the
	// owner reference of the lease; it returns "" while the UID is not known. release stops the renewals; call it at most once.
	Keep(node string, uid func() types.UID) (release func())
}

// NodeAPI reads and writes the Nodes of the API server. The status loop calls it and, until the Node is known, the
// lease loop (Get).
type NodeAPI interface {
	Create(ctx context.Context, node *v1.Node, opts metav1.CreateOptions) (*v1.Node, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
	// Patch is called for the subresource "status" only.
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// LeaseAPI reads and writes the Leases of one namespace. One goroutine calls it.
type LeaseAPI interface {
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Config configures a Heartbeat. Nodes, NodeName and Source are required.
type Config struct {
	// Nodes is the client for Nodes. Its requests must end: give the client a Timeout of the status frequency, so that
	// the agent soon notices a connection to a server that is gone.
	Nodes NodeAPI
	// Lease is the client for the leases of the namespace kube-node-lease. It may be nil if Leases is set.
	Lease    LeaseAPI
	NodeName string
	// Register creates the Node. If it is false, the agent waits until somebody else creates the Node.
	Register bool
	Source   Source
	// ZeroExtended sets extended resources of an adopted Node to zero until device plugins register again.
	ZeroExtended bool

	StatusFrequency time.Duration // nodeStatusUpdateFrequency; zero: 10 s
	ReportFrequency time.Duration // nodeStatusReportFrequency; zero: 5 min
	LeaseDuration   time.Duration // nodeLeaseDurationSeconds; zero: 40 s

	// Cached returns the newest Node of the agent's own watch, or nil. It is optional and saves one GET per round. A
	// Node that is older than the API server's last answer is not used.
	Cached func() *v1.Node
	// PodCIDR is called with the node's pod CIDRs once they are known and when they change. After an error it is called
	// again.
	PodCIDR func(ctx context.Context, cidrs []string) error
	// OnRepeatedFailure closes the client's connections. The status loop and the lease loop call it, possibly at the same time, when repeatedly no
	// server answers, or the server does not know the client.
	OnRepeatedFailure func()
	// Reached, when set, is called when the Node reaches a stage. It may be called more than once for a stage. It must not block.
	Reached func(Stage)
	// Written, when set, is called after each round with the Node that the API server has then, and before the next call of Source.Update.
	// It must not block.
	Written  func(node *v1.Node)
	Recorder Recorder // optional
	Leases   Leases   // optional
	// Rand returns a number in [0, 1) that spreads the reports and renewals of many nodes; nil: random. Both loops call
	// it.
	Rand func() float64
	// Clock is the node's clock, for the times in the lease.
	Clock nodeclock.Clock
	// Log should carry the node's name: the messages do not repeat it.
	Log *slog.Logger
}

// Stage is a stage of a node's start.
type Stage uint8

// These are the stages, in order.
const (
	StageAttempt    Stage = iota // the agent tries to register the Node
	StageRegistered              // the agent created the Node; a Node that existed before skips this
	StageReady                   // the API server has the Node as ready
)

func (c *Config) reached(s Stage) {
	if c.Reached != nil {
		c.Reached(s)
	}
}

func (c *Config) setDefaults() {
	setDuration(&c.StatusFrequency, DefaultStatusFrequency)
	setDuration(&c.ReportFrequency, DefaultReportFrequency)
	setDuration(&c.LeaseDuration, DefaultLeaseDuration)
	c.ReportFrequency = max(c.ReportFrequency, c.StatusFrequency)
	if c.Written == nil {
		c.Written = func(*v1.Node) {}
	}
	if c.OnRepeatedFailure == nil {
		c.OnRepeatedFailure = func() {}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func setDuration(d *time.Duration, fallback time.Duration) {
	if *d <= 0 {
		*d = fallback
	}
}

func (c *Config) validate() error {
	switch {
	case c.Nodes == nil:
		return errors.New("heartbeat: Config.Nodes is missing; a node without an API server has no heartbeat")
	case c.Lease == nil && c.Leases == nil:
		return errors.New("heartbeat: Config.Lease is missing and there are no Leases that would do without")
	case c.NodeName == "":
		return errors.New("heartbeat: Config.NodeName is empty")
	case c.Source == nil:
		return errors.New("heartbeat: Config.Source is missing")
	case c.LeaseDuration < time.Second:
		return errors.New("heartbeat: nodeLeaseDurationSeconds is below 1: a lease has whole seconds")
	}
	return nil
}
