package podworker

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

// glance is the part of a turn's input that other goroutines write. run takes it under the lock.
type glance struct {
	cause    string
	outcomes []pod.Outcome
	asks     []func(*Turn)
	export   bool
	inFlight []pod.Action
	refresh  bool
	stop     *decide.Stop
}

// turn takes one turn of the worker: it reads the input, decides, begins the planned actions and reports the result. It returns true
// if nothing is left of the pod.
func (w *Worker) turn(look glance) (gone bool) {
	began := time.Now()
	uid := w.ref.UID
	desired, source := w.cfg.Desired.Get(uid)
	obs, stamp := w.cfg.Cache.Get(uid)
	w.learnRef(desired, obs)
	w.rouse()
	w.load(desired)
	if stamp.IsZero() {
		// The agent has not listed the runtime's pods yet, so it does not know whether anything of this pod runs. The first relist makes
		// every worker look again.
		w.postpone(look)
		w.answer(&look, &Turn{Ref: w.ref, Desired: desired, Source: source, Observed: obs, Memory: w.memory, Plan: &decide.Plan{}, Now: began})
		return false
	}
	w.forgetting = slices.ContainsFunc(look.inFlight, func(a pod.Action) bool { return a.Op == pod.OpForget })
	w.learn(look, desired, began)
	if w.memory.Halt(look.stop) {
		w.checkpoint()
	}
	if desired != nil {
		decide.Meet(w.memory, desired, obs)
		w.cfg.Host.Probe(desired, obs, w.memory, &w.work.probed)
		if wait := w.admit(desired, obs); wait {
			plan := decide.Plan{Phase: decide.PhaseActive, Why: decide.WhyNotAdmitted, WakeAt: began.Add(askAgain)}
			w.record(look.cause, began, timeline.BandWaiting, &plan)
			w.arm(plan.WakeAt, began)
			w.answer(&look, &Turn{
				Ref: w.ref, Desired: desired, Source: source, Observed: obs, Memory: w.memory, Plan: &plan, Looked: true, Now: began,
			})
			return false
		}
	}
	accepted := w.accept(desired, began)
	node := w.cfg.Host.Node(w.ref)
	in := decide.Input{
		Pod: w.dated(accepted), Observed: obs, Memory: w.memory, Probed: w.work.probed, InFlight: look.inFlight,
		Stale:  !stamp.After(w.memory.LastOutcome),
		Hashes: w.hashesOf(accepted), Sizes: w.work.sizes, Node: node, Policy: w.cfg.Policy(), Now: began,
	}
	if accepted == nil {
		in.LastGrace = w.cfg.Desired.LastGrace(uid)
	}
	plan := decide.Decide(&in)
	export := w.export(&in, &plan, &look)
	begins := plan.Ending && w.memory.StopBegan.IsZero()
	if decide.Remember(w.memory, &plan) {
		w.checkpoint()
	}
	if begins && desired != nil { // liveness and startup probes end now, because the next turn may come only after a long hook
		w.cfg.Host.Probe(desired, obs, w.memory, &w.work.probed)
	}
	w.pace(&in, &plan)
	w.record(look.cause, began, w.band(&in, &plan), &plan)
	w.begin(accepted, obs, &plan)
	turn := Turn{
		Ref: w.ref, Pod: accepted, Desired: desired, Source: source, Observed: obs, Memory: w.memory, Probed: w.work.probed,
		Plan: &plan, Node: node, Outcomes: look.outcomes, Queued: w.queued && !w.gated, Looked: true, Now: began, Export: export,
	}
	w.cfg.Reporter.Turn(&turn)
	w.answer(&look, &turn)
	refreshAt, _ := w.refreshAt(look.inFlight)
	w.arm(earliest(earliest(plan.WakeAt, w.work.askAt), refreshAt), began)
	if len(plan.Do) == 0 && len(look.inFlight) == 0 && !w.queued && !in.Stale { // an inspection that is under way causes the next turn
		w.settle()
	}
	return plan.Phase == decide.PhaseGone
}

// learn stores the outcomes of actions in the memory, and requests another set-up of the volumes if they may show old objects.
func (w *Worker) learn(look glance, desired *v1.Pod, now time.Time) {
	learnt := false
	for _, o := range look.outcomes {
		learnt = decide.Note(w.memory, desired, o, w.cfg.Policy()) || learnt
		w.recordOutcome(o)
	}
	if learnt {
		w.checkpoint()
	}
	if w.downwardChanged(desired) || look.refresh {
		w.owed = true
	}
	if at, owed := w.refreshAt(look.inFlight); owed && !at.After(now) {
		w.owed = false
		w.refreshes = w.refreshes.and(now)
		w.memory.Refresh()
	}
}

// answer passes the turn to each function that waits for the result of a turn.
func (w *Worker) answer(look *glance, t *Turn) {
	if t.Queued && len(look.asks) > 0 {
		t.Place, t.Waiting = w.cfg.Gate.Place(w.ref.UID)
	}
	for _, see := range look.asks {
		see(t)
	}
}

// postpone stores the input of this turn for the next turn.
func (w *Worker) postpone(look glance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.engage()
	b.outcomes = append(look.outcomes, b.outcomes...)
	w.refresh = w.refresh || look.refresh
}

