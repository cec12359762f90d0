package pleg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/base/stack"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Runtime has the calls to the container runtime that the generator needs. All calls may run concurrently, but there is at most one
// Inspect per pod at a time.
type Runtime interface {
	// List returns every pod with only IDs, attempts and states.
	List(ctx context.Context) ([]pod.Observed, error)
	// Inspect returns the whole state of one pod. prev is the last inspection of the pod, or nil.
	Inspect(ctx context.Context, uid types.UID, prev *pod.Observed) (pod.Observed, error)
	// Watch subscribes to events. It calls subscribed when the subscription begins, then hint, which must not block, for each event, and
	// once ended when the subscription has failed or ended; it ends with ctx at the latest. The calls come one after another. Watch may
	// return before the subscription begins. If Config.Unsupported returns true for the error, the runtime has no events.
	Watch(ctx context.Context, subscribed func(), hint func(pod.Hint), ended func(error))
}

// Config configures a Generator. Zero durations take the defaults of New.
type Config struct {
	Runtime Runtime
	// Unsupported reports whether an error of Watch means that the runtime has no events, so that every later try would fail too.
	Unsupported func(error) bool
	// Notify is called after an inspection if Generator.Inspect asked for it, if it found a change, or if it was the first of its pod.
	// Notify("") is called after the first relist. Notify must not block.
	Notify func(uid types.UID)
	// Expected, when set, reports whether an action in flight causes the change that the hint announces. Such an action asks for
	// an inspection when it ends. So the generator handles the hint a moment later, and ignores it if the cache shows the change
	// by then. Expected must not block and must not call the Generator.
	Expected func(pod.Hint) bool
	// OnEvent, when set, is called with every life-cycle event that follows from an inspection. The events of one pod come in their order.
	OnEvent func(Event)
	// OnRelist, when set, is called after each relist with the time that it took and its error.
	OnRelist func(took time.Duration, err error)
	// OnInspect, when set, is called after each inspection with the time that it took. It must not block.
	OnInspect func(took time.Duration)
	// OnSubscribe, when set, is called when a subscription to the runtime's events began (true), and when it failed or broke
	// (false). With a runtime that has no events each try fails.
	OnSubscribe func(ok bool)
	// Period is the time between relists while there is no subscription to events (1 s); EventPeriod is the time while there is one (1
	// min).
	Period, EventPeriod time.Duration
	// Threshold is how old the last good relist may be before the generator is unhealthy (3 min).
	Threshold time.Duration
	// OnHung, when set, is called when the set of pods whose inspection hangs changes, also when the set becomes empty. Its argument is
	// what Hung returns. The calls come from one goroutine, at most one per relist.
	OnHung func(hung []pod.Ref)
	// Parallel is how many inspections of healthy pods run at the same time (16).
	Parallel int
	Log      *slog.Logger
}

// Generator maintains the pod cache. Create it with New, then Run it.
type Generator struct {
	cfg Config

	mu       sync.Mutex
	entries  map[types.UID]*entry
	relisted time.Time     // when the last completed relist began
	finished time.Time     // when the last completed relist ended
	begun    time.Time     // when Run began
	interval time.Duration // time between the beginnings of the last two completed relists
	lastErr  error         // error of the last relist; nil: it succeeded
	events   subscription
	marked   map[types.UID]mark
	asked    time.Time // the result of the last call of Inspect
	slots    slots
	listing  call      // the listing of the runtime that is in flight
	hung     []pod.Ref // the last argument of OnHung; only the relists use this field

	relist   *rounds.Rounds // lists the runtime's pods
	dispatch *rounds.Rounds // begins the inspections of marked pods
	// subscribe subscribes to the runtime's events.
	subscribe *rounds.Rounds
	flights   sync.WaitGroup // the inspections in flight and the subscription
}

// entry is one pod of the cache. obs is never nil and never written to after it is published.
type entry struct {
	obs        *pod.Observed
	stamp      time.Time
	inspection *call   // the inspection in flight; nil: none
	failed     *failed // how the last inspection failed; nil: it succeeded
	slow       bool    // the last inspection took longer than the constant named hangs
	hung       bool    // the last inspection took longer than HungFor and failed
}

