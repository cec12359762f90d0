package evictor

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/node/syncloop"
)

// reasonThresholdMet is the reason of the node's event when a threshold is met.
const reasonThresholdMet = "EvictionThresholdMet"

// These constants limit the work that may take long and therefore runs in a goroutine of its own, and how often a resource gets an event.
const (
	deadWithin    = 10 * time.Second // time for the removal of dead containers
	imagesWithin  = time.Minute      // time for the removal of unused images
	measureWithin = 30 * time.Second // time for the measurement of pods' files on disk
	// sayNext is the shortest time between the events of two shortages of one resource, and sayAgain the time between two events of the same
	// shortage. A Node gets only a few warnings per hour, and other parts of the agent need them too.
	sayNext  = 5 * time.Minute
	sayAgain = 15 * time.Minute
)

// Pods are the pods of the node.
type Pods interface {
	// Settled reports whether the agent knows the pods of the node and has read their checkpoints.
	Settled() bool
	// Holders returns the pods that use memory, disk or processes of the node.
	Holders() []syncloop.Holder
	// Holds reports whether something of a pod still runs or is mounted.
	Holds(uid types.UID) bool
	// Evict ends a pod. It returns false if the node has already decided to end the pod.
	Evict(p *v1.Pod, e syncloop.Eviction) bool
	// RemoveDead removes dead containers, waits for the removals, and returns the number of removed containers.
	RemoveDead(ctx context.Context) int
}

// Config configures an Evictor. All functions may be called concurrently, except Signals and Usage, which are called by one round at a
// time.
type Config struct {
	// Policy is the first policy; SetPolicy replaces it.
	Policy evict.Policy
	// Signals reads the signals that have thresholds. A signal that cannot be read is absent. The function must be cheap.
	Signals func(ctx context.Context) pressure.Signals
	// Layout returns which file systems the node has. It must not block.
	Layout func() evict.Layout
	Pods   Pods
	// Usage measures what pods use: either disks, or memory and processes. A pod that cannot be measured is absent; of a pod that can be
	// measured in part, the result says so. A measurement of disks may take long, and must not use an older result: the disk has changed
	// since the last eviction.
	Usage func(ctx context.Context, pods []*v1.Pod, use evict.Use) map[types.UID]*evict.Usage
	// RemoveImages removes all unused images. It returns their number and their size. Nil: nothing is removed.
	RemoveImages func(ctx context.Context) (images int, bytes uint64, err error)
	// Spare reports whether what no container uses may be removed although the pods are not settled (evict.Input.Spare); nil: it may not.
	Spare func() bool
	// NodeEvent records an event on the node.
	NodeEvent func(eventType, reason, message string)
	// Changed is called when a condition has changed. It must not block.
	Changed func()
	// Acted is called when a pod is evicted, with the signal and the age of its measurement; nil: not called.
	Acted func(signal string, age time.Duration)
	Log   *slog.Logger
}

// Evictor performs evictions and knows the node's pressure conditions. Create it with New, then call Run once.
type Evictor struct {
	cfg    Config
	rounds *rounds.Rounds

	mu     sync.Mutex
	policy *evict.Policy   // the policy is never changed; a new one replaces it
	result pressure.Result // the newest result
	known  bool            // result has been set
	found  []finding       // the results of besideRounds that no round has read yet

	// Only the rounds use these fields. Other goroutines (see besideRounds) add their results to found.
	state   evict.State
	tried   *evict.Tried
	removed time.Time     // when the last removal ended that removed anything
	doing   map[step]bool // what was logged about the thresholds that are met
	said    map[v1.ResourceName]said
	busy    bool
	// unsettled is when the first round was that did not know the pods; zero: the pods are known.
	unsettled time.Time
	disks     map[types.UID]*evict.Usage
	beside    sync.WaitGroup
}

// finding is the result of work that besideRounds ran: a removal (tried) or a measurement of disks. One of the fields is set.
type finding struct {
	tried *evict.Tried
	disks map[types.UID]*evict.Usage
	at    time.Time // when the work ended
}

// step is what a plan does about a threshold: one line of the log.
type step struct{ threshold, what string }

