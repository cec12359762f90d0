package podworker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/stack"
	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

// Cache is the pod cache, which has the newest inspection of every pod. Both calls return at once and may come from many workers at a time.
type Cache interface {
	// Get returns the newest inspection (never nil) and its stamp; zero: the pod has not been inspected yet.
	Get(uid types.UID) (*pod.Observed, time.Time)
	// Inspect asks for an inspection that begins after the call; the worker looks again when that inspection is done. Inspect returns
	// the time of the call: an inspection has a later stamp if and only if it began after the call. Inspect must not call the worker
	// before it returns.
	Inspect(uid types.UID) time.Time
}

// Desired is the set of desired pods. Get returns nil for a pod that no source has.
type Desired interface {
	Get(uid types.UID) (*v1.Pod, pod.Source)
	// LastGrace returns the grace period, in seconds, of the deletion that removed a pod; nil: unknown (see decide.Input.LastGrace).
	LastGrace(uid types.UID) *int64
}

// Performer performs one action and returns its outcome. It blocks. If ctx is cancelled, it ends early where the action allows
// that. Actions of one pod run concurrently unless the decision orders them. Performing an action twice must be harmless.
type Performer interface {
	Do(ctx context.Context, job pod.Job) pod.Outcome
}

// Reporter reports the result of a turn as status and events. It must not block.
type Reporter interface {
	// Turn is called at the end of every turn.
	Turn(t *Turn)
}

// Host is the node as a worker sees it. All calls must return at once, except Admit and Resize, which may measure the node first and then
// wait for the admission of another pod, but never for another pod's IO.
type Host interface {
	// Loaded is called once, when the worker has read its checkpoint, before any other call. allocated has the resources that an
	// earlier agent allocated to the pod; nil: unknown.
	Loaded(uid types.UID, allocated *pod.Allocation)
	// Node returns the state of the node that the decision about this pod needs.
	Node(ref pod.Ref) decide.Node
	// Admit decides whether the node takes a pod that it has never run. refused is nil if the node takes it. wait is true if the node
	// cannot decide yet, for example because other pods have to end first; the worker asks again later.
	Admit(p *v1.Pod) (refused *decide.Stop, wait bool)
	// Resize decides whether the node accepts the resources that the spec asks for, beyond what is allocated to the pod. If ok is false,
	// the node cannot decide yet, and the worker asks again later. The node decides about a deferred resize again when other pods end.
	Resize(p *v1.Pod, allocated *pod.Allocation) (r admit.ResizeResult, ok bool)
	// Probe starts and stops probes so that they match the running containers, and sets results to their present results. It only
	// reads the memory m.
	Probe(p *v1.Pod, obs *pod.Observed, m *decide.Memory, results *decide.ProbeResults)
}

// Checkpoints stores the part of a pod's Memory that the next agent needs (Memory.Kept).
type Checkpoints interface {
	// Load returns nil if the pod has no checkpoint.
	Load(uid types.UID) (*decide.Memory, error)
	Save(uid types.UID, m *decide.Memory) error
}

// Config is shared by all workers of an agent.
type Config struct {
	Context     context.Context // the agent's context; its end cancels every action
	Group       *sync.WaitGroup // the agent's group, which counts every goroutine of a worker
	Cache       Cache
	Desired     Desired
	Performer   Performer
	Reporter    Reporter
	Host        Host
	Checkpoints Checkpoints
	Gate        *Gate
	// Policy returns the policy of the node. It is called in every turn, and the value is never changed; a new policy replaces
	// it.
	Policy func() *decide.Policy
	// Hash returns a version-stable hash of the fields of a container whose change requires a restart.
	Hash func(p *v1.Pod, c *v1.Container) string
	// Sizes returns the resources of the pod's cgroup and of its containers (crispec.Sizes).
	Sizes func(p *v1.Pod) []pod.NamedSize
	// Clock is the node's clock, for the times of objects.
	Clock nodeclock.Clock
	// Gone is called when nothing of the pod is left and no source has it.
	Gone func(uid types.UID)
	// WentWrong is called with each turn in which something of a pod went wrong (replay.Wrong). It must not block, and may keep t.
	// Nil: nobody wants these turns.
	WentWrong func(t *replay.Turn)
	Log       *slog.Logger
}

