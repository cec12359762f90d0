package decide_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

var deep = flag.Bool("deep", false, "search with the large budgets (make prove)")

// node is one state of the search.
type node struct {
	*world
	left  budget
	path  *step // the moves that led here, for the report
	depth int
}

type step struct {
	event string
	prev  *step
}

func (s *step) String() string {
	var events []string
	for ; s != nil; s = s.prev {
		events = append(events, s.event)
	}
	slices.Reverse(events)
	return strings.Join(events, "\n  ")
}

// searchPolicy has waits of one second, so that paths stay short. The search is about the order of events, not about the lengths
// of waits.
func searchPolicy() decide.Policy {
	p := decide.DefaultPolicy()
	p.BackOffInitial, p.BackOffMax = time.Second, time.Second
	p.PullBackOffInitial, p.PullBackOffMax = time.Second, time.Second
	p.RetryInitial, p.RetryMax = time.Second, time.Second
	return p
}

// TestSearch tries every order of events that may happen to small pods. The budget of a pod limits how often each kind of trouble happens.
// The test checks the invariants in every state. It also checks that the pod can always recover: if no more trouble happens from a state
// on, the pod must finally run, have stopped, or be gone, as its sources want it (see missed).
func TestSearch(t *testing.T) {
	t.Parallel()
	var states, moves, rests, failed atomic.Int64
	t.Run("pods", func(t *testing.T) {
		for _, sc := range scopes() {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				left := sc.budget
				if *deep {
					left = sc.deep
				}
				s := newSearch()
				s.failed = &failed
				if testing.Short() && !*deep {
					s.most, s.part = 500, true
				}
				s.run(sc.first(realBrain()), left.array())
				for _, f := range s.found {
					t.Error(f)
					failed.Add(1)
				}
				t.Logf("%d containers; %s: %d states, %d transitions, depth %d, %d friendly ends", sc.size(), left, len(s.seen), s.moves, s.depth, s.rests)
				if len(s.seen) < 100 && !t.Failed() {
					t.Errorf("only %d states: the search does not search", len(s.seen))
				}
				states.Add(int64(len(s.seen)))
				moves.Add(int64(s.moves))
				rests.Add(int64(s.rests))
			})
		}
	})
	t.Logf("%d pods, %d invariants: %d states, %d transitions, %d friendly ends", len(scopes()), len(invariants), states.Load(), moves.Load(), rests.Load())
}

// mark is the hash of a state. It has 128 bits, so that among several million states no two have the same hash.
type mark [2]uint64

type search struct {
	seeds  [2]maphash.Seed
	seen   map[mark]struct{}
	calm   map[mark]struct{} // states from which the pod is known to recover (see TestSearch)
	moves  int
	rests  int
	depth  int
	found  []string
	until  invariant     // if not empty, the search stops when this invariant is broken
	broken []invariant   // all invariants that were broken
	failed *atomic.Int64 // how many searches of this test have failed; with -failfast, one failure stops all; may be nil
	most   int
	part   bool // reaching the limit in the field most is no error (-short)
	buf    []byte
}

func newSearch() *search {
	return &search{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, most: 50_000_000,
		seen: map[mark]struct{}{}, calm: map[mark]struct{}{},
	}
}

// run searches all states that can follow from w, depth first. It visits each state once. left is the budget of events (troubles).
func (s *search) run(w *world, left budget) {
	failfast := flag.Lookup("test.failfast")
	first := node{world: w, left: left}
	first.settleTurn()
	stack := []node{first}
	for len(stack) > 0 && len(s.found) < 3 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if len(n.broken) > 0 { // reported even for a state that was seen before, because a new path to it broke an invariant
			s.report(n.broken, n.path)
			if s.until != "" && slices.Contains(s.broken, s.until) {
				return
			}
			if s.until == "" {
				continue
			}
		}
		key := s.key(&n, true)
		if _, ok := s.seen[key]; ok {
			continue
		}
		s.seen[key] = struct{}{}
		s.depth = max(s.depth, n.depth)
		if len(s.seen) > s.most && s.part {
			return
		}
		if len(s.seen) > s.most {
			s.found = append(s.found, "the search does not end")
			return
		}
		if s.failed != nil && s.failed.Load() > 0 && failfast != nil && failfast.Value.String() == "true" {
			return
		}
		if len(n.broken) == 0 {
			s.rest(n)
		}
		if s.until != "" && slices.Contains(s.broken, s.until) {
			return
		}
		for _, m := range n.environment() {
			s.moves++
			stack = append(stack, m)
		}
	}
}

