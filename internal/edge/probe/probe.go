package probe

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Kind is the purpose of a probe.
type Kind uint8

// The kinds of probes.
const (
	Startup Kind = iota
	Liveness
	Readiness
	kinds
)

// String returns the name of the kind in events and metrics.
func (k Kind) String() string {
	switch k {
	case Startup:
		return "Startup"
	case Liveness:
		return "Liveness"
	case Readiness:
		return "Readiness"
	case kinds:
	}
	return "invalid"
}

// Execer runs a command in a container. It is called concurrently, at most once per container and kind at a time.
type Execer interface {
	// ExecSync returns the output and the exit code. An error means that the command could not be run, or did not
	// end within the timeout (then ctx has ended, or the error is context.DeadlineExceeded or the gRPC equivalent).
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, code int32, err error)
}

// Dialer opens connections to containers. *net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Event is a Kubernetes event about a container.
type Event struct {
	Pod       pod.Ref
	Container string
	List      pod.Kind // the list of the pod's spec that has the container
	// Reason is Unhealthy or ProbeWarning; both are of type Warning.
	Reason  string
	Message string
}

// Measurement is one run of a probe, for metrics.
type Measurement struct {
	Pod       pod.Ref
	Container string
	Kind      Kind
	// Result is successful, failed or unknown: the values of label result of prober_probe_total.
	Result string
	Took   time.Duration
	// Late is how long after its due time the run began; 0 for a run before its due time.
	Late time.Duration
}

// Config configures Probes.
type Config struct {
	// Exec runs the commands of exec probes. It is required if a pod has exec probes.
	Exec Execer
	// Dialer opens connections for HTTP, TCP and gRPC probes. Default: a net.Dialer.
	Dialer Dialer
	// Notify is called when the state of one of the pod's containers has changed. It is called without locks, concurrently.
	Notify func(types.UID)
	// Event is called with events for users, without locks and concurrently. Observe is called for every run, with the
	// lock held that Forget takes, so Observe is not called for a pod after Forget. Observe must not block, and must not call Probes.
	Event   func(Event)
	Observe func(Measurement)
	// Late is called for a probe that began late, by at least half a period and at least a second. It is called at most once a
	// minute per container, without locks, concurrently. Default: no call.
	Late func(Lateness)
	// Behind is called when many probes of this node begin late, or cannot begin, at most once in behindAgain, without locks. Default: no
	// call.
	Behind func(Behind)
	// Work decides when a command may run. Probes over connections do not use it. Default: every command runs at once.
	Work *work.Scheduler
	// UserAgent is the User-Agent header of HTTP probes. Default: kube-probe/1.36.
	UserAgent string
	// MaxParallel is how many checks may run at the same time. A check that lasts longer than a second (slowAfter) stops counting, so that
	// checks that hang do not stop the others; at most 16 (slowest) times MaxParallel checks do not count. Default: 128.
	MaxParallel int
	// Seed seeds the jitter after a restart of the agent; 0: a random seed.
	Seed uint64
	// Log gets one line per change of state. Default: no log.
	Log *slog.Logger
}

// Target is a running container.
type Target struct {
	// ContainerID is the runtime's ID, without a scheme.
	ContainerID string
	// Spec is the container in the pod spec: its probes, ports and environment. It is not modified.
	Spec *v1.Container
	// Host is the target of probes that name no host: the pod's first IP. While it is empty, these probes give no result, because
	// nothing says where to ask.
	Host string
	// StartedAt is when the container started. Initial delays count from here.
	StartedAt time.Time
	// Initial is the state of exactly this container in the API, if the agent has just started; otherwise nil. It may become known later.
	// It is used until a probe has a result.
	Initial *Initial
	// Terminating ends liveness and startup probes, because the pod ends anyway, or because the agent stops this container since one of them
	// failed.
	Terminating bool
	// Critical means that the pod is critical for the node. Its liveness probes come before those of other pods.
	Critical bool
	// List is the list of the pod's spec that has the container.
	List pod.Kind
}

// Initial is the state of a container before this agent started.
type Initial struct{ Started, Ready bool }

// State is the state of a container according to its probes.
type State struct {
	// Started: there is no startup probe, or it has succeeded.
	Started bool
	// Ready: Started is true, and the container has no readiness probe or its readiness probe succeeded.
	Ready bool
	// Unhealthy: the liveness or startup probe (Kind) failed, and the container must be restarted.
	Unhealthy bool
	Kind      Kind
	// Message is the output of the probe that made the container unhealthy.
	Message string
	// Grace is terminationGracePeriodSeconds of the failed probe; nil: the probe has none.
	Grace *int64
}

// Probes runs probes. All methods may be called concurrently; none blocks on a probe.
type Probes struct {
	cfg       Config
	transport func() *http.Transport // made for the first HTTP probe, because a process may have thousands of nodes without one

	mu      sync.Mutex
	rand    *rand.Rand
	pods    map[types.UID]*podEntry
	timers  due.Heap[*runner]
	running []*batch        // the checks that count towards MaxParallel, oldest first
	slow    int             // number of checks that last long and do not count
	usage   map[share]usage // a share without checks has no entry
	behind  behind
	ran     bool
	rounds  *rounds.Rounds
	wg      sync.WaitGroup
}