// Turn is the input and the result of one turn.
type Turn struct {
	Ref      pod.Ref
	Pod      *v1.Pod // the pod with the resources that the node has accepted; nil: no source has the pod
	Desired  *v1.Pod // the object as the source has it, with the resources of the spec
	Source   pod.Source
	Observed *pod.Observed
	Memory   *decide.Memory      // valid only until the function that receives the Turn returns
	Probed   decide.ProbeResults // valid only until the function that receives the Turn returns
	Plan     *decide.Plan
	Node     decide.Node
	Outcomes []pod.Outcome // the outcomes since the last turn
	Queued   bool          // the pod waits until other pods have started
	Place    int           // set for Ask if Queued is true: the pod's place in the queue of the Gate; 1: it is the next
	Waiting  int           // set for Ask if Queued is true: the length of that queue
	Looked   bool          // the agent has listed the runtime's pods; false: the turn has decided nothing, and Plan is empty
	Now      time.Time
	Export   *replay.Turn // the input and the plan of the turn for an export; nil: nobody asked for them (AskExport), or the turn decided nothing
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

	// Most pods of a node are at rest, so a worker at rest keeps little: busy, memory and work are nil, and rest holds the
	// memory in compact form.
	mu      sync.Mutex
	turning bool
	again   bool
	retired bool
	refresh bool // the next turn sets the volumes up again
	busy    *busy
	timer   *time.Timer
	stop    *decide.Stop // why the node ends the pod; a turn copies it into memory

	// Only a turn reads and writes the fields below.
	memory     *decide.Memory
	work       *work
	rest       *resting
	loaded     bool
	queued     bool // the pod has a slot of the Gate or waits for one
	gated      bool // the pod has a slot of the Gate
	forgetting bool // the action OpForget is in flight or done: no file may be written
	owed       bool // the volumes have to be set up again
	refreshes  *refreshes
	turned     bool // the timeline has at least one decision
	lastPhase  decide.Phase
	lastBand   timeline.Band
	lastText   string  // the text of the last decision in the timeline
	lastPod    *v1.Pod // the pod's object at the last turn, to detect changes that downward API volumes show
	wanted     *v1.Pod // the source's object of the pod at the last turn
	accepted   *v1.Pod // wanted, with the resources that the node has accepted

	ring timeline.Ring
}

// busy is the state of a worker that has actions in flight, or outcomes and causes for the next turn.
type busy struct {
	cause    string
	flights  []flight
	outcomes []pod.Outcome
	asks     []func(*Turn) // called in the next turn; see Ask
	export   bool          // the next turn fills Turn.Export
}

// work is the state that a worker keeps from one turn to the next while its pod is not at rest: an action is planned or in flight, or
// the pod waits for a slot of the Gate. When the pod comes to rest, the worker drops everything except probed.
type work struct {
	gatedAt   time.Time // when the pod asked the Gate for a slot
	started   bool      // the pod has begun to start something since it got its slot
	hashedPod *v1.Pod   // the object that hashes and sizes belong to
	hashes    map[string]string
	sizes     []pod.NamedSize
	askAt     time.Time // when to ask the node again about a resize
	// probed has the results of the probes. It cannot be computed again, so a pod at rest keeps it, in rest or here.
	probed decide.ProbeResults
}

// flight is an action that has begun and has no outcome yet.
type flight struct {
	action   pod.Action // the action as in the plan; it identifies the flight
	began    time.Time
	canceled bool
	cancel   context.CancelFunc
}

// New returns a resting worker.
func New(cfg *Config, ref pod.Ref) *Worker { return &Worker{cfg: cfg, ref: ref} }