// call is a call of the runtime in flight; the zero value: none.
type call struct {
	began  time.Time
	cancel context.CancelFunc
	asked  time.Time // when Inspect asked for the inspection in flight; zero: nobody waits for it
}

// failed is an inspection that failed.
type failed struct {
	asked time.Time // when Inspect asked for this inspection; if set, the next successful inspection calls Notify; zero: nobody waits
	why   string    // text of the error, at most whyKept bytes
}

// whyKept bounds the text kept of a runtime error, in bytes. A runtime may send megabytes.
const whyKept = 1 << 10

// mark says that a pod has to be inspected, and why.
type mark struct {
	asked time.Time // when Inspect was last called; zero: nobody waits
	// If must is false, only hints asked for the inspection: it is not needed once the cache shows all changes that they announce.
	hints []pod.Hint
	must  bool
}

// hintsKept is how many hints of one pod are compared with the cache. With more, the pod is inspected in any case.
const hintsKept = 8

// firstListing is how long the first relist may take before Healthy returns an error.
const firstListing = 10 * time.Second

// New returns a Generator; it does no IO.
func New(cfg Config) *Generator {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&cfg.Period, time.Second)
	def(&cfg.EventPeriod, time.Minute)
	def(&cfg.Threshold, 3*time.Minute)
	if cfg.Parallel == 0 {
		cfg.Parallel = 16
	}
	g := &Generator{
		cfg: cfg, slots: slots{healthy: pool{size: cfg.Parallel, hold: holdHealthy}, suspect: pool{size: suspects, hold: holdSuspect}}, entries: map[types.UID]*entry{}, marked: map[types.UID]mark{},
	}
	g.relist, g.dispatch, g.subscribe = rounds.New(g.relistRound), rounds.New(g.dispatchRound), rounds.New(g.subscribeRound)
	return g
}

// Get returns the newest inspection of a pod (never nil) and its stamp. The stamp is zero if the pod has not been inspected yet. For
// a pod that is not in the cache, Get returns an empty inspection with the time of the last relist as its stamp.
func (g *Generator) Get(uid types.UID) (*pod.Observed, time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.entries[uid]; ok {
		return e.obs, e.stamp
	}
	return &pod.Observed{Ref: pod.Ref{UID: uid}, Began: g.relisted}, g.relisted
}

// List returns the newest inspection of every pod that the runtime holds. A pod that has not been inspected yet has only its
// name.
func (g *Generator) List() []*pod.Observed {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*pod.Observed, 0, len(g.entries))
	for _, e := range g.entries {
		if !e.obs.Empty() || e.obs.Ref.Name != "" {
			out = append(out, e.obs)
		}
	}
	return out
}

// Inspect asks for an inspection that begins after this call. Notify is called after that inspection, even if nothing has changed.
// Inspect returns the time of the call. An inspection that begins after the call has a stamp later than this time. An inspection
// that began before the call has an earlier or equal stamp. Both are true even if the clock is coarse.
func (g *Generator) Inspect(uid types.UID) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if next := g.asked.Add(2 * time.Nanosecond); !now.After(next) {
		now = next
	}
	g.asked = now
	g.mark(uid, now)
	return now
}

// expectFor is how long a hint (a CRI event) waits if an action in flight causes it, so that the action can end first.
const expectFor = time.Second

// hint handles a hint (a CRI event) at once, or after expectFor if an action in flight causes it. It never blocks.
func (g *Generator) hint(h pod.Hint) {
	if g.cfg.Expected != nil && g.cfg.Expected(h) {
		time.AfterFunc(expectFor, func() { g.follow(h) })
		return
	}
	g.follow(h)
}

