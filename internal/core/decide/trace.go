package decide

import (
	"fmt"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Step describes one rule of a decision: what the rule depended on, and what it decided.
type Step struct {
	Rule string
	// Saw is the part of the input that the rule depends on.
	Saw string
	// Decided has a line for each thing that the rule added to the plan; empty: the rule changed nothing.
	Decided []string
}

// Steps returns the same plan as Decide, and one step for each rule that ran, in order. A step says which input the rule depended on and
// what it decided.
func Steps(in *Input) (Plan, []Step) {
	tr := &trace{last: Plan{RestartingAll: in.Memory.RestartingAll}} // the plan before the first rule
	return run(in, tr), tr.steps
}

// trace collects the steps of one decision. Only Steps makes a trace; in Decide, turn.trace is nil.
type trace struct {
	steps []Step
	last  Plan    // the plan after the last step
	wait  pod.Why // turn.waiting after the last step
}

// The names of the rules: first those for a pod that should run, in the order in which a turn reaches them, then those for a pod that ends.
const (
	ruleEnd        = "does the pod end?"
	ruleAdmission  = "admission"
	ruleDeadline   = "activeDeadlineSeconds"
	ruleHooks      = "hooks of dead containers"
	ruleSetUp      = "set-up of directories, cgroup and volumes"
	ruleSandbox    = "sandbox"
	ruleRestartAll = "restart of all containers"
	ruleStrays     = "containers that should not run"
	ruleContainer  = "container"
	ruleResize     = "resize"
	rulePrune      = "removal of dead containers and sandboxes"

	ruleGrace         = "grace period of the pod"
	ruleStop          = "stop of the containers"
	ruleStopSandboxes = "stop of the sandboxes"
	ruleTearDown      = "tear-down of volumes and cgroup"
	ruleClear         = "clearing of what is left"
)

// step records that a rule has run. container is the container that the rule was about, or empty. Without a trace it does nothing.
func (t *turn) step(rule, container string) {
	if t.trace != nil {
		t.trace.add(t, rule, container)
	}
}

// stepEnd records the first rule, which decides whether the pod ends.
func (t *turn) stepEnd(cause pod.Cause) {
	if t.trace == nil {
		return
	}
	t.trace.add(t, ruleEnd, "")
	s := &t.trace.steps[len(t.trace.steps)-1]
	switch {
	case cause != pod.CauseNone:
		s.Decided = append(s.Decided, fmt.Sprintf("the pod ends (%s): %s", cause, ruleOf(cause).why))
	case t.in.Pod == nil:
		s.Decided = append(s.Decided, "nothing yet: "+string(t.plan.Why))
	default:
		s.Decided = append(s.Decided, "the pod goes on")
	}
}

// add appends a step. It compares the plan with the plan after the previous step, and lists the differences as the step's decisions.
func (tr *trace) add(t *turn, rule, container string) {
	s := Step{Rule: strings.TrimSpace(rule + " " + container), Saw: t.saw(rule, container)}
	said := func(format string, args ...any) { s.Decided = append(s.Decided, fmt.Sprintf(format, args...)) }
	p, was := &t.plan, &tr.last
	for _, a := range p.Do[len(was.Do):] {
		a.Grace = a.Grace.Round(time.Millisecond)
		said("begins %s", a)
	}
	for _, a := range p.Cancel[len(was.Cancel):] {
		said("cancels %s", a)
	}
	for _, e := range p.Ends[len(was.Ends):] {
		said("remembers that %s ends (%s) with a grace period of %s", e.Name, e.Cause, e.Grace)
	}
	for _, r := range p.Replaced[len(was.Replaced):] {
		said("remembers that %s starts again (%s)", r.Name, r.Cause)
	}
	for _, c := range p.Crashes[len(was.Crashes):] {
		said("remembers that %s may start again at %s, and that its next back-off is %s", c.Name, t.at(c.Until), c.Next)
	}
	if p.RestartingAll != was.RestartingAll {
		said("all containers are restarted: %t", p.RestartingAll)
	}
	if t.waiting != tr.wait {
		said("waits: %s", t.waiting)
	}
	if !p.WakeAt.Equal(was.WakeAt) {
		said("looks again at %s", t.at(p.WakeAt))
	}
	tr.steps, tr.last, tr.wait = append(tr.steps, s), *p, t.waiting
}

// at formats a time relative to the time of the decision, for example "+10s".
func (t *turn) at(when time.Time) string {
	if when.IsZero() {
		return "no time"
	}
	d := when.Sub(t.in.Now).Round(time.Millisecond)
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

// facts lists the parts of the input that a rule depends on, as text. String joins them.
type facts []string

func (f *facts) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f facts) String() string { return strings.Join(f, "; ") }

// saw returns the part of the input that a rule depends on.
func (t *turn) saw(rule, container string) string {
	var f facts
	in, m := t.in, t.in.Memory
	switch rule {
	case ruleEnd:
		t.sawEnd(&f)
	case ruleAdmission:
		f.add("admitted: %t; sandboxes: %d", m.Admitted, len(in.Observed.Sandboxes))
	case ruleDeadline:
		if at := t.deadline(); at.IsZero() {
			f.add("the pod has none")
		} else {
			f.add("the deadline is at %s", t.at(at))
		}
	case ruleSetUp, ruleTearDown:
		f.add("set up: %t; torn down: %t; the node's pod network is ready: %t", m.SetUp, m.TornDown, in.Node.NetworkReady)
		if m.Outdated {
			f.add("the volumes may show old content")
		}
		t.sawRetry(&f, pod.OpSetUp, pod.OpTearDown)
	case ruleSandbox, ruleStopSandboxes:
		for i := range in.Observed.Sandboxes {
			s := &in.Observed.Sandboxes[i]
			f.add("sandbox %s attempt=%d ready=%t addresses=%d", s.ID, s.Attempt, s.Ready, len(s.IPs))
		}
		if len(in.Observed.Sandboxes) == 0 {
			f.add("no sandbox")
		}
		t.sawRetry(&f, pod.OpRunSandbox, pod.OpStopSandbox)
	case ruleRestartAll:
		f.add("all containers are being restarted: %t", m.RestartingAll)
	case ruleContainer:
		t.sawContainer(&f, container)
	case ruleResize:
		f.add("a resize is in progress: %t; sizes: %d", m.Resize.InProgress, len(in.Sizes))
	case ruleGrace:
		if m.StopBegan.IsZero() {
			f.add("the end has not begun")
		} else {
			f.add("the end began at %s with %s", t.at(m.StopBegan), m.StopGrace)
		}
	case ruleStrays, ruleStop, rulePrune, ruleHooks, ruleClear:
		t.sawAll(&f)
	}
	t.sawFlights(&f, container)
	return f.String()
}

func (t *turn) sawEnd(f *facts) {
	in, m := t.in, t.in.Memory
	if in.Pod == nil {
		f.add("no source has the pod; every source has answered: %t", in.Node.SourcesReady)
		return
	}
	if at := in.Pod.DeletionTimestamp; at != nil {
		f.add("deletion until %s", t.at(at.Time))
	} else {
		f.add("no deletion")
	}
	if m.Stop != nil {
		f.add("the node stops the pod: %s", m.Stop.Reason)
	}
	f.add("phase in the API: %q; finished: %t; the end began: %t", in.Pod.Status.Phase, m.Finished, !m.StopBegan.IsZero())
	if in.Stale {
		f.add("the inspection is older than the last outcome, so nothing may start")
	}
	if in.Node.Predecessor {
		f.add("an earlier pod of the same name remains, so nothing may start")
	}
}

// sawContainer adds the facts about a container on which its rule depends.
func (t *turn) sawContainer(f *facts, name string) {
	inst, cm := t.in.Observed.Newest(name), t.memory(name)
	if inst == nil {
		f.add("the runtime does not have it")
	} else {
		text := fmt.Sprintf("attempt %d %s", inst.Attempt, inst.State)
		switch inst.State {
		case pod.StateExited:
			text += fmt.Sprintf(" with code %d at %s", inst.ExitCode, t.at(inst.FinishedAt))
		case pod.StateRunning:
			text += " since " + t.at(inst.StartedAt)
		case pod.StateCreated, pod.StateUnknown:
		}
		f.add("%s", text)
		if !t.inSandbox(inst) {
			f.add("not in the present sandbox")
		}
		if t.changed(inst) {
			f.add("made from another definition")
		}
		said := t.in.Probed.Of(inst)
		f.add("probes: started=%t ready=%t", said.Started, said.Ready)
		if said.Failed.Cause != pod.CauseNone {
			f.add("failed probe: %s", said.Failed.Cause)
		}
		if e := t.in.Memory.Ends.of(inst.ID); e != nil {
			f.add("its end began at %s (%s)", t.at(e.Began), e.Cause)
		}
	}
	f.add("image: pulled=%t", cm.Pulled)
	for _, b := range []struct {
		what string
		at   time.Time
	}{{"crash", cm.CrashUntil}, {"pull", cm.PullUntil}, {"start", cm.StartUntil}, {"stop", cm.StopUntil}} {
		if !b.at.IsZero() {
			f.add("back-off after a %s: until %s", b.what, t.at(b.at))
		}
	}
}

// sawAll lists the containers that the runtime has.
func (t *turn) sawAll(f *facts) {
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		f.add("%s attempt=%d %s", c.Name, c.Attempt, c.State)
	}
	if len(t.in.Observed.Containers) == 0 {
		f.add("no container")
	}
}

// sawRetry adds the back-off of failed actions of these kinds.
func (t *turn) sawRetry(f *facts, ops ...pod.Op) {
	for i := range t.in.Memory.Retry {
		r := &t.in.Memory.Retry[i]
		for _, op := range ops {
			if r.Op == op && t.in.Now.Before(r.Until) {
				f.add("back-off of %s: until %s", op, t.at(r.Until))
			}
		}
	}
}

// sawFlights adds the actions in flight: of one container, or of the pod if container is empty.
func (t *turn) sawFlights(f *facts, container string) {
	for _, a := range t.in.InFlight {
		if a.Container == container {
			f.add("in flight: %s", a.Key())
		}
	}
}
