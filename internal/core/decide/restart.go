package decide

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// This file says for which causes the agent ends a container, how much time the container gets to end, what decides
// whether it starts again, and what its Killing event says. To change what happens after a failed liveness probe, for example, change the
// row of pod.CauseLiveness in the table, and look at the script testdata/decide/liveness-failure-restarts.txt.
//
//	Input.Observed, Hashes, Sizes ─┐               killFor             exited
//	results of probes and hooks ───┼─► causeOf ──► grace, preStop, ──► starts again? ──► start
//	                               │               StopContainer       after its back-off
//	Memory.Ends ───────────────────┘
//
// How a container is stopped is in kill.go, how long the back-off is in backoff.go, what a restart policy says in policy.go.

// rule is a row of the table of causes.
type rule struct {
	cause pod.Cause
	grace grace
	again again
	why   pod.Why
	// event is the message of the Killing event, in the words that tools parse: see Killing. If it is empty, messageStopping is used.
	event string
}

// grace says which grace period a container gets.
type grace uint8

const (
	gracePod   grace = iota // terminationGracePeriodSeconds of the pod; while the pod ends, the rest of its grace period
	graceProbe              // the grace period of the failed probe, or else of the pod
	graceNone               // no grace period and no preStop hook
)

// again says whether a container that was ended for a cause starts again, or what decides this.
type again uint8

const (
	byPolicy    again = iota // the exit code decides, by the container's restart rules and restart policy
	unlessNever              // the container starts again after any exit code; with the restart policy Never, byPolicy applies
	always                   // it starts again under any restart policy, because its definition or resources changed; its end is no crash
)

// rules is the table of causes. A row sets only the columns that differ from their zero value.
var rules = [...]rule{
	// These causes end one container, which differs from its spec or has failed. causeOf says when each of them applies.
	{pod.CauseSandbox, gracePod, unlessNever, WhyStray, ""},
	{pod.CauseUnknown, gracePod, unlessNever, WhyUnknown, ""},
	{pod.CauseChanged, gracePod, always, WhyChanged, "$Container definition changed$again"},
	{pod.CauseResize, gracePod, always, WhyResizeRestart, "Container $name resize requires restart"},
	{pod.CauseStartup, graceProbe, unlessNever, WhyStartup, "$Container failed startup probe$again"},
	{pod.CauseLiveness, graceProbe, unlessNever, WhyLiveness, "$Container failed liveness probe$again"},
	{pod.CausePostStart, gracePod, byPolicy, WhyPostStartFailed, "FailedPostStartHook"},
	// A stray container is one that the spec does not have, or one that a newer instance has replaced. It does not start again.
	{cause: pod.CauseStray, why: WhyStray},
	// All containers of the pod end, are removed and start again. restartAllTriggered says when.
	{cause: pod.CauseRestartAll, grace: graceNone, why: WhyRestartAll},
	// These causes end the whole pod within the rest of its grace period, and nothing starts again. (*turn).end says when each applies.
	{cause: pod.CauseUnwanted, why: WhyUnwanted},
	{cause: pod.CauseRejected, why: WhyRejected},
	{cause: pod.CauseDeleted, why: WhyDeleted},
	{cause: pod.CauseDeadline, why: WhyDeadline},
	{cause: pod.CauseStopped, why: WhyStopped},
	{cause: pod.CauseTerminal, why: WhyTerminal},
	{cause: pod.CauseFinished, why: WhyFinished},
	{cause: pod.CauseInitFailed, why: WhyInitFailed},
	{cause: pod.CauseSandboxLost, why: WhyCannotRestart},
}

// ruleOf returns the rule of a cause. For CauseNone, and for a cause that only an older version of the agent had, it returns a rule
// without text and effect.
func ruleOf(c pod.Cause) rule {
	for i := range rules {
		if rules[i].cause == c {
			return rules[i]
		}
	}
	return rule{}
}

// causeOf returns the cause for which a container that is alive has to end, or CauseNone. If several apply, it returns the first. spec is
// nil if the pod's spec does not have the container.
func (t *turn) causeOf(spec *v1.Container, inst *pod.Container) pod.Cause {
	cm, failed := t.memory(inst.Name), t.in.Probed.Of(inst).Failed
	switch {
	case spec != nil && !t.inSandbox(inst):
		return pod.CauseSandbox
	case spec == nil || t.in.Observed.Newest(inst.Name).ID != inst.ID:
		return pod.CauseStray
	case inst.State == pod.StateUnknown:
		return pod.CauseUnknown
	case t.changed(inst):
		return pod.CauseChanged
	case t.resizeRestarts(spec, inst):
		return pod.CauseResize
	case failed.Cause != pod.CauseNone:
		return failed.Cause // CauseStartup or CauseLiveness
	case cm.PostStartedID == inst.ID && cm.PostStartFailed:
		return pod.CausePostStart
	}
	return pod.CauseNone
}

