package decide_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/podstatus"
)

var deep = flag.Bool("deep", false, "search with the large budgets (minutes)")

// budget is how often the environment may do each thing on one path. It makes the search finite; within it, the
// search is exhaustive.
type budget struct {
	exits, fails, crashes, sandboxes, deletes, gones, unhealthy int
}

// node is one state of the search.
type node struct {
	*world
	left budget
	path *step // for the report
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

// searchPolicy has one-second waits, so that the order of events counts and not how long a path is.
func searchPolicy() decide.Policy {
	p := decide.DefaultPolicy()
	p.BackOffInitial, p.BackOffMax = time.Second, time.Second
	p.PullBackOffInitial, p.PullBackOffMax = time.Second, time.Second
	p.RetryInitial, p.RetryMax = time.Second, time.Second
	return p
}

// TestSearch walks every order of events that small pods can meet within a budget, holds the invariants in every
// state, and lets every state come to rest when the environment is quiet: it must reach the pod's goal.
func TestSearch(t *testing.T) {
	t.Parallel()
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	always := v1.ContainerRestartPolicyAlways
	app := v1.Container{Name: "app", Image: "a"}
	tests := []struct {
		name   string
		policy v1.RestartPolicy
		inits  []v1.Container
		mains  []v1.Container
		lag    bool // inspections come when they come
		budget budget
		deep   budget // with -deep
	}{
		{"always", v1.RestartPolicyAlways, nil, []v1.Container{app}, false,
			budget{exits: 1, fails: 1, crashes: 1, deletes: 1}, budget{1, 1, 1, 1, 1, 1, 0}},
		{"onfailure", v1.RestartPolicyOnFailure, nil, []v1.Container{app}, false,
			budget{exits: 1, crashes: 1, sandboxes: 1, gones: 1}, budget{2, 1, 1, 1, 1, 0, 0}},
		{"never", v1.RestartPolicyNever, nil, []v1.Container{app}, false,
			budget{exits: 1, fails: 1, sandboxes: 1, deletes: 1}, budget{1, 1, 1, 1, 1, 1, 0}},
		{"lag", v1.RestartPolicyAlways, nil, []v1.Container{app}, true,
			budget{exits: 1, fails: 1, deletes: 1}, budget{1, 1, 1, 1, 1, 0, 0}},
		{"hooks", v1.RestartPolicyAlways, nil, []v1.Container{{
			Name: "app", Image: "a", Lifecycle: &v1.Lifecycle{PostStart: hook, PreStop: hook},
		}}, false, budget{fails: 1, deletes: 1, unhealthy: 1}, budget{0, 1, 1, 0, 1, 1, 1}},
		{"two", v1.RestartPolicyOnFailure, nil, []v1.Container{app, {Name: "job", Image: "b"}}, false,
			budget{exits: 1, crashes: 1}, budget{1, 1, 1, 0, 1, 0, 0}},
		{"init", v1.RestartPolicyOnFailure, []v1.Container{{Name: "init", Image: "i"}}, []v1.Container{app}, false,
			budget{exits: 2, crashes: 1, sandboxes: 1}, budget{2, 1, 1, 1, 0, 0, 0}},
		{"init-never", v1.RestartPolicyNever, []v1.Container{{Name: "init", Image: "i"}}, []v1.Container{app}, false,
			budget{exits: 2, crashes: 1, deletes: 1}, budget{2, 0, 1, 1, 1, 0, 0}},
		{"init-lag", v1.RestartPolicyAlways, []v1.Container{{Name: "init", Image: "i"}}, []v1.Container{app}, true,
			budget{exits: 1, sandboxes: 1}, budget{2, 0, 1, 1, 0, 0, 0}},
		{"sidecar", v1.RestartPolicyNever, []v1.Container{{Name: "side", Image: "s", RestartPolicy: &always}},
			[]v1.Container{app}, false, budget{exits: 1, fails: 1, deletes: 1}, budget{1, 1, 1, 0, 1, 0, 0}},
		{"sidecar-sandbox", v1.RestartPolicyAlways, []v1.Container{{Name: "side", Image: "s", RestartPolicy: &always}},
			[]v1.Container{app}, false, budget{exits: 1, sandboxes: 1}, budget{1, 0, 1, 1, 0, 1, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.quick = true
			w.pol = searchPolicy()
			w.pod = &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"},
				Spec:       v1.PodSpec{RestartPolicy: tt.policy, InitContainers: tt.inits, Containers: tt.mains},
			}
			w.inspect()
			w.noInspect = tt.lag
			s := &search{t: t, seen: map[string]bool{}}
			left := tt.budget
			if *deep {
				left = tt.deep
			}
			s.run(node{world: w, left: left})
			t.Logf("%d states, %d transitions, %d came to rest", len(s.seen), s.moves, s.rests)
			if len(s.seen) < 100 {
				t.Errorf("only %d states: the search does not search", len(s.seen))
			}
		})
	}
}

