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

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Kind is what a probe is for.
type Kind uint8

// The kinds of probes.
const (
	Startup Kind = iota
	Liveness
	Readiness
	kinds
)

// String is the word used in events and metrics.
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

// Event is something to tell the user about a container.
type Event struct {
	Pod       pod.Ref
	Container string
	List      pod.Kind // the list of the pod's spec that the container stands in
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
	// Late is how long after its time the run began; runs that come before their time are never late.
	Late time.Duration
}

// Config is what Probes needs.
type Config struct {
	// Exec runs exec probes. Required if there are any.
	Exec Execer
	// Dialer opens connections for the other probes. Default: a net.Dialer.
	Dialer Dialer
	// Notify is told that the state of a container of the pod has changed. Called without locks, concurrently.
	Notify func(types.UID)
	// Event is told what users should see; it is called without locks, concurrently. Observe is told of every run, under the lock
	// that Forget takes, so that no run of a pod is told of after it: it must not block, nor call back.
	Event   func(Event)
	Observe func(Measurement)
	// Late is told of probes that began late by half a period and a second or more, once a minute per container at most; called
	// without locks, concurrently. Default: nobody is.
	Late func(Lateness)
	// Behind is told once in behindAgain that probes do not keep their periods on this node; called like Late.
	Behind func(Behind)
	// Work says when a command may run; connections do not ask. Default: every command may at once.
	Work *work.Scheduler
	// UserAgent of HTTP probes. Default kube-probe/1.36.
	UserAgent string
	// MaxParallel bounds the probes that run at once. Default 128.
	MaxParallel int
	// Seed of the jitter after an agent's restart; 0 takes a random one.
	Seed uint64
	// Log gets one line per changed state. Default: nothing.
	Log *slog.Logger
}

// Target is a container that runs.
type Target struct {
	// ContainerID is the runtime's ID, without a scheme.
	ContainerID string
	// Spec is the container of the pod spec: its probes, ports and environment. It is not changed.
	Spec *v1.Container
	// Host is where probes without a host go: the pod's first IP.
	Host string
	// StartedAt is when the container started: initial delays run from here.
	StartedAt time.Time
	// Initial is what the API says of this very container when the agent has just started; nil otherwise. It may become
	// known later, and counts then as long as no probe has said anything.
	Initial *Initial
	// Terminating stops liveness and startup probes: the pod is on its way out anyway.
	Terminating bool
	// Critical: the node needs the pod, and its liveness probes go before those of others.
	Critical bool
	// List is the list of the pod's spec that Spec stands in.
	List pod.Kind
}

// Initial is what was known of a container before this agent started.
type Initial struct{ Started, Ready bool }

// State is what the probes of a container have said.
type State struct {
	// Started: there is no startup probe, or it has succeeded.
	Started bool
	// Ready: started, and there is no readiness probe or it says so.
	Ready bool
	// Unhealthy: the liveness or startup probe (Kind) failed; the container has to be restarted.
	Unhealthy bool
	Kind      Kind
	// Message is the output of the probe that made the container unhealthy.
	Message string
	// Grace is terminationGracePeriodSeconds of the failed probe; nil when it has none.
	Grace *int64
}

// Probes runs probes. All methods may be called concurrently; none blocks on a probe.
type Probes struct {
	cfg       Config
	transport *http.Transport

	mu      sync.Mutex
	rand    *rand.Rand
	pods    map[types.UID]*podEntry
	timers  due.Heap[*runner]
	running int
	execs   map[types.UID]int // that run or wait for their turn, by pod; nothing of a pod without
	behind  behind
	ran     bool
	wake    chan struct{} // capacity 1
	wg      sync.WaitGroup
}

type podEntry struct {
	containers []*container
}

// container is one instance of a container.
type container struct {
	ref     pod.Ref
	target  Target
	state   State
	ready   bool // what the readiness probe says
	runners [kinds]*runner
	toldAt  time.Time // of being late
}

// New returns Probes that run nothing until Run.
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
		cfg: cfg, pods: map[types.UID]*podEntry{}, execs: map[types.UID]int{}, wake: make(chan struct{}, 1),
		rand: rand.New(rand.NewPCG(seed, 0)),
	}
	p.transport = p.newTransport()
	return p
}

// Set says which containers of a pod run. Calling it again with the same targets costs a comparison.
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

// Result returns the state of a container; false when it is not in the pod's set.
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

// Forget ends the probes of a pod.
func (p *Probes) Forget(uid types.UID) { p.Set(pod.Ref{UID: uid}, nil) }

// Run runs probes until ctx ends, then waits for those that run. It may be called once.
func (p *Probes) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.ran {
		p.mu.Unlock()
		return errors.New("run probes: they have run already")
	}
	p.ran = true
	p.mu.Unlock()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(p.launch(ctx))
		select {
		case <-ctx.Done():
			p.withdraw()
			p.wg.Wait()
			p.transport.CloseIdleConnections()
			return nil
		case <-timer.C:
		case <-p.wake:
		}
	}
}

func (p *Probes) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (e *podEntry) find(id string) *container {
	for _, c := range e.containers {
		if c.target.ContainerID == id {
			return c
		}
	}
	return nil
}

// same reports whether the targets are those that are already set. Initial counts for new containers only.
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
