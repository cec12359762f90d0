package podworker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/timeline"
)

// Cache is the pod cache. Both calls return at once and may come from many workers at a time.
type Cache interface {
	// Get returns the newest inspection (never nil) and its stamp; a zero stamp: not known yet.
	Get(uid types.UID) (*pod.Observed, time.Time)
	// Inspect asks for an inspection that begins after the call; the worker is told to look when it is done.
	Inspect(uid types.UID)
}

// Desired is what the sources want. Get returns nil for a pod that none of them has.
type Desired interface {
	Get(uid types.UID) (*v1.Pod, pod.Source)
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

// Host answers what a turn asks of the node. All calls must return at once, but Admit, which may wait for the
// admission of another pod, never for IO.
type Host interface {
	// Node is the node as this pod must see it.
	Node(ref pod.Ref) decide.Node
	// Admit decides whether the node takes a pod that it has never run: nil, a refusal, or not yet (others have to
	// make room first; the worker is told to look again when they have).
	Admit(p *v1.Pod) (refused *decide.Stop, wait bool)
	// NextRefresh is when the pod's volumes must be set up again though nothing changed; zero: never.
	NextRefresh(p *v1.Pod) time.Time
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
	// Gone is called when nothing of the pod is left and no source has it.
	Gone func(uid types.UID)
	Log  *slog.Logger
}

// Turn is what one turn saw and concluded.
type Turn struct {
	Ref      pod.Ref
	Pod      *v1.Pod // nil: no source has it
	Source   pod.Source
	Observed *pod.Observed
	Memory   *decide.Memory // valid during the call
	Plan     *decide.Plan
	Node     decide.Node
	Outcomes []pod.Outcome // that this turn learned of
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
	ctx context.Context // of the agent: ends every action
	wg  *sync.WaitGroup // of the agent: every goroutine is joined

	mu       sync.Mutex
	turning  bool
	again    bool
	cause    string
	flights  []flight
	outcomes []pod.Outcome
	timer    *time.Timer
	retired  bool
	refresh  bool         // volumes must be set up again
	stop     *decide.Stop // the node's own reason to end the pod, not yet taken up

	// Only a turn touches what follows.
	memory    decide.Memory
	loaded    bool
	gated     bool
	hashedPod *v1.Pod
	hashes    map[string]string
	lastPhase decide.Phase
	lastWhy   pod.Why
	turned    bool
	refreshAt time.Time // when a token is due
	refreshed time.Time // when one last was

	ring timeline.Ring
}

// flight is an action that has begun and has no outcome yet.
type flight struct {
	action   pod.Action // its key
	canceled bool
	cancel   context.CancelFunc
}

// New returns a resting worker. Actions run under ctx and are counted in wg.
func New(ctx context.Context, wg *sync.WaitGroup, cfg *Config, ref pod.Ref) *Worker {
	return &Worker{cfg: cfg, ref: ref, ctx: ctx, wg: wg}
}

// Ref names the worker's pod.
func (w *Worker) Ref() pod.Ref {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ref
}

// Timeline returns the pod's record of decisions, oldest first, and how many older ones were dropped.
func (w *Worker) Timeline() ([]timeline.Record, int) { return w.ring.Records() }

// Look makes the worker look again. It never blocks; cause is for the timeline.
func (w *Worker) Look(cause string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.retired || w.ctx.Err() != nil {
		return
	}
	if w.cause == "" {
		w.cause = cause
	}
	if w.turning {
		w.again = true
		return
	}
	w.turning = true
	w.wg.Add(1)
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

// run takes turns until nobody asked for another.
func (w *Worker) run() {
	defer w.wg.Done()
	for {
		w.mu.Lock()
		// Outcomes and flights are taken together: an action is in one of them or not done yet.
		look := glance{cause: w.cause, outcomes: w.outcomes, inFlight: w.inFlight(), refresh: w.refresh, stop: w.stop}
		w.cause, w.outcomes, w.again, w.refresh = "", nil, false, false
		w.mu.Unlock()

		gone := w.ctx.Err() == nil && w.turn(look)

		w.mu.Lock()
		if gone && len(w.flights) == 0 && !w.again {
			w.retired, w.turning = true, false
			w.stopTimer()
			w.mu.Unlock()
			w.cfg.Gate.Leave(w.ref.UID)
			w.cfg.Gone(w.ref.UID)
			return
		}
		if !w.again || w.ctx.Err() != nil {
			w.turning = false
			if w.ctx.Err() != nil {
				w.stopTimer()
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// stopTimer is called with the lock held.
func (w *Worker) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// glance is what a turn begins with.
type glance struct {
	cause    string
	outcomes []pod.Outcome
	inFlight []pod.Action
	refresh  bool
	stop     *decide.Stop
}

// turn looks once and reports whether nothing is left of the pod.
func (w *Worker) turn(look glance) (gone bool) {
	began := time.Now()
	uid := w.ref.UID
	desired, source := w.cfg.Desired.Get(uid)
	obs, stamp := w.cfg.Cache.Get(uid)
	w.learnRef(desired, obs)
	w.load(desired)
	if stamp.IsZero() {
		// The runtime has never been listed: nothing can be said of the pod, not even that nothing runs. The first
		// listing looks at every pod again.
		w.postpone(look)
		return false
	}
	for _, o := range look.outcomes {
		decide.Note(&w.memory, desired, o, w.cfg.Policy)
		w.recordOutcome(o)
	}
	if look.refresh || w.due(desired, began) {
		w.memory.Refresh()
	}
	if look.stop != nil && w.memory.Stop == nil {
		w.memory.Stop = look.stop
		w.checkpoint()
	}
	if desired != nil {
		w.cfg.Host.Probe(desired, obs, &w.memory)
		if wait := w.admit(desired, obs); wait {
			return false
		}
	}
	node := w.cfg.Host.Node(w.ref)
	in := decide.Input{
		Pod: desired, Observed: obs, Memory: &w.memory, InFlight: look.inFlight,
		Stale:  !stamp.After(w.memory.LastOutcome),
		Hashes: w.hashesOf(desired), Node: node, Policy: w.cfg.Policy, Now: began,
	}
	plan := decide.Decide(&in)
	if decide.Remember(&w.memory, &plan) {
		w.checkpoint()
	}
	w.pace(&in, &plan)
	w.record(look.cause, began, &plan)
	w.begin(desired, obs, &plan)
	w.cfg.Reporter.Turn(&Turn{
		Ref: w.ref, Pod: desired, Source: source, Observed: obs, Memory: &w.memory, Plan: &plan,
		Node: node, Outcomes: look.outcomes, Now: began,
	})
	w.arm(earliest(plan.WakeAt, w.refreshAt), began)
	return plan.Phase == decide.PhaseGone
}

// postpone gives a glance back for the next turn.
func (w *Worker) postpone(look glance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(look.outcomes, w.outcomes...)
	w.refresh = w.refresh || look.refresh
}

// due reports whether a token in the pod's volumes has to be renewed, and notes when the next one has.
func (w *Worker) due(p *v1.Pod, now time.Time) bool {
	if p == nil || !w.memory.SetUp {
		w.refreshAt = time.Time{}
		return false
	}
	w.refreshAt = w.cfg.Host.NextRefresh(p)
	if w.refreshAt.IsZero() || w.refreshAt.After(now) {
		return false
	}
	// A renewal that fails leaves the time in the past: try again, but not at once.
	if again := w.refreshed.Add(refreshRetry); again.After(now) {
		w.refreshAt = again
		return false
	}
	w.refreshed = now
	return true
}

// refreshRetry is the least time between two renewals of one pod's tokens.
const refreshRetry = 10 * time.Second

// earliest is the earlier of two times of which either may be zero: never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// learnRef completes a reference that began as a bare UID.
func (w *Worker) learnRef(desired *v1.Pod, obs *pod.Observed) {
	if w.ref.Name != "" {
		return
	}
	ref := obs.Ref
	if desired != nil {
		ref = pod.RefOf(desired)
	}
	if ref.Name != "" {
		w.mu.Lock()
		w.ref = ref
		w.mu.Unlock()
	}
}

// load reads the checkpoint in the first turn. A checkpoint that cannot be read costs the back-off and the
// admission record, nothing more: the runtime and the API status hold the rest.
func (w *Worker) load(desired *v1.Pod) {
	if w.loaded {
		return
	}
	w.loaded = true
	m, err := w.cfg.Checkpoints.Load(w.ref.UID)
	if err != nil {
		w.cfg.Log.Error("checkpoint not read; going on without it", "pod", w.ref, "err", err)
	}
	if m != nil {
		w.memory = *m
	}
	if w.memory.StartTime.IsZero() {
		w.memory.StartTime = time.Now()
		if desired != nil && desired.Status.StartTime != nil {
			w.memory.StartTime = desired.Status.StartTime.Time
		}
	}
}

// admit asks the node once about a pod that it has never run: "a pod with a sandbox is never admitted again". It
// reports whether the answer has to wait for others to make room.
func (w *Worker) admit(p *v1.Pod, obs *pod.Observed) (wait bool) {
	m := &w.memory
	if m.Admitted || m.Stop != nil {
		return false
	}
	finished := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if obs.Empty() && !finished && p.DeletionTimestamp == nil {
		if m.Stop, wait = w.cfg.Host.Admit(p); wait {
			return true
		}
	}
	m.Admitted = m.Stop == nil
	w.checkpoint()
	return false
}

// checkpoint is a small file written in place of the old; a failure is said and the pod goes on.
func (w *Worker) checkpoint() {
	if err := w.cfg.Checkpoints.Save(w.ref.UID, &w.memory); err != nil {
		w.cfg.Log.Error("checkpoint not written", "pod", w.ref, "err", err)
	}
}

// inFlight is called with the lock held.
func (w *Worker) inFlight() []pod.Action {
	if len(w.flights) == 0 {
		return nil
	}
	out := make([]pod.Action, len(w.flights))
	for i := range w.flights {
		out[i] = w.flights[i].action
	}
	return out
}

// hashesOf computes the spec hashes once per object: the watch hands out a new object for every change.
func (w *Worker) hashesOf(p *v1.Pod) map[string]string {
	if p == nil {
		return nil
	}
	if w.hashedPod != p {
		h := make(map[string]string, len(p.Spec.Containers)+len(p.Spec.InitContainers))
		for i := range p.Spec.InitContainers {
			h[p.Spec.InitContainers[i].Name] = w.cfg.Hash(p, &p.Spec.InitContainers[i])
		}
		for i := range p.Spec.Containers {
			h[p.Spec.Containers[i].Name] = w.cfg.Hash(p, &p.Spec.Containers[i])
		}
		w.hashedPod, w.hashes = p, h
	}
	return w.hashes
}

// paced are the verbs that need a place at the gate. Pulls wait for the network, not for this machine.
func paced(op pod.Op) bool {
	return op == pod.OpSetUp || op == pod.OpRunSandbox || op == pod.OpStartContainer
}

// pace takes starting actions out of the plan of a pod that has no place yet, and gives the place back once there
// is nothing left to start.
func (w *Worker) pace(in *decide.Input, plan *decide.Plan) {
	wants := slices.ContainsFunc(plan.Do, func(a pod.Action) bool { return paced(a.Op) })
	if wants && !w.gated {
		if w.gated = w.cfg.Gate.Enter(w.ref.UID); !w.gated {
			plan.Do = slices.DeleteFunc(plan.Do, func(a pod.Action) bool { return paced(a.Op) })
			plan.Why = "waits for other pods to start first"
		}
		return
	}
	if !w.gated || wants || in.Stale {
		return
	}
	if !slices.ContainsFunc(in.InFlight, func(a pod.Action) bool { return paced(a.Op) }) {
		w.gated = false
		w.cfg.Gate.Leave(w.ref.UID)
	}
}

// begin starts the planned actions, each in a goroutine that ends with its outcome, and cancels what the plan
// cuts short.
func (w *Worker) begin(p *v1.Pod, obs *pod.Observed, plan *decide.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range plan.Cancel {
		for i := range w.flights {
			if w.flights[i].action == key.Key() && !w.flights[i].canceled {
				w.flights[i].canceled = true
				w.flights[i].cancel()
			}
		}
	}
	for _, a := range plan.Do {
		job := pod.Job{Ref: w.ref, Pod: p, Observed: obs, Action: a}
		if c := w.memory.Container(a.Container); c != nil {
			job.ImageRef = c.ImageRef
		}
		ctx, cancel := context.WithCancel(w.ctx)
		w.flights = append(w.flights, flight{action: a.Key(), cancel: cancel})
		w.wg.Add(1)
		go w.perform(ctx, cancel, job)
	}
}

func (w *Worker) perform(ctx context.Context, cancel context.CancelFunc, job pod.Job) {
	defer w.wg.Done()
	began := time.Now()
	o := w.cfg.Performer.Do(ctx, job)
	o.Action, o.Began, o.Ended = job.Action, began, time.Now()
	o.Canceled = o.Err != nil && ctx.Err() != nil
	cancel()
	w.log(job, &o)

	key := job.Action.Key()
	w.mu.Lock()
	w.flights = slices.DeleteFunc(w.flights, func(f flight) bool { return f.action == key })
	w.outcomes = append(w.outcomes, o)
	w.mu.Unlock()
	if job.Action.Op.TouchesRuntime() {
		w.cfg.Cache.Inspect(w.ref.UID)
	}
	w.Look("outcome of " + job.Action.Op.String())
}

// log writes the one line per executed action.
func (w *Worker) log(job pod.Job, o *pod.Outcome) {
	level, args := slog.LevelInfo, []any{"op", job.Action.Op.String(), "pod", job.Ref,
		"why", string(job.Action.Why), "took", o.Ended.Sub(o.Began).Round(time.Millisecond)}
	if job.Action.Container != "" {
		args = append(args, "container", job.Action.Container)
	}
	if o.ID != "" {
		args = append(args, "id", o.ID)
	}
	if o.Err != nil {
		args = append(args, "reason", o.Reason, "err", o.Err)
		if !o.Canceled {
			level = slog.LevelWarn
		}
	}
	w.cfg.Log.Log(context.Background(), level, "action", args...)
}

// arm sets the one timer to the plan's next look.
func (w *Worker) arm(at, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopTimer()
	if at.IsZero() {
		return
	}
	// A wake-up in the past means now; a millisecond keeps a mistaken plan from taking the processor.
	w.timer = time.AfterFunc(max(time.Millisecond, at.Sub(now)), func() { w.Look("timer") })
}

// record notes a turn that decided something: one that says only "go on waiting" leaves no trace.
func (w *Worker) record(cause string, now time.Time, plan *decide.Plan) {
	if w.turned && plan.Phase == w.lastPhase && plan.Why == w.lastWhy && len(plan.Do) == 0 && len(plan.Cancel) == 0 {
		return
	}
	w.turned, w.lastPhase, w.lastWhy = true, plan.Phase, plan.Why
	w.ring.Add(timeline.Record{At: now, Kind: timeline.KindDecision, Cause: cause, What: plan.Phase.String(), Why: string(plan.Why)})
	for _, a := range plan.Cancel {
		w.ring.Add(timeline.Record{At: now, Kind: timeline.KindBegan, What: "cancel " + a.String()})
	}
	for _, a := range plan.Do {
		why := string(a.Why)
		w.ring.Add(timeline.Record{At: now, Kind: timeline.KindBegan, What: a.Key().String(), Why: why})
	}
}

func (w *Worker) recordOutcome(o pod.Outcome) {
	r := timeline.Record{At: o.Ended, Kind: timeline.KindEnded, What: o.Action.Key().String(), Took: o.Ended.Sub(o.Began)}
	if o.Err != nil {
		r.Error = o.Err.Error()
	}
	w.ring.Add(r)
}