type search struct {
	t     *testing.T
	seen  map[string]bool
	moves int
	rests int
	bad   int
}

// run is a depth-first walk over states; each is visited once.
func (s *search) run(first node) {
	first.settleTurn()
	stack := []node{first}
	for len(stack) > 0 && s.bad < 3 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		key := n.key()
		if s.seen[key] {
			continue
		}
		s.seen[key] = true
		if len(s.seen) > 2_000_000 {
			s.t.Fatal("the search does not end")
		}
		s.check(n)
		s.rest(n)
		for _, m := range n.moves() {
			s.moves++
			stack = append(stack, m)
		}
	}
}

func (s *search) check(n node) {
	if len(n.broken) > 0 {
		s.bad++
		s.t.Errorf("%s\nafter:\n  %s", strings.Join(n.broken, "\n"), n.path)
	}
}

// move clones a state, lets something happen and the agent take its turns.
func (n node) move(event string, do func(*node)) node {
	c := node{world: n.clone(), left: n.left, path: &step{event, n.path}}
	do(&c)
	c.settleTurn()
	return c
}

// settleTurn takes turns until the agent has nothing to begin.
func (n *node) settleTurn() {
	for range 20 {
		p := n.turn()
		n.report(&p)
		if len(p.Do) == 0 && len(p.Cancel) == 0 {
			return
		}
	}
	n.breaks("turns do not come to rest")
}

// report derives the status, holds its invariants and makes it what the API shows.
func (n *node) report(plan *decide.Plan) {
	if n.pod == nil {
		return
	}
	old := n.pod.Status
	st := podstatus.Derive(podstatus.Input{
		Pod: n.pod, Observed: &n.observed, Memory: &n.mem, Plan: plan, RuntimeName: "sim", Now: n.now,
	})
	ended := func(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }
	if ended(old.Phase) && st.Phase != old.Phase {
		n.breaks("terminal phase %s becomes %s", old.Phase, st.Phase)
	}
	if ended(st.Phase) && n.anyAlive() {
		n.breaks("phase %s is reported while a container lives", st.Phase)
	}
	for i := range old.ContainerStatuses {
		if was, is := old.ContainerStatuses[i], st.ContainerStatuses[i]; is.RestartCount < was.RestartCount {
			n.breaks("restart count of %s falls from %d to %d", is.Name, was.RestartCount, is.RestartCount)
		}
	}
	if n.mem.Finished && plan.Phase >= decide.PhaseStopped && !ended(st.Phase) {
		n.breaks("a finished pod is reported as %s", st.Phase)
	}
	p := *n.pod
	p.Status = st
	n.pod = &p
}

// moves are all that the environment may do next.
func (n node) moves() []node {
	var out []node
	add := func(event string, do func(*node)) { out = append(out, n.move(event, do)) }
	for i, f := range n.flights {
		add("done "+f.action.String(), func(c *node) { c.finish(i, "") })
		if n.left.fails > 0 {
			for _, how := range failures(f.action.Op) {
				add(how+" "+f.action.String(), func(c *node) { c.left.fails--; c.finish(i, how) })
			}
		}
	}
	if n.left.exits > 0 {
		for i := range n.containers {
			if n.containers[i].State != pod.StateRunning {
				continue
			}
			for _, code := range []int32{0, 1} {
				add(fmt.Sprintf("exit %s %d", n.containers[i].ID, code), func(c *node) {
					c.left.exits--
					c.exit(&c.containers[i], code)
					c.look()
				})
			}
		}
	}
	return append(out, n.rarer()...)
}