type podEntry struct {
	containers []*container
}

// container is one instance of a container.
type container struct {
	ref        pod.Ref
	target     Target
	state      State
	ready      bool // the last result of the readiness probe
	runners    [kinds]*runner
	reportedAt time.Time // when a late probe of this container was last reported
}

// New returns Probes. No probe runs before Run.
func New(cfg Config) *Probes {
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{KeepAlive: -1}
	}
	if cfg.Notify == nil {
		cfg.Notify = func(types.UID) {}
	}
	if cfg.Event == nil {
		cfg.Event = func(Event) {}
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Measurement) {}
	}
	if cfg.Late == nil {
		cfg.Late = func(Lateness) {}
	}
	if cfg.Behind == nil {
		cfg.Behind = func(Behind) {}
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "kube-probe/1.36"
	}
	if cfg.MaxParallel <= 0 {
		cfg.MaxParallel = 128
	}
	if cfg.Work == nil {
		cfg.Work = work.New(work.Config{Processors: cfg.MaxParallel, Most: cfg.MaxParallel})
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	p := &Probes{
		cfg: cfg, pods: map[types.UID]*podEntry{}, usage: map[share]usage{},
		rand: rand.New(rand.NewPCG(seed, 0)),
	}
	p.rounds = rounds.New(p.launch)
	p.transport = sync.OnceValue(p.newTransport)
	return p
}

// Set sets the running containers of a pod: their probes run from now on, and the probes of other containers of the pod end. A repeated
// call with the same targets changes nothing.
func (p *Probes) Set(ref pod.Ref, targets []Target) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[ref.UID]
	if e == nil {
		if len(targets) == 0 {
			return
		}
		e = &podEntry{}
		p.pods[ref.UID] = e
	}
	if e.same(targets) {
		return
	}
	old := e.containers
	e.containers = make([]*container, 0, len(targets))
	for _, t := range targets {
		e.containers = append(e.containers, p.adopt(ref, old, t, now))
	}
	for _, c := range old {
		if e.find(c.target.ContainerID) != c {
			p.drop(c)
		}
	}
	if len(e.containers) == 0 {
		delete(p.pods, ref.UID)
	}
}

// Result returns the state of a container; false: the container was not in the last call of Set for the pod.
func (p *Probes) Result(uid types.UID, containerID string) (State, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.pods[uid]; e != nil {
		if c := e.find(containerID); c != nil {
			return c.state, true
		}
	}
	return State{}, false
}

// maxKept bounds the output that is kept of a probe that fails, in bytes.
const maxKept = 400

// Failing is a probe whose last check failed.
type Failing struct {
	Container string
	Kind      Kind
	Times     int // failures in a row; extra early probes (quick probes) do not count
	Threshold int // failureThreshold
	Output    string
}

// Failing returns the probes of a pod whose last check failed.
func (p *Probes) Failing(uid types.UID) (out []Failing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.pods[uid]
	if e == nil {
		return nil
	}
	for _, c := range e.containers {
		for _, r := range c.runners {
			if r == nil || !r.failed {
				continue
			}
			f := Failing{Container: c.target.Spec.Name, Kind: r.kind, Output: r.output}
			if _, f.Threshold = thresholds(r.spec); r.last == Failure {
				f.Times = r.times
			}
			out = append(out, f)
		}
	}
	return out
}

// Forget ends all probes of a pod.
func (p *Probes) Forget(uid types.UID) { p.Set(pod.Ref{UID: uid}, nil) }

// Begin starts running probes until ctx ends. It returns at once; join waits for the probes that are running. Begin may be called
// once.
func (p *Probes) Begin(ctx context.Context) (join func()) {
	ended := p.rounds.Begin(ctx)
	return func() {
		ended()
		p.withdraw()
		p.wg.Wait()
	}
}

// Run runs probes until ctx ends, waits for the probes that are still running, and returns. It may be called once. Begin does the same
// without blocking its caller.
func (p *Probes) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.ran {
		p.mu.Unlock()
		return errors.New("run probes: Run was called twice")
	}
	p.ran = true
	p.mu.Unlock()
	return rounds.Until(ctx, p.Begin)
}

func (p *Probes) nudge() { p.rounds.Wake() }

func (e *podEntry) find(id string) *container {
	for _, c := range e.containers {
		if c.target.ContainerID == id {
			return c
		}
	}
	return nil
}

// same reports whether the targets are already set. It compares Initial only for containers that are new in targets.
func (e *podEntry) same(targets []Target) bool {
	if len(targets) != len(e.containers) {
		return false
	}
	for i := range targets {
		a, b := &targets[i], &e.containers[i].target
		if a.ContainerID != b.ContainerID || a.Host != b.Host || a.Terminating != b.Terminating || a.Spec != b.Spec || a.Initial != nil && b.Initial == nil {
			return false
		}
	}
	return true
}