// report records the broken invariants. A search for a planted bug goes on until it finds the invariant that it looks for.
func (s *search) report(broken []breach, path *step) {
	var lines []string
	for _, b := range broken {
		s.broken = append(s.broken, b.inv)
		lines = append(lines, string(b.inv)+": "+b.text)
	}
	if s.until == "" {
		s.found = append(s.found, strings.Join(lines, "\n")+"\nafter:\n  "+path.String())
	}
}

// move clones a state, applies an event to it and lets the agent take its turns.
func (n node) move(event string, do func(*node)) node {
	c := node{world: n.clone(), left: n.left, path: &step{event, n.path}, depth: n.depth + 1}
	do(&c)
	c.settleTurn()
	return c
}

// settleTurn takes turns until the agent has nothing to begin.
func (n *node) settleTurn() {
	if n.down {
		return
	}
	for range 20 {
		flights := len(n.flights)
		canceled := n.canceled()
		p := n.turn()
		n.report(&p)
		if len(n.flights) == flights && n.canceled() == canceled {
			return
		}
	}
	n.breaks(invIdle, "turns do not come to rest")
}

func (w *world) canceled() int {
	count := 0
	for _, f := range w.flights {
		if f.canceled {
			count++
		}
	}
	return count
}

// rest continues from a state without further trouble: actions succeed, init containers complete, probes succeed, sources answer, and time
// passes when nothing else happens. It checks that the pod recovers (see TestSearch). It stops early at a state from which the pod
// recovered in an earlier call.
func (s *search) rest(n node) {
	s.rests++
	c := node{world: n.clone()}
	var plan decide.Plan
	var passed []mark
	for range 200 {
		key := s.key(&c, false)
		if _, ok := s.calm[key]; ok {
			s.pass(passed)
			return
		}
		passed = append(passed, key)
		if c.down {
			c.rise(false)
			continue
		}
		plan = c.turn()
		c.report(&plan)
		if len(c.broken) > 0 {
			break
		}
		if !c.friendly(&plan) {
			if inv, why := c.missed(&plan); why != "" {
				c.breaks(inv, "%s; the plan is %v %s: %s", why, plan.Do, plan.Phase, plan.Why)
				break
			}
			s.pass(passed)
			return
		}
	}
	if len(c.broken) == 0 {
		c.breaks(invRest, "it does not come to rest: %v %s: %s", plan.Do, plan.Phase, plan.Why)
	}
	s.report(c.broken, &step{"and nothing more than what is good", n.path})
}

func (s *search) pass(keys []mark) {
	for _, k := range keys {
		s.calm[k] = struct{}{}
	}
}

// friendly makes one helpful event happen, and reports whether there was one.
func (n *node) friendly(plan *decide.Plan) bool {
	moved := len(plan.Do) > 0
	for len(n.flights) > 0 {
		how := ""
		if n.flights[0].canceled {
			how = "canceled"
		}
		n.finish(0, how)
		moved = true
	}
	for i := range n.containers {
		if o := &n.containers[i]; n.completes(o.Name) && o.State == pod.StateRunning {
			n.exit(o, 0)
			n.look()
			moved = true
		}
	}
	for i := range n.health {
		h := &n.health[i]
		c := n.byID(h.id)
		if c == nil || c.State != pod.StateRunning || h.sick || (h.started && h.ready) {
			continue
		}
		h.started, h.ready = true, true
		n.up(c)
		moved = true
	}
	if !n.mem.Admitted && n.pod != nil {
		n.mem.Admitted, n.saved.Admitted = true, true
		moved = true
	}
	if !n.node.SourcesReady || n.node.Predecessor || !n.node.NetworkReady {
		n.answer()
		n.node.Predecessor, n.node.NetworkReady = false, true
		moved = true
	}
	if !moved && n.dirty {
		n.inspect()
		moved = true
	}
	if !moved && !plan.WakeAt.IsZero() {
		n.now = plan.WakeAt
		n.look()
		moved = true
	}
	return moved
}

// completes reports whether a container is an init container that has to complete: one that is not a sidecar.
func (w *world) completes(name string) bool {
	return slices.ContainsFunc(w.pod0().Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && !pod.IsSidecar(&c) })
}

// missed checks the final state of a pod after rest, when no helpful event is left. Nothing may be left of a pod that no source has, a pod
// that ends must have stopped, and any other pod must run. If the state is wrong, missed returns the broken invariant and what is wrong.
func (n *node) missed(plan *decide.Plan) (invariant, string) {
	switch {
	case len(plan.Do) > 0:
		return invRest, "it does not come to rest"
	case n.pod == nil:
		if plan.Phase != decide.PhaseGone || n.vols || n.dirs || len(n.containers)+len(n.sandboxes) > 0 {
			return invLeft, "something is left of a pod that nobody wants"
		}
		return "", ""
	case n.orphaned:
		if plan.Phase != decide.PhaseGone || n.vols || n.dirs || len(n.containers)+len(n.sandboxes) > 0 {
			return invLeft, "something is left of a pod that nobody wanted"
		}
		return "", ""
	case plan.Ending || n.terminal:
		return n.missedEnd(plan)
	}
	return n.missedRun()
}