// said is when the last event about a resource was recorded, and whether the shortage has ended since then.
type said struct {
	at   time.Time
	over bool
}

// New returns an Evictor; it starts nothing.
func New(cfg Config) *Evictor {
	e := &Evictor{cfg: cfg, policy: &cfg.Policy, doing: map[step]bool{}, said: map[v1.ResourceName]said{}}
	e.rounds = rounds.New(e.turn)
	return e
}

// SetPolicy replaces the policy and begins a round with it. It does not block.
func (e *Evictor) SetPolicy(p evict.Policy) {
	e.mu.Lock()
	e.policy = &p
	e.mu.Unlock()
	e.Wake()
}

// Policy returns the policy in effect. It must not be changed.
func (e *Evictor) Policy() *evict.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.policy
}

// Wake begins a round at once. It does not block.
func (e *Evictor) Wake() { e.rounds.Wake() }

// Pressure returns the newest measured pressure. If nothing was measured yet, it measures; otherwise it does no IO.
func (e *Evictor) Pressure(ctx context.Context) pressure.Result {
	if r, known := e.last(); known {
		return r
	}
	policy := e.Policy()
	r := pressure.Evaluate(pressure.Input{
		Signals: e.cfg.Signals(ctx), Thresholds: policy.Thresholds, TransitionPeriod: policy.TransitionPeriod, Now: time.Now(),
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known { // otherwise a round has set the result already
		e.result, e.known = r, true
	}
	return e.result
}

// Newest returns the newest measured pressure, or the zero value if nothing was measured yet. It does no IO.
func (e *Evictor) Newest() pressure.Result {
	r, _ := e.last()
	return r
}

func (e *Evictor) last() (pressure.Result, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result, e.known
}

// Begin performs rounds in the background until ctx ends. It returns at once; join waits until the rounds have ended, and the
// goroutines of besideRounds too.
func (e *Evictor) Begin(ctx context.Context) (join func()) {
	ended := e.rounds.Begin(ctx)
	return func() {
		ended()
		e.beside.Wait()
	}
}

// Run calls Begin, and returns when ctx and the rounds have ended. Unlike Begin, it blocks.
func (e *Evictor) Run(ctx context.Context) error { return rounds.Until(ctx, e.Begin) }

// turn takes over the results of besideRounds from the field found, and performs a round.
func (e *Evictor) turn(ctx context.Context) time.Duration {
	e.mu.Lock()
	found := e.found
	e.found = nil
	e.mu.Unlock()
	for _, f := range found {
		e.busy = false
		if f.tried != nil {
			e.tried = f.tried.After(e.tried)
			if f.tried.Containers+f.tried.Images > 0 {
				e.removed = f.at
			}
		}
		e.disks = f.disks
	}
	return e.round(ctx)
}

// round measures the signals, makes a decision, and begins the actions of the decision. It returns the time until the next round.
func (e *Evictor) round(ctx context.Context) time.Duration {
	policy := e.Policy()
	in := evict.Input{Policy: policy, Busy: e.busy, Tried: e.tried, Removed: e.removed, Previous: e.state, Hold: !e.cfg.Pods.Settled()}
	in.Spare = in.Hold && e.cfg.Spare != nil && e.cfg.Spare()
	if v := e.state.Victim(); v != "" {
		in.VictimEnded = !e.cfg.Pods.Holds(v) // called before Signals, so that the signals include what an ended victim freed
	}
	in.Signals, in.Now = e.cfg.Signals(ctx), time.Now()
	if short(in.Signals, policy.Thresholds) {
		in.Layout = e.cfg.Layout()
	}
	if e.disks != nil {
		in.Pods, in.Measured = e.pods(ctx, evict.DiskUse)
		e.disks = nil
	}
	for {
		plan := evict.Decide(in)
		if plan.Forget {
			e.tried, in.Tried = nil, nil
		}
		if e.state.Victim() != plan.State.Victim() {
			in.VictimEnded = false
		}
		e.state, in.Previous = plan.State, plan.State
		e.publish(&plan)
		switch {
		case plan.Reclaim != 0:
			e.announce(&plan, in.Now)
			e.besideRounds(ctx, func(ctx context.Context) finding { return finding{tried: e.reclaim(ctx, plan.Reclaim)} })
			in.Busy = true
		case plan.Measure == evict.DiskUse:
			e.announce(&plan, in.Now)
			pods := e.cfg.Pods.Holders()
			e.besideRounds(ctx, func(ctx context.Context) finding { return finding{disks: e.measureDisks(ctx, pods)} })
			in.Busy = true
		case plan.Measure != 0:
			e.announce(&plan, in.Now)
			in.Pods, in.Measured = e.pods(ctx, plan.Measure)
		case plan.Evict != nil:
			e.evict(&plan, in.Now)
			return e.next(&plan, &in)
		default:
			return e.next(&plan, &in)
		}
	}
}

// short reports whether any threshold is met. Only then does a decision need the layout of the disks.
func short(s pressure.Signals, thresholds []pressure.Threshold) bool {
	return slices.ContainsFunc(thresholds, func(t pressure.Threshold) bool {
		seen, ok := s.Read(t.Signal)
		return ok && seen.Available < t.Wanted(seen.Capacity)
	})
}

// leastWait is the shortest time between two rounds. unsettled is the longest time between two rounds until the node knows its pods.
const (
	leastWait = 50 * time.Millisecond
	unsettled = time.Second
)

func (e *Evictor) next(p *evict.Plan, in *evict.Input) time.Duration {
	wait := evict.Interval(in.Policy, in.Signals)
	switch settled := e.cfg.Pods.Settled(); {
	case !settled:
		if e.unsettled.IsZero() {
			e.unsettled = in.Now
		}
		wait = min(wait, unsettled)
	case !e.unsettled.IsZero(): // the rounds go on as if the first one had known the pods: what is short is noticed at the same time in each run of a simulation
		wait -= in.Now.Sub(e.unsettled) % wait
		e.unsettled = time.Time{}
	}
	if !p.WakeAt.IsZero() {
		wait = min(wait, time.Until(p.WakeAt))
	}
	return max(wait, leastWait)
}

// publish stores the pressure conditions of a plan. It logs a change of the conditions, and what the plan does about a threshold (unless it
// evicts a pod, which evict logs). While a threshold stays met, the node may try the same steps again and again; each is logged once, and
// once more after each eviction.
func (e *Evictor) publish(p *evict.Plan) {
	e.mu.Lock()
	changed := e.known && (e.result.Memory != p.Pressure.Memory || e.result.Disk != p.Pressure.Disk || e.result.PID != p.Pressure.PID)
	e.result, e.known = p.Pressure, true
	e.mu.Unlock()
	if changed {
		e.cfg.Log.Info("pressure", "memory", p.Pressure.Memory, "disk", p.Pressure.Disk, "pid", p.Pressure.PID)
		e.cfg.Changed()
	}
	e.forget(p.Pressure.Met)
	for _, c := range p.Stuck {
		e.log(c.Threshold, "stuck", evict.NoPod(c))
	}
	switch s := p.For.Threshold; {
	case s.Signal == "":
	case p.Evict != nil:
		maps.DeleteFunc(e.doing, func(done step, _ bool) bool { return done.threshold == s.String() })
	default:
		e.log(s, fmt.Sprint(p.Reclaim, p.Measure, p.Pause, p.State.Victim()), p.Why)
	}
}

// log writes what the node does about a threshold, unless it has done so before. what identifies the step.
func (e *Evictor) log(t pressure.Threshold, what, why string) {
	s := step{t.String(), what}
	if !e.doing[s] {
		e.doing[s] = true
		e.cfg.Log.Info("eviction", "for", s.threshold, "what", why)
	}
}

// forget notes which shortages have ended.
func (e *Evictor) forget(met []pressure.Crossing) {
	maps.DeleteFunc(e.doing, func(s step, _ bool) bool {
		return !slices.ContainsFunc(met, func(c pressure.Crossing) bool { return c.Threshold.String() == s.threshold })
	})
	for resource, last := range e.said {
		if !slices.ContainsFunc(met, func(c pressure.Crossing) bool { return c.Threshold.Signal.Resource() == resource }) {
			last.over = true
			e.said[resource] = last
		}
	}
}

// announce records the node's event for a threshold that is met.
func (e *Evictor) announce(p *evict.Plan, now time.Time) {
	resource := p.For.Threshold.Signal.Resource()
	if last, ok := e.said[resource]; ok {
		wait := sayAgain
		if last.over {
			wait = sayNext
		}
		if now.Sub(last.at) < wait {
			return
		}
	}
	e.said[resource] = said{at: now}
	e.cfg.NodeEvent(v1.EventTypeWarning, reasonThresholdMet, evict.ThresholdMet(p.For))
}

// besideRounds runs do, which may take long, in a goroutine of its own, and adds the result to found. The caller makes sure that no earlier
// call still runs.
func (e *Evictor) besideRounds(ctx context.Context, do func(ctx context.Context) finding) {
	e.busy = true
	e.beside.Go(func() {
		f := do(ctx)
		f.at = time.Now()
		e.mu.Lock()
		e.found = append(e.found, f)
		e.mu.Unlock()
		e.Wake()
	})
}

// reclaim removes dead containers, unused images, or both: steps is a set of bits that says which.
func (e *Evictor) reclaim(ctx context.Context, steps evict.Step) *evict.Tried {
	t := &evict.Tried{}
	if steps&evict.DeadContainers != 0 {
		bounded, cancel := context.WithTimeout(ctx, deadWithin)
		t.Containers = e.cfg.Pods.RemoveDead(bounded)
		cancel()
	}
	if steps&evict.UnusedImages != 0 && e.cfg.RemoveImages != nil {
		bounded, cancel := context.WithTimeout(ctx, imagesWithin)
		var err error
		t.Images, t.Bytes, err = e.cfg.RemoveImages(bounded)
		t.More = bounded.Err() != nil
		cancel()
		if err != nil {
			t.Err = err.Error()
		}
	}
	level := slog.LevelInfo
	if t.Containers+t.Images == 0 && t.Err == "" {
		level = slog.LevelDebug // a shortage that cannot be relieved is tried again and again
	}
	e.cfg.Log.Log(ctx, level, "removed to free disk space", "containers", t.Containers, "images", t.Images, "bytes", t.Bytes, "more", t.More, "err", t.Err)
	return t
}

// measureDisks measures the disk usage of pods. The result is never nil, because nil in finding means that there was no measurement.
func (e *Evictor) measureDisks(ctx context.Context, pods []syncloop.Holder) map[types.UID]*evict.Usage {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	if use := e.cfg.Usage(ctx, objects(pods), evict.DiskUse); use != nil {
		return use
	}
	return map[types.UID]*evict.Usage{}
}

func objects(pods []syncloop.Holder) []*v1.Pod {
	out := make([]*v1.Pod, len(pods))
	for i := range pods {
		out[i] = pods[i].Pod
	}
	return out
}

// pods returns the pods that use resources now, and their use. It measures memory and processes. The use of disks comes from the
// last result of measureDisks.
func (e *Evictor) pods(ctx context.Context, use evict.Use) ([]evict.Pod, evict.Use) {
	held := e.cfg.Pods.Holders()
	usage := e.disks
	if use != evict.DiskUse {
		use = evict.MemoryUse | evict.ProcessUse
		usage = e.cfg.Usage(ctx, objects(held), use)
	}
	out := make([]evict.Pod, len(held))
	for i, h := range held {
		out[i] = evict.Pod{Pod: h.Pod, Usage: usage[h.Pod.UID], EndsBy: h.EndsBy}
	}
	return out, use
}

// evict evicts the pod of a plan.
func (e *Evictor) evict(p *evict.Plan, measured time.Time) {
	v := p.Evict
	name := v.Pod.Namespace + "/" + v.Pod.Name
	signal := string(p.For.Threshold.Signal)
	if e.cfg.Acted != nil {
		e.cfg.Acted(signal, time.Since(measured))
	}
	if e.cfg.Pods.Evict(v.Pod, syncloop.Eviction{Signal: signal, Message: v.Message, Annotations: v.Annotations, Grace: v.Grace, AtOnce: v.AtOnce, Why: v.Why}) {
		e.cfg.Log.Warn("pod evicted", "pod", name, "why", v.Why, "grace", v.Grace, "killedAtOnce", v.AtOnce)
	}
}
