package podworker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/admit"
	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/timeline"
)

// Cache is the pod cache. Both calls return at once and may come from many workers at a time.
type Cache interface {
	// Get returns the newest inspection (never nil) and its stamp; a zero stamp: not known yet.
	Get(uid types.UID) (*pod.Observed, time.Time)
	// Inspect asks for an inspection that begins after the call; the worker is told to look when it is done. It
	// returns the moment of the call: stamps after it are of inspections that began after it, and of no others. It must
	// not call back at once.
	Inspect(uid types.UID) time.Time
}

// Desired is what the sources want. Get returns nil for a pod that none of them has.
type Desired interface {
	Get(uid types.UID) (*v1.Pod, pod.Source)
	// LastGrace is decide.Input.LastGrace.
	LastGrace(uid types.UID) *int64
}

// Performer does one action and returns how it went. It blocks; cancelling ctx cuts short what can be cut short.
// Actions of one pod run concurrently unless the decision orders them. Doing an action twice must be harmless.
type Performer interface {
	Do(ctx context.Context, job pod.Job) pod.Outcome
}

// Reporter takes what a turn concluded: status, events. It must not block.
type Reporter interface {
	// Turn is called at the end of every turn.
	Turn(t *Turn)
}

// Host answers what a turn asks of the node. All calls must return at once, but Admit and Resize: these may measure the node
// first, and then wait for the admission of another pod, never for another pod's IO.
type Host interface {
	// Loaded is called once, when the worker has read its checkpoint and before it asks anything else: what an earlier
	// agent allocated to the pod, nil if nothing is known of that.
	Loaded(uid types.UID, allocated *pod.Allocation)
	// Node is the node as this pod must see it.
	Node(ref pod.Ref) decide.Node
	// Admit decides whether the node takes a pod that it has never run: nil, a refusal, or not yet (others have to
	// make room first; the worker is told to look again when they have).
	Admit(p *v1.Pod) (refused *decide.Stop, wait bool)
	// Resize decides whether the node accepts what a pod asks for now, beyond what is allocated to it; not ok: ask again in
	// a while. One that is deferred is looked at again when others leave.
	Resize(p *v1.Pod, allocated *pod.Allocation) (r admit.ResizeResult, ok bool)
	// Probe fills in what the probes of the pod's containers say, and keeps the set of running probes in step.
	Probe(p *v1.Pod, obs *pod.Observed, m *decide.Memory)
}

// Checkpoints keep the kept fields of a pod's Memory across agents.
type Checkpoints interface {
	// Load returns nil when there is none.
	Load(uid types.UID) (*decide.Memory, error)
	Save(uid types.UID, m *decide.Memory) error
}

// Config is what every worker of an agent shares.
type Config struct {
	Context     context.Context // of the agent: it ends every action
	Group       *sync.WaitGroup // of the agent: every goroutine of a worker is joined
	Cache       Cache
	Desired     Desired
	Performer   Performer
	Reporter    Reporter
	Host        Host
	Checkpoints Checkpoints
	Gate        *Gate
	Policy      *decide.Policy
	// Hash is the version-stable hash of what a container must be restarted for.
	Hash func(p *v1.Pod, c *v1.Container) string
	// Sizes are those of the pod's group and containers (crispec.Sizes).
	Sizes func(p *v1.Pod) []pod.NamedSize
	// Gone is called when nothing of the pod is left and no source has it.
	Gone func(uid types.UID)
	Log  *slog.Logger
}

// Turn is what one turn saw and concluded.
type Turn struct {
	Ref      pod.Ref
	Pod      *v1.Pod // with the resources that the node has accepted; nil: no source has it
	Desired  *v1.Pod // as its source has it
	Source   pod.Source
	Observed *pod.Observed
	Memory   *decide.Memory // valid during the call
	Plan     *decide.Plan
	Node     decide.Node
	Outcomes []pod.Outcome // that this turn learned of
	Queued   bool          // it waits for other pods to start first
	Now      time.Time
}

// Worker drives one pod.
//
//	        Look                 turn done, nobody looked meanwhile
//	resting ────► turning (one goroutine) ────────────────────────► resting
//	                 ▲  │ looked meanwhile
//	                 └──┘
type Worker struct {
	cfg *Config
	ref pod.Ref

	// A node has many pods at rest, so these keep little: busy, memory and work are nil between turns of such a one, and
	// rest has what the memory was.
	mu      sync.Mutex
	turning bool
	again   bool
	retired bool
	refresh bool // volumes must be set up again
	busy    *busy
	timer   *time.Timer
	stop    *decide.Stop // the node's own reason to end the pod, not yet taken up

	// Only a turn touches what follows.
	memory     *decide.Memory
	work       *work
	rest       *resting
	loaded     bool
	queued     bool // at the gate: inside, or waiting
	gated      bool // inside
	forgetting bool // the last act is under way or done: nothing may be written any more
	owed       bool // volumes are to be made again
	turned     bool
	lastPhase  decide.Phase
	lastWhy    pod.Why
	told       *v1.Pod // the pod as its volumes were last made from
	wanted     *v1.Pod // as the source had it last, and
	accepted   *v1.Pod // the same with what the node has accepted

	ring timeline.Ring
}

// busy is what goes on, and what the next turn is to know of.
type busy struct {
	cause    string
	flights  []flight
	outcomes []pod.Outcome
}

// work is what a turn needs while there is something to do.
type work struct {
	gatedAt   time.Time // since when it has been at the gate
	hashedPod *v1.Pod   // whose these are:
	hashes    map[string]string
	sizes     []pod.NamedSize
	askAt     time.Time // when the node is asked again
}