// Next returns a new worker for a pod that a source has again after Gone was called for this worker. The attempts of containers
// continue, so that no two containers of one name and pod ever have the same attempt.
func (w *Worker) Next() *Worker {
	next := New(w.cfg, w.Ref())
	w.rouse() // rouse needs no lock, because this worker takes no more turns
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

// Recorded returns how many records were ever added to the timeline.
func (w *Worker) Recorded() int { return w.ring.Added() }

// Tell adds a record to the timeline. It may be called concurrently.
func (w *Worker) Tell(r timeline.Record) { w.ring.Add(r) }

// Ask makes the worker take a turn and call see with it, from the goroutine of the turn. see must not block, and must not keep the fields
// of the Turn that are valid only during the call. A worker that has retired never calls see.
func (w *Worker) Ask(see func(*Turn)) { w.askTurn(see, false) }

// AskExport does the same as Ask, but also sets the field Export of the Turn.
func (w *Worker) AskExport(see func(*Turn)) { w.askTurn(see, true) }

func (w *Worker) askTurn(see func(*Turn), export bool) {
	w.mu.Lock()
	if !w.retired {
		b := w.engage()
		b.asks, b.export = append(b.asks, see), b.export || export
	}
	w.mu.Unlock()
	w.Look("asked why")
}

// UnderWay is an action that has begun and not ended.
type UnderWay struct {
	Action pod.Action `json:"-"`
	What   string     `json:"what"`
	Began  time.Time  `json:"began"`
	For    string     `json:"for"` // how long it has taken so far
}

// UnderWay lists the actions in flight, oldest first. An image pull has no other sign of progress, because the runtime reports
// none.
func (w *Worker) UnderWay() []UnderWay {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []UnderWay
	for _, f := range w.flights() {
		out = append(out, UnderWay{Action: f.action, What: f.action.String(), Began: f.began, For: time.Since(f.began).Round(time.Millisecond).String()})
	}
	return out
}

// Expects reports whether an action in flight causes the change that a hint (a CRI event) announces. The outcome of that action asks
// for an inspection.
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

// Stop ends the pod for a reason of the node, such as preemption. The first reason stays; a later one can only shorten the grace period.
func (w *Worker) Stop(s *decide.Stop) {
	w.mu.Lock()
	if w.stop == nil {
		w.stop = s
	} else {
		w.stop = w.stop.Sooner(s)
	}
	w.mu.Unlock()
	w.Look(s.Reason)
}

// Close retires the worker when the agent stops: a later Look does nothing.
func (w *Worker) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	w.stopTimer()
}

// run takes turns until no Look has asked for another one.
func (w *Worker) run() {
	defer w.cfg.Group.Done()
	stack.Grow()
	for {
		w.mu.Lock()
		// Take outcomes and flights under one lock, so that each action is in exactly one of them.
		b := w.engage()
		look := glance{cause: b.cause, outcomes: b.outcomes, asks: b.asks, export: b.export, inFlight: w.inFlight(), refresh: w.refresh, stop: w.stop}
		b.cause, b.outcomes, b.asks, b.export, w.again, w.refresh = "", nil, nil, false, false, false
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
			if len(b.flights) == 0 && len(b.outcomes) == 0 && len(b.asks) == 0 {
				w.busy = nil
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// engage returns w.busy, and creates it if it is nil. It is called with the lock held.
func (w *Worker) engage() *busy {
	if w.busy == nil {
		w.busy = &busy{}
	}
	return w.busy
}

// flights returns the actions in flight with their state. It is called with the lock held.
func (w *Worker) flights() []flight {
	if w.busy == nil {
		return nil
	}
	return w.busy.flights
}

// stopTimer stops the worker's timer. It is called with the lock held.
func (w *Worker) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// arm sets the worker's one timer: at the time at, the worker looks again. A zero at only stops the timer.
func (w *Worker) arm(at, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimer()
	if at.IsZero() || w.retired {
		return
	}
	// A time in the past means now. The minimum of 1 ms keeps a wrong plan from looping without pause.
	w.timer = time.AfterFunc(max(time.Millisecond, at.Sub(now)), func() { w.Look("timer") })
}