// follow marks the pod of a hint (a CRI event) for inspection, unless the cache already shows what the hint announces.
func (g *Generator) follow(h pod.Hint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entries[h.UID]
	if e == nil && h.Reached == pod.ReachedRemoval || e != nil && e.inspection == nil && e.obs.Shows(h) {
		return
	}
	m := g.marked[h.UID]
	m.hints = append(m.hints, h)
	m.must = m.must || len(m.hints) > hintsKept
	g.marked[h.UID] = m
	g.dispatch.Wake()
}

// Relist asks for a relist now.
func (g *Generator) Relist() {
	g.relist.Wake()
}

// hangs is how long a call may take before it counts as slow, and before Retry cancels it.
const hangs = 5 * time.Second

// Retry is called when the runtime answers again. It cancels the calls that hang, because the runtime will never answer these calls.
// Then it asks for a relist, which repeats the inspections.
func (g *Generator) Retry() {
	g.mu.Lock()
	if g.listing.cancel != nil && time.Since(g.listing.began) > hangs {
		g.listing.cancel()
	}
	for _, e := range g.entries {
		if c := e.inspection; c != nil && time.Since(c.began) > hangs {
			c.cancel()
		}
	}
	g.mu.Unlock()
	g.Relist()
}

// Healthy returns nil while relists succeed. The node's Ready condition shows the text of the error.
func (g *Generator) Healthy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := g.finished
	if last.IsZero() {
		last = g.begun
		if g.lastErr != nil {
			return fmt.Errorf("PLEG is not healthy: pleg has yet to be successful: %w", g.lastErr)
		}
		if last.IsZero() || time.Since(last) < firstListing {
			return nil // the agent has just started; an error would make the node NotReady at each restart
		}
		return errors.New("PLEG is not healthy: pleg has yet to be successful")
	}
	if age := time.Since(last); age > max(g.cfg.Threshold, 2*g.period()) {
		return fmt.Errorf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v", age.Round(time.Second), g.cfg.Threshold)
	}
	return nil
}

// Synced reports whether the runtime has been listed once.
func (g *Generator) Synced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.relisted.IsZero()
}

// Interval returns the time between the beginnings of the last two relists; zero before the second.
func (g *Generator) Interval() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.interval
}

func (g *Generator) period() time.Duration {
	if g.events.open {
		return g.cfg.EventPeriod
	}
	return g.cfg.Period
}

// Run maintains the cache until ctx ends.
func (g *Generator) Run(ctx context.Context) error { return rounds.Until(ctx, g.Begin) }

// Begin maintains the cache until ctx ends. It returns at once. The caller calls join after ctx has ended; join waits for the calls in flight.
func (g *Generator) Begin(ctx context.Context) (join func()) {
	g.mu.Lock()
	g.begun = time.Now()
	g.mu.Unlock()
	joins := []func(){g.subscribe.Begin(ctx), g.relist.Begin(ctx), g.dispatch.Begin(ctx)}
	return func() {
		for _, j := range joins {
			j()
		}
		g.flights.Wait()
	}
}

// Turns returns an error if no inspection can begin any more, so that a watchdog can restart the agent. Unlike Healthy it does not depend on
// the runtime, because a restart of the agent does not repair the runtime.
func (g *Generator) Turns(ctx context.Context) error { return g.dispatch.Turns(ctx, "pod cache") }

// mark marks a pod for inspection. It is called with the lock held.
func (g *Generator) mark(uid types.UID, asked time.Time) {
	m := g.marked[uid]
	if !asked.IsZero() {
		m.asked = asked
	}
	m.must, m.hints = true, nil
	g.marked[uid] = m
	g.dispatch.Wake()
}

// idle reports whether no inspection is needed, because o already shows every change that the hints of the mark announce.
func (m *mark) idle(o *pod.Observed) bool {
	return !m.must && !slices.ContainsFunc(m.hints, func(h pod.Hint) bool { return !o.Shows(h) })
}