// flight is an action that has begun and has no outcome yet.
type flight struct {
	action   pod.Action // its key
	began    time.Time
	canceled bool
	cancel   context.CancelFunc
}

// New returns a resting worker.
func New(cfg *Config, ref pod.Ref) *Worker { return &Worker{cfg: cfg, ref: ref} }

// Next returns a resting worker for the next life of a pod that a source names again, after Gone was called for this one. The
// attempts of its containers go on from those that this life made: the same pod never has two containers with one attempt.
func (w *Worker) Next() *Worker {
	next := New(w.cfg, w.Ref())
	w.rouse() // no turn follows any more
	next.memory = w.memory.Next()
	return next
}

// Ref names the worker's pod.
func (w *Worker) Ref() pod.Ref {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ref
}

// Timeline returns the pod's record of decisions, oldest first, and how many older ones were dropped.
func (w *Worker) Timeline() ([]timeline.Record, int) { return w.ring.Records() }

// Tell puts into the timeline what others know of the pod. It may be called concurrently.
func (w *Worker) Tell(r timeline.Record) { w.ring.Add(r) }

// UnderWay is an action that has begun and not ended.
type UnderWay struct {
	What  string    `json:"what"`
	Began time.Time `json:"began"`
	For   string    `json:"for"` // how long it takes already
}

// UnderWay lists the actions that have begun and not ended, oldest first: an image pull tells nothing else of its progress
// before it ends, as the runtime tells none.
func (w *Worker) UnderWay() []UnderWay {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []UnderWay
	for _, f := range w.flights() {
		out = append(out, UnderWay{What: f.action.String(), Began: f.began, For: time.Since(f.began).Round(time.Millisecond).String()})
	}
	return out
}

// Expects reports whether an action is in flight that does what a hint tells of: its outcome will ask for an inspection.
func (w *Worker) Expects(h pod.Hint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flights() {
		switch a := &f.action; a.Op {
		case pod.OpRunSandbox, pod.OpStartContainer:
			if h.Reached == pod.ReachedRunning {
				return true
			}
		case pod.OpStopContainer, pod.OpStopSandbox:
			if h.Reached == pod.ReachedEnd && a.ID == h.ID {
				return true
			}
		case pod.OpRemoveContainer, pod.OpRemoveSandbox:
			if h.Reached == pod.ReachedRemoval {
				return true
			}
		case pod.OpNone, pod.OpSetUp, pod.OpPullImage, pod.OpPostStart, pod.OpPreStop, pod.OpTearDown, pod.OpForget, pod.OpResize:
		}
	}
	return false
}

// Look makes the worker look again. It never blocks; cause is for the timeline.
func (w *Worker) Look(cause string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.retired || w.cfg.Context.Err() != nil {
		return
	}
	if b := w.engage(); b.cause == "" {
		b.cause = cause
	}
	if w.turning {
		w.again = true
		return
	}
	w.turning = true
	w.cfg.Group.Add(1)
	go w.run()
}

// Refresh makes the worker set the pod's volumes up again.
func (w *Worker) Refresh(cause string) {
	w.mu.Lock()
	w.refresh = true
	w.mu.Unlock()
	w.Look(cause)
}

// Stop makes the pod end for a reason of the node's. The first reason counts.
func (w *Worker) Stop(s *decide.Stop) {
	w.mu.Lock()
	if w.stop == nil {
		w.stop = s
	}
	w.mu.Unlock()
	w.Look(s.Reason)
}

// Close makes the worker rest for good once the agent's context has ended: a Look that comes later begins nothing.
func (w *Worker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	w.stopTimer()
}

// run takes turns until nobody asked for another.
func (w *Worker) run() {
	defer w.cfg.Group.Done()
	for {
		w.mu.Lock()
		// Outcomes and flights are taken together: an action is in one of them or not done yet.
		b := w.engage()
		look := glance{cause: b.cause, outcomes: b.outcomes, inFlight: w.inFlight(), refresh: w.refresh, stop: w.stop}
		b.cause, b.outcomes, w.again, w.refresh = "", nil, false, false
		w.mu.Unlock()

		gone := w.cfg.Context.Err() == nil && w.turn(look)

		w.mu.Lock()
		if gone && len(w.flights()) == 0 && !w.again {
			w.retired, w.turning = true, false
			w.stopTimer()
			w.mu.Unlock()
			w.cfg.Gate.Leave(w.ref.UID)
			w.cfg.Gone(w.ref.UID)
			return
		}
		if !w.again || w.cfg.Context.Err() != nil {
			w.turning = false
			if w.cfg.Context.Err() != nil {
				w.stopTimer()
			}
			if len(b.flights) == 0 && len(b.outcomes) == 0 {
				w.busy = nil
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// engage returns what goes on, to be added to. It is called with the lock held.
func (w *Worker) engage() *busy {
	if w.busy == nil {
		w.busy = &busy{}
	}
	return w.busy
}

// flights is called with the lock held.
func (w *Worker) flights() []flight {
	if w.busy == nil {
		return nil
	}
	return w.busy.flights
}

// stopTimer is called with the lock held.
func (w *Worker) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// arm sets the one timer to the plan's next look.
func (w *Worker) arm(at, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimer()
	if at.IsZero() || w.retired {
		return
	}
	// A wake-up in the past means now; a millisecond keeps a mistaken plan from taking the processor.
	w.timer = time.AfterFunc(max(time.Millisecond, at.Sub(now)), func() { w.Look("timer") })
}