// stopStrays ends the containers that are alive and should not run: containers in another sandbox than the pod's, containers that a newer
// instance has replaced, and containers that the spec does not have.
func (t *turn) stopStrays() {
	if t.sandbox == nil {
		return
	}
	for i := range t.in.Observed.Containers {
		c := &t.in.Observed.Containers[i]
		if !t.alive(c) {
			continue
		}
		if cause := t.causeOf(pod.SpecOf(t.in.Pod, c.Name), c); cause == pod.CauseSandbox || cause == pod.CauseStray {
			t.killFor(cause, ruleOf(cause).why, c, false)
		}
	}
}

// running decides about a container that is alive. It ends the container if there is a cause for that, or if an earlier turn has begun to
// end it, even if the cause no longer applies. Otherwise it runs the container's postStart hook, unless the hook is done.
func (t *turn) running(c *v1.Container, inst *pod.Container, cm *ContainerMemory) step {
	cause, end := t.causeOf(c, inst), t.in.Memory.Ends.of(inst.ID)
	switch {
	case cause != pod.CauseNone:
		t.killFor(cause, ruleOf(cause).why, inst, false)
		return stepBusy
	case end != nil:
		t.killFor(end.Cause, WhySuperseded, inst, false)
		return stepBusy
	case t.stopping(inst.ID), cm.PreStoppedID == inst.ID, cm.StopID == inst.ID:
		t.killFor(pod.CauseNone, WhySuperseded, inst, false)
		return stepBusy
	case !PostStartDone(c, cm, t.in.Probed.Of(inst), inst) && !t.wasStarted(c.Name, inst):
		t.begin(pod.Action{Op: pod.OpPostStart, Container: c.Name, ID: inst.ID, Why: WhyPostStart})
		return stepBusy
	}
	return stepUp
}

// killFor ends one container for a cause, within the grace period of the cause's rule, and plans that the container starts again if the
// rule says so. blocked is true if the container must not be stopped before other containers have ended.
func (t *turn) killFor(cause pod.Cause, why pod.Why, inst *pod.Container, blocked bool) {
	begun := len(t.plan.Do)
	t.kill(inst, t.graceLeft(inst, cause), cause, why, blocked)
	if len(t.plan.Do) > begun {
		t.replace(cause, inst)
	}
}

// graceLeft returns what is left of the grace period of a container. When the container ends alone, the period starts when the
// agent first decides to end it, and its length is fixed at that moment, so a probe that fails later does not change it. If the whole pod
// begins to end meanwhile, the container has the rest of the shorter period.
func (t *turn) graceLeft(c *pod.Container, cause pod.Cause) time.Duration {
	r, alone := ruleOf(cause), t.in.Memory.Ends.of(c.ID)
	switch {
	case t.ending && alone != nil:
		return min(t.left(), alone.left(t.in.Now))
	case t.ending:
		return t.left()
	case r.grace == graceNone:
		return 0
	case alone != nil:
		return alone.left(t.in.Now)
	}
	whole := specGrace(&t.in.Pod.Spec)
	if own := t.in.Probed.Of(c).Failed.Grace; r.grace == graceProbe && own != nil {
		whole = pod.Seconds(*own)
	}
	t.plan.Ends = append(t.plan.Ends, End{Name: c.Name, ID: c.ID, Cause: cause, Began: t.in.Now, Grace: whole, Decided: t.in.Now})
	return whole
}

// End describes a container instance that the agent ends although its pod continues to run: the cause, and when the grace period began.
type End struct {
	Name, ID string
	Cause    pod.Cause
	Began    time.Time
	Grace    time.Duration
	// Decided is when an agent first decided to end the instance. For the next agent the grace period begins anew (see Load), but Decided stays.
	// Zero: not known.
	Decided time.Time `json:",omitzero"`
}

// left returns the rest of the grace period. Even if the clock was set back, it returns no more than the whole grace period.
func (e *End) left(now time.Time) time.Duration { return min(e.Began.Add(e.Grace).Sub(now), e.Grace) }

// Ends lists the container instances that the agent ends although their pod continues to run.
type Ends []End

// of returns the End of an instance, or nil if the agent does not end that instance.
func (e Ends) of(id string) *End {
	for i := range e {
		if e[i].ID == id {
			return &e[i]
		}
	}
	return nil
}

// Unhealthy reports whether the agent ends an instance because its startup or liveness probe failed. The next agent knows this too.
func (e Ends) Unhealthy(id string) bool {
	end := e.of(id)
	return end != nil && (end.Cause == pod.CauseStartup || end.Cause == pod.CauseLiveness)
}