func failures(op pod.Op) []string {
	switch op {
	case pod.OpStartContainer:
		return []string{"Failed", "RunContainerError", "unknown", "unknown-undone"}
	case pod.OpRunSandbox, pod.OpStopContainer:
		return []string{"Failed", "unknown", "unknown-undone"}
	}
	return []string{"Failed"}
}

func (n node) rarer() []node {
	var out []node
	add := func(event string, do func(*node)) { out = append(out, n.move(event, do)) }
	if n.dirty {
		add("inspect", func(c *node) { c.inspect() })
	}
	if n.left.crashes > 0 {
		add("crash", func(c *node) { c.left.crashes--; c.crash(false) })
		if len(n.flights) > 0 {
			add("crash done", func(c *node) { c.left.crashes--; c.crash(true) })
		}
		for i, f := range n.flights {
			if f.action.Op == pod.OpStartContainer && f.action.ID == "" {
				add("crash half", func(c *node) {
					c.left.crashes--
					c.create(c.flights[i].action)
					c.crash(false)
				})
			}
		}
	}
	if n.left.sandboxes > 0 && len(n.sandboxes) > 0 && n.sandboxes[0].Ready {
		add("sandbox dies", func(c *node) { c.left.sandboxes--; c.sandboxDies() })
	}
	if n.left.deletes > 0 && n.pod != nil {
		add("delete", func(c *node) { c.left.deletes--; c.delete(30) })
		add("force delete", func(c *node) { c.left.deletes--; c.delete(0) })
	}
	if n.left.gones > 0 && n.pod != nil {
		add("gone", func(c *node) { c.left.gones--; c.pod = nil })
	}
	if n.left.unhealthy > 0 && n.pod != nil {
		if a := n.newest("app"); a != nil && a.State == pod.StateRunning {
			add("unhealthy", func(c *node) {
				c.left.unhealthy--
				cm := c.mem.Ensure("app")
				cm.ProbedID, cm.Unhealthy = a.ID, true
			})
		}
	}
	in := n.input()
	if p := decide.Decide(&in); !p.WakeAt.IsZero() {
		add("wake", func(c *node) { c.now = p.WakeAt; c.look() })
	}
	return out
}

func (n *node) delete(grace int64) {
	p := *n.pod
	at := metav1.NewTime(n.now)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	n.pod = &p
}

func (w *world) sandboxDies() {
	w.sandboxes[0].Ready = false
	for i := range w.containers {
		if c := &w.containers[i]; c.SandboxID == w.sandboxes[0].ID && c.Alive() {
			w.exit(c, 137)
		}
	}
	w.look()
}

// rest lets the environment be quiet: everything that was begun ends well, init containers complete, time passes
// when nothing else does. The pod must reach its goal.
func (s *search) rest(n node) {
	if len(n.broken) > 0 {
		return
	}
	s.rests++
	c := node{world: n.clone()}
	var plan decide.Plan
	for range 80 {
		plan = c.turn()
		c.report(&plan)
		moved := len(plan.Do) > 0 || len(plan.Cancel) > 0
		for len(c.flights) > 0 {
			c.finish(0, "")
			moved = true
		}
		for i := range c.containers {
			if o := &c.containers[i]; o.Name == "init" && o.State == pod.StateRunning {
				c.exit(o, 0)
				c.look()
				moved = true
			}
		}
		if !moved && !plan.WakeAt.IsZero() {
			c.now = plan.WakeAt
			c.look()
			moved = true
		}
		if !moved && c.dirty {
			c.inspect()
			moved = true
		}
		if !moved {
			break
		}
	}
	if why := c.missed(&plan); why != "" || len(c.broken) > 0 {
		s.bad++
		s.t.Errorf("at rest: %s %v\nplan: %+v\nafter:\n  %s", why, c.broken, plan, n.path)
	}
}