func (n *node) missedEnd(plan *decide.Plan) (invariant, string) {
	switch {
	case plan.Phase != decide.PhaseStopped || n.anyAlive() || n.vols:
		return invProgress, "an ending pod has not stopped"
	case !terminalPhase(n.pod.Status.Phase):
		return invTruth, "an ended pod is reported as " + string(n.pod.Status.Phase)
	}
	return "", ""
}

func (n *node) missedRun() (invariant, string) {
	if n.mayEnd() {
		return invProgress, "a pod that has to end goes on"
	}
	for _, c := range probed(n.pod) {
		inst, r := n.newest(c.Name), n.record(c.Name)
		if inst == nil || inst.State != pod.StateRunning {
			if r.replaced || !(r.ran && r.ended && !mayRunAgain(&n.pod.Spec, c, r.code)) && !(n.vanished && !mayRunAgain(&n.pod.Spec, c, 137)) {
				return invProgress, c.Name + " does not run"
			}
			continue
		}
		f := n.fate(inst.ID)
		switch {
		case f.condemned:
			return invRestartAll, inst.ID + " was to be restarted with all others"
		case f.doomed:
			return invUnhealthy, inst.ID + " runs on"
		case c.Lifecycle != nil && c.Lifecycle.PostStart != nil && !f.postDone:
			return invPostStart, inst.ID + " runs and its hook has not"
		}
		st := statusNamed(&n.pod.Status, c.Name)
		if st == nil || st.State.Running == nil || !decide.SameContainer(st.ContainerID, inst.ID) || !st.Ready {
			return invTruth, inst.ID + " runs and is not reported as running and ready"
		}
	}
	if n.pod.Spec.ActiveDeadlineSeconds != nil {
		return invProgress, "nothing wakes the pod at its deadline"
	}
	for i := range n.pod.Spec.EphemeralContainers {
		if name := n.pod.Spec.EphemeralContainers[i].Name; !n.record(name).ran && !n.vanished {
			return invProgress, name + " was never started"
		}
	}
	if why := n.missedSize(); why != "" {
		return invSize, why
	}
	if n.pod.Status.Phase != v1.PodRunning {
		return invTruth, "a running pod is reported as " + string(n.pod.Status.Phase)
	}
	return "", ""
}

// missedSize returns which size differs from the one that the node has accepted.
func (n *node) missedSize() string {
	if !n.sized {
		return ""
	}
	if want := n.size(""); n.group != want {
		return fmt.Sprintf("the pod's cgroup has %v and should have %v", n.group, want)
	}
	for i := range n.containers {
		c := &n.containers[i]
		if want := n.size(c.Name); c.State == pod.StateRunning && n.given[c.ID] != want {
			return fmt.Sprintf("%s has %v and should have %v", c.ID, n.given[c.ID], want)
		}
	}
	if n.mem.Resize.InProgress {
		return "the resize is still said to be in progress"
	}
	return ""
}

// key returns a hash of everything in a state that its future depends on, with times relative to now.
func (s *search) key(n *node, budget bool) mark {
	k := keyer{buf: s.buf[:0], now: n.now}
	if budget {
		for _, b := range n.left {
			k.num(int64(b))
		}
	}
	k.world(n.world)
	s.buf = k.buf
	return mark{maphash.Bytes(s.seeds[0], k.buf), maphash.Bytes(s.seeds[1], k.buf)}
}

type keyer struct {
	buf []byte
	now time.Time
}

func (k *keyer) num(n int64) { k.buf = binary.AppendVarint(k.buf, n) }
func (k *keyer) str(s string) {
	k.buf = binary.AppendUvarint(k.buf, uint64(len(s)))
	k.buf = append(k.buf, s...)
}

func (k *keyer) bools(bs ...bool) {
	for _, b := range bs {
		if b {
			k.buf = append(k.buf, 1)
		} else {
			k.buf = append(k.buf, 0)
		}
	}
}

// rel adds a time to the key, in milliseconds relative to now. All times more than a minute ago are equal.
func (k *keyer) rel(t time.Time) {
	switch {
	case t.IsZero():
		k.num(-1 << 40)
	case t.Before(k.now.Add(-time.Minute)):
		k.num(-1 << 41)
	default:
		k.num(int64(t.Sub(k.now) / time.Millisecond))
	}
}

// future adds a time to the key as rel does, but treats all times that are not in the future as equal.
func (k *keyer) future(t time.Time) {
	if t.After(k.now) {
		k.rel(t)
	} else {
		k.num(-1)
	}
}