// begin adds an End, unless the list already has one for the same instance. It reports whether it added the End.
func (e *Ends) begin(end End) bool {
	if e.of(end.ID) != nil {
		return false
	}
	*e = append(*e, end)
	return true
}

// removed drops the End of an instance that no longer exists. replaced drops all Ends of a container that has started again.
func (e *Ends) removed(id string) {
	*e = slices.DeleteFunc(*e, func(end End) bool { return end.ID == id })
}

func (e *Ends) replaced(name string) {
	*e = slices.DeleteFunc(*e, func(end End) bool { return end.Name == name })
}

// tooLate reports whether an instance had ended by itself before the agent began to end it because a probe failed. The agent hears of an end a
// moment later, and in that moment a probe over the network fails, because nothing listens any more.
func (e Ends) tooLate(inst *pod.Container) bool {
	return e.Unhealthy(inst.ID) && !inst.FinishedAt.IsZero() && inst.FinishedAt.Before(e.of(inst.ID).Decided)
}

// replace plans that a container which is being ended starts again, if the cause's rule overrides the restart policy. It ignores
// init containers that are not sidecars (see inits), and ephemeral containers, which never start again.
func (t *turn) replace(cause pod.Cause, inst *pod.Container) {
	spec := pod.SpecOf(t.in.Pod, inst.Name)
	if spec == nil || t.isEphemeral(inst.Name) || t.isInit(spec) && !pod.IsSidecar(spec) || t.in.Observed.Newest(inst.Name).ID != inst.ID {
		return
	}
	switch ruleOf(cause).again {
	case unlessNever: // with the policy Always the container starts again anyway, and with Never it does not
		if restartPolicy(&t.in.Pod.Spec, spec) != v1.RestartPolicyOnFailure {
			return
		}
	case byPolicy:
		return
	case always:
	}
	t.plan.Replaced = append(t.plan.Replaced, Replacement{Name: inst.Name, ID: inst.ID, Cause: cause})
}

// Replacement is a container instance that the agent ends so that the container starts again, whatever the exit code is.
type Replacement struct {
	Name, ID string
	Cause    pod.Cause
}

// replaced reports whether the agent ended an instance in order to start the container again, and for which cause.
func (cm *ContainerMemory) replaced(id string) (pod.Cause, bool) {
	return cm.ReplacedFor, id != "" && cm.ReplacedID == id
}

// crash reports whether the end of a container counts as a crash, for its back-off, if the agent ended the container for the cause c in
// order to start it again. Checkpoints of older agents have no cause (CauseNone) for a changed or resized container, and other names for
// the other causes.
func crash(c pod.Cause) bool { return c != pod.CauseNone && ruleOf(c).again != always }

// exited starts a dead container again after its back-off, if the cause of its end or its restart policy demands this.
func (t *turn) exited(c *v1.Container, inst *pod.Container, cm *ContainerMemory, hold bool) step {
	why := WhyRestart
	switch cause, replaced := cm.replaced(inst.ID); {
	case replaced && !crash(cause):
		why = WhyRestartChanged
	case MayRestart(&t.in.Pod.Spec, c, exitCode(inst)):
	case replaced && !t.in.Memory.Ends.tooLate(inst):
		why = WhyRestartEnded
	default:
		return stepWait
	}
	if !t.passed(t.crashUntil(inst, cm)) {
		return stepWait
	}
	return t.start(c, cm, why, hold)
}

// StartsAgain reports whether a container whose instance inst ended will be started again, because the agent ended it in order to start it again,
// or because its restart policy demands it.
func StartsAgain(spec *v1.PodSpec, c *v1.Container, m *Memory, inst *pod.Container, exitCode int32) bool {
	if cm := m.Container(c.Name); cm != nil && !m.Ends.tooLate(inst) {
		if _, replaced := cm.replaced(inst.ID); replaced {
			return true
		}
	}
	return MayRestart(spec, c, exitCode)
}

// messageStopping is the message of a Killing event whose cause has no text of its own.
const messageStopping = "Stopping container $name"

// Killing returns the message of the Killing event of a container that ends for a cause: the event column of the table, with $name for
// the container, $Container for "Container NAME" or "Init container NAME", and $again for the announcement of a restart. p may be nil.
func Killing(p *v1.Pod, container string, cause pod.Cause) string {
	r := ruleOf(cause)
	title, promise := "Container ", ""
	switch kind, _, known := pod.KindOf(p, container); {
	case kind == pod.KindInit: // the event of an init container does not say that it will be restarted
		title = "Init container "
	case r.again == always, known && restartPolicy(&p.Spec, pod.SpecOf(p, container)) != v1.RestartPolicyNever:
		promise = ", will be restarted"
	}
	text := r.event
	if text == "" {
		text = messageStopping
	}
	return strings.NewReplacer("$name", container, "$Container", title+container, "$again", promise).Replace(text)
}