// downwardChanged reports whether the labels, annotations or spec that a downward API volume shows have changed since the last turn.
func (w *Worker) downwardChanged(p *v1.Pod) bool {
	before := w.lastPod
	if p == before || p == nil {
		return false
	}
	w.lastPod = p
	return before != nil && tellsOfPod(p) && (!maps.Equal(p.Labels, before.Labels) || !maps.Equal(p.Annotations, before.Annotations) ||
		p.Generation != before.Generation)
}

// tellsOfPod reports whether the pod has a downward API volume.
func tellsOfPod(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.DownwardAPI != nil {
			return true
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.DownwardAPI != nil }) {
			return true
		}
	}
	return false
}

// earliest returns the earlier of two times; a zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// learnRef fills in the name of a pod that the worker knew only by its UID.
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

// load reads the checkpoint in the first turn. If it cannot be read, the fields that only a checkpoint keeps, such as back-off and
// admission, are lost; the others come from the runtime and the API status.
func (w *Worker) load(desired *v1.Pod) {
	if w.loaded {
		return
	}
	w.loaded = true
	m, err := w.cfg.Checkpoints.Load(w.ref.UID)
	if err != nil {
		w.cfg.Log.Error("checkpoint not read; going on without it", "pod", w.ref, "err", err)
	}
	now := time.Now()
	if m != nil {
		w.memory = decide.Load(m, now, w.cfg.Policy())
		if desired != nil && pod.IsStatic(desired) {
			w.memory = w.memory.Revive()
		}
	}
	if w.memory.StartTime.IsZero() {
		w.memory.StartTime = now
		// The status of a static pod does not count, because it comes from the mirror, which other clients may write.
		if desired != nil && desired.Status.StartTime != nil && !pod.IsStatic(desired) {
			w.memory.StartTime = w.dated(desired).Status.StartTime.Time
		}
	}
	w.cfg.Host.Loaded(w.ref.UID, w.memory.Allocated)
}

// dated returns the pod with the instant at which it started, instead of the time that its status shows, so that decisions can compare it with
// others. If the node's clock is right, both are the same, and dated returns p. p may be nil.
func (w *Worker) dated(p *v1.Pod) *v1.Pod {
	if p == nil || p.Status.StartTime == nil {
		return p
	}
	at := w.cfg.Clock.Instant(p.Status.StartTime.Time)
	if at.Equal(p.Status.StartTime.Time) {
		return p
	}
	own, started := *p, metav1.NewTime(at)
	own.Status.StartTime = &started
	return &own
}

// askAgain is how soon the worker asks the node again whether it takes a pod or accepts a resize, if the node could not decide yet.
const askAgain = time.Second

// admit asks the node once whether it takes a pod that it has never run. A pod that has a sandbox or a container is not asked about,
// because an earlier agent has admitted it. wait is true if the node cannot decide yet.
func (w *Worker) admit(p *v1.Pod, obs *pod.Observed) (wait bool) {
	m := w.memory
	if m.Admitted || m.Stop != nil || m.Orphaned { // an orphan ends, even if a source has it again
		return false
	}
	var refused *decide.Stop
	finished := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if obs.Empty() && !finished && p.DeletionTimestamp == nil {
		if refused, wait = w.cfg.Host.Admit(p); wait {
			return true
		}
	}
	m.Halt(refused)
	if m.Admitted = refused == nil; m.Admitted {
		m.Allocated = pod.AllocationOf(p)
		if !obs.Empty() { // an earlier agent admitted the pod, and the checkpoint is lost
			m.Allocated = pod.AllocationFromStatus(p)
		}
	}
	w.checkpoint()
	return false
}

// checkpoint writes the checkpoint. If that fails, it only logs the error.
func (w *Worker) checkpoint() {
	if w.forgetting || w.memory.Forgotten { // writing would create the pod's directory again
		return
	}
	if err := w.cfg.Checkpoints.Save(w.ref.UID, w.memory); err != nil {
		w.cfg.Log.Error("checkpoint not written", "pod", w.ref, "err", err)
	}
}

// inFlight returns the actions in flight. It is called with the lock held.
func (w *Worker) inFlight() []pod.Action {
	var out []pod.Action
	for _, f := range w.flights() {
		out = append(out, f.action)
	}
	return out
}

// hashesOf returns the spec hashes of the containers, and sets the sizes. It computes them once per object, because the watch delivers a
// new object for every change. settle drops them when the pod comes to rest.
func (w *Worker) hashesOf(p *v1.Pod) map[string]string {
	if p == nil {
		w.work.sizes = nil
		return nil
	}
	if w.work.hashedPod != p {
		w.work.sizes = w.cfg.Sizes(p)
		h := make(map[string]string, len(p.Spec.Containers)+len(p.Spec.InitContainers))
		for i := range p.Spec.InitContainers {
			h[p.Spec.InitContainers[i].Name] = w.cfg.Hash(p, &p.Spec.InitContainers[i])
		}
		for i := range p.Spec.Containers {
			h[p.Spec.Containers[i].Name] = w.cfg.Hash(p, &p.Spec.Containers[i])
		}
		w.work.hashedPod, w.work.hashes = p, h
	}
	return w.work.hashes
}