// missed says what keeps a pod at rest from its goal.
func (n *node) missed(plan *decide.Plan) string {
	switch {
	case len(plan.Do) > 0:
		return "it does not come to rest"
	case n.pod == nil:
		if plan.Phase != decide.PhaseGone || n.vols || n.dirs || len(n.containers)+len(n.sandboxes) > 0 {
			return "something is left of a pod that nobody wants"
		}
		return ""
	case plan.Ending:
		if plan.Phase != decide.PhaseStopped || n.anyAlive() || n.vols {
			return "an ending pod has not stopped"
		}
		if n.pod.Status.Phase != v1.PodSucceeded && n.pod.Status.Phase != v1.PodFailed {
			return "an ended pod is reported as " + string(n.pod.Status.Phase)
		}
		return ""
	}
	for _, c := range n.pod.Spec.Containers {
		inst := n.newest(c.Name)
		ended := inst != nil && inst.State == pod.StateExited && !decide.MayRestart(&n.pod.Spec, &c, inst.ExitCode)
		if inst == nil || (inst.State != pod.StateRunning && !ended) {
			return c.Name + " does not run"
		}
	}
	for _, c := range n.pod.Spec.InitContainers {
		if inst := n.newest(c.Name); decide.IsSidecar(&c) && (inst == nil || inst.State != pod.StateRunning) {
			return c.Name + " does not run"
		}
	}
	if n.pod.Status.Phase != v1.PodRunning {
		return "a running pod is reported as " + string(n.pod.Status.Phase)
	}
	return ""
}

func (w *world) clone() *world {
	c := *w
	c.mem = w.mem.Clone()
	c.sandboxes, c.containers, c.flights = slices.Clone(w.sandboxes), slices.Clone(w.containers), slices.Clone(w.flights)
	c.maxTry, c.ups = maps.Clone(w.maxTry), maps.Clone(w.ups)
	c.broken = nil
	return &c
}

// key says everything of a state that its future depends on, with times relative to now.
func (n node) key() string {
	var b strings.Builder
	rel := func(t time.Time) {
		switch {
		case t.IsZero():
			b.WriteByte('-')
		case t.Before(n.now.Add(-time.Minute)):
			b.WriteByte('<')
		default:
			b.WriteString(strconv.FormatInt(int64(t.Sub(n.now)/time.Millisecond), 10))
		}
		b.WriteByte(' ')
	}
	future := func(t time.Time) {
		if t.After(n.now) {
			rel(t)
		} else {
			b.WriteString("p ")
		}
	}
	fmt.Fprint(&b, n.left, n.old, n.dirty, n.vols, n.dirs, n.pod == nil, n.terminal)
	if n.pod != nil {
		fmt.Fprint(&b, n.pod.DeletionTimestamp != nil, n.pod.Status.Phase)
		if g := n.pod.DeletionGracePeriodSeconds; g != nil {
			fmt.Fprint(&b, *g)
		}
		for _, st := range n.pod.Status.ContainerStatuses {
			fmt.Fprint(&b, st.RestartCount, st.State.Running != nil, st.State.Terminated != nil, st.ContainerID)
		}
	}
	for _, sb := range n.sandboxes {
		fmt.Fprint(&b, "|", sb.ID, sb.Ready)
	}
	for _, c := range n.containers {
		fmt.Fprint(&b, "|", c.ID, c.State, c.SandboxID, c.ExitCode)
		rel(c.FinishedAt)
	}
	if n.dirty {
		for _, sb := range n.observed.Sandboxes {
			fmt.Fprint(&b, "|", sb.ID, sb.Ready)
		}
		for _, c := range n.observed.Containers {
			fmt.Fprint(&b, "|", c.ID, c.State)
		}
	}
	for _, f := range n.flights {
		a := f.action
		fmt.Fprint(&b, "|", a.Op, a.Container, a.ID, a.Attempt, a.Grace)
	}
	m := &n.mem
	fmt.Fprint(&b, "|", m.Finished, m.Orphaned, m.SetUp, m.TornDown, m.Forgotten, m.StopGrace, m.SandboxAttempt, m.StoppedSandboxes)
	rel(m.StopBegan)
	for _, r := range m.Retry {
		if r.Until.After(n.now) {
			fmt.Fprint(&b, "|", r.Op, r.ID)
			rel(r.Until)
		}
	}
	for _, c := range m.Containers {
		fmt.Fprint(&b, "|", c.Name, c.CrashDelay, c.CrashedID, c.Pulled, c.StartFailedID, c.HighestAttempt, c.AttemptKnown,
			c.PostStartedID, c.PostStartFailed, c.PreStoppedID, c.PreStopTook, c.StopID, c.Stopped, c.ProbedID, c.Unhealthy, c.Started)
		future(c.CrashUntil)
		future(c.PullUntil)
		future(c.StartUntil)
		future(c.StopUntil)
	}
	return b.String()
}