// dispatchRound begins an inspection for each marked pod that has none in flight, as long as the pod's pool (healthy pods or others) has a
// free slot.
func (g *Generator) dispatchRound(ctx context.Context) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	for uid, m := range g.marked {
		e := g.entry(uid)
		if e.inspection != nil {
			continue // this function is called again when that inspection ends
		}
		if !g.slots.free(e.suspect(), now) {
			g.slots.wakeAt(e.suspect(), now, g.dispatch.Wake) // an inspection that ends wakes it too
			continue
		}
		delete(g.marked, uid)
		if m.idle(e.obs) {
			continue
		}
		if m.asked.IsZero() && e.failed != nil {
			m.asked = e.failed.asked
		}
		prev := e.obs
		under, cancel := context.WithCancel(ctx)
		e.inspection = &call{began: now, cancel: cancel, asked: m.asked}
		g.slots.take(e.suspect(), e.inspection)
		g.flights.Go(func() {
			defer cancel()
			stack.Grow()
			g.inspect(ctx, under, uid, prev)
		})
	}
	return rounds.Never
}

// entry returns the entry of a pod, and creates it if it does not exist. It is called with the lock held.
func (g *Generator) entry(uid types.UID) *entry {
	e, ok := g.entries[uid]
	if !ok {
		e = &entry{obs: &pod.Observed{Ref: pod.Ref{UID: uid}, Began: g.relisted}, stamp: g.relisted}
		g.entries[uid] = e
	}
	return e
}

// inspect makes one Inspect call and publishes its result. ctx is the context of the generator, and call is the context of this
// inspection.
func (g *Generator) inspect(ctx, call context.Context, uid types.UID, prev *pod.Observed) {
	began := time.Now()
	obs, err := g.cfg.Runtime.Inspect(call, uid, prev)
	if g.cfg.OnInspect != nil {
		g.cfg.OnInspect(time.Since(began))
	}
	g.mu.Lock()
	e := g.entry(uid)
	asked, first := e.inspection.asked, e.stamp.IsZero() // a pod without a stamp has its first inspection now
	took := time.Since(e.inspection.began)
	e.slow, e.hung = took > hangs, took > HungFor && err != nil
	g.slots.leave(e.inspection)
	e.inspection = nil
	old, changed := e.obs, false
	if err != nil {
		if e.failed == nil && ctx.Err() == nil {
			g.cfg.Log.Warn("pod inspection failed", "pod", old.Ref, "err", err)
		}
		e.failed = &failed{asked, strings.Clone(pod.TextMax(err.Error(), whyKept))}
		if ctx.Err() == nil {
			time.AfterFunc(g.cfg.Period, g.Relist) // the relist marks the failed pod again
		}
	} else {
		e.failed = nil
		changed = !same(old, &obs)
		e.obs = &obs
		e.stamp = latest(e.stamp, obs.Began)
		if !asked.IsZero() { // make the stamp later than asked: the inspection began later, even if the clock is too coarse to show it
			e.stamp = latest(e.stamp, asked.Add(time.Nanosecond))
		}
	}
	if len(g.marked) > 0 {
		g.dispatch.Wake()
	}
	g.mu.Unlock()
	if changed && !first {
		g.logEnds(old, &obs)
	}
	if changed && g.cfg.OnEvent != nil {
		for _, ev := range diff(old, &obs) {
			g.cfg.OnEvent(ev)
		}
	}
	if (changed || first || !asked.IsZero()) && g.cfg.Notify != nil {
		g.cfg.Notify(uid)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// same reports whether two inspections have the same content, except for the time when they began.
func same(a, b *pod.Observed) bool {
	return reflect.DeepEqual(a.Sandboxes, b.Sandboxes) && reflect.DeepEqual(a.Containers, b.Containers)
}

// alike reports whether a cached pod has the IDs and states that a listing shows. A listing has no other information.
func alike(cached, listed *pod.Observed) bool {
	return slices.EqualFunc(cached.Sandboxes, listed.Sandboxes, func(a, b pod.Sandbox) bool {
		return a.ID == b.ID && a.Ready == b.Ready
	}) && slices.EqualFunc(cached.Containers, listed.Containers, func(a, b pod.Container) bool {
		return a.ID == b.ID && a.State == b.State
	})
}
