package decide_test

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
)

// invariant is a sentence that holds in every state that a search reaches. planted_test.go has a bug for each.
type invariant string

const (
	invOneInstance   invariant = "a container never has two live instances"
	invStartedOnce   invariant = "nothing is started twice"
	invEnding        invariant = "nothing starts while a pod terminates"
	invFresh         invariant = "nothing starts on an inspection older than what was done"
	invPredecessor   invariant = "two pods of one full name never overlap"
	invInitFirst     invariant = "a main container starts only after its init containers"
	invInitOrder     invariant = "init containers and sidecars start in order, each after the one before it"
	invInitOnce      invariant = "an init container that has completed does not run again in its sandbox"
	invAttempts      invariant = "attempts only grow"
	invTerminal      invariant = "a terminal phase is never left"
	invNeverBack     invariant = "an ending pod never comes back"
	invLeastGrace    invariant = "a container gets the time that was asked for"
	invMostGrace     invariant = "a container gets no more time than was asked for"
	invSidecarsLast  invariant = "sidecars stop after the main containers, in reverse order"
	invPolicy        invariant = "what its restart policy leaves ended is not started again"
	invBackOff       invariant = "a restart waits for its back-off"
	invNeedless      invariant = "nothing is stopped without a reason"
	invPreStop       invariant = "a preStop hook runs before TERM, once"
	invPostStart     invariant = "a postStart hook runs once after each start"
	invSources       invariant = "nothing is stopped as unwanted before every source has answered"
	invUnder         invariant = "nothing is taken away from under a living container"
	invPlan          invariant = "a plan never contradicts itself"
	invWhy           invariant = "every action has a reason"
	invIdle          invariant = "a plan with its actions in flight is empty"
	invWake          invariant = "a plan wakes the pod in the future, or not at all"
	invPure          invariant = "a decision writes to nothing"
	invProgress      invariant = "with a friendly environment a pod reaches its wanted end"
	invRest          invariant = "with a friendly environment a pod comes to rest"
	invLeft          invariant = "nothing of a deleted pod stays"
	invUnhealthy     invariant = "a container that failed its liveness or startup probe does not run on"
	invTruth         invariant = "the API's status converges to the runtime's truth"
	invRefused       invariant = "a status is one that the API server takes"
	invCounts        invariant = "a restart count never falls"
	invFinalStatus   invariant = "a terminal phase is reported only when nothing runs"
	invRestartAll    invariant = "a RestartAllContainers rule restarts all containers"
	invEphemeral     invariant = "an ephemeral container runs once"
	invAdmission     invariant = "nothing begins before the node has admitted the pod"
	invRoom          invariant = "no container has more than its pod's group"
	invSize          invariant = "what runs gets what the node has accepted"
	invSandboxBefore invariant = "a container starts in a ready sandbox, with its volumes"
)

// invariants are those of the search; each has at least one planted bug.
var invariants = []invariant{
	invOneInstance, invStartedOnce, invEnding, invFresh, invPredecessor, invInitFirst, invInitOrder, invInitOnce, invAttempts,
	invTerminal, invNeverBack, invLeastGrace, invMostGrace, invSidecarsLast, invPolicy, invBackOff, invNeedless, invPreStop,
	invPostStart, invSources, invUnder, invPlan, invWhy, invIdle, invWake, invPure, invProgress, invRest, invLeft, invUnhealthy,
	invTruth, invRefused, invCounts, invFinalStatus, invRestartAll, invEphemeral, invAdmission, invSandboxBefore,
	invRoom, invSize,
}

// breach is an invariant that did not hold.
type breach struct {
	inv  invariant
	text string
}

// record is what the oracle keeps of one container name: what really happened, whatever the agent knows of it.
type record struct {
	name     string
	tried    int    // highest attempt made; -1: none
	reserved int    // highest attempt that the runtime may keep the name of, as this agent must know; -1: none
	upIn     string // the sandbox in which it completed (init) or started (sidecar)
	ran      bool   // an instance has run
	ended    bool   // the newest instance that ran has ended
	replaced bool   // it was ended to start again, whatever it ended with
	sandbox  string // of the newest instance that ran
	code     int32
	at       time.Time // when it ended
	ends     int       // ends in a row that owe a back-off
}

// fate is what the oracle keeps of one instance.
type fate struct {
	id          string
	doomed      bool // a probe or its postStart hook failed: it has to be restarted
	reason      bool // there was a reason to stop it
	termed      bool // a StopContainer for it was planned
	hooked      int  // how often its preStop hook was begun since the last crash
	hookDone    bool
	postStarted int // how often its postStart hook was begun since the last crash
	postDone    bool
	resized     bool          // it was told to end for its new resources
	owed        bool          // it was told to end so that it starts again
	condemned   bool          // it existed when a rule restarted all
	killBegan   time.Time     // when it was first told to end while its pod goes on
	killGrace   time.Duration // what was asked for then
}

func (w *world) record(name string) *record {
	for i := range w.records {
		if w.records[i].name == name {
			return &w.records[i]
		}
	}
	w.records = append(w.records, record{name: name, tried: -1, reserved: -1})
	return &w.records[len(w.records)-1]
}

func (w *world) fate(id string) *fate {
	for i := range w.fates {
		if w.fates[i].id == id {
			return &w.fates[i]
		}
	}
	w.fates = append(w.fates, fate{id: id})
	return &w.fates[len(w.fates)-1]
}

// checkPlan holds what must be true of every plan.
func (w *world) checkPlan(in *decide.Input, plan *decide.Plan) {
	starting := map[string]int{}
	count := func(a pod.Action) {
		switch a.Op {
		case pod.OpStartContainer:
			starting[a.Container]++
		case pod.OpRunSandbox:
			starting[""]++
		default:
		}
	}
	for _, a := range in.InFlight {
		count(a)
	}
	for i, a := range plan.Do {
		if a.Why == "" {
			w.breaks(invWhy, "%v has no reason", a)
		}
		if slices.ContainsFunc(in.InFlight, func(o pod.Action) bool { return o.Key() == a.Key() }) ||
			slices.ContainsFunc(plan.Do[:i], func(o pod.Action) bool { return o.Key() == a.Key() }) {
			w.breaks(invStartedOnce, "%v is planned twice", a)
		}
		count(a)
		if a.Op.Starts() {
			w.checkStart(in, plan, a)
		}
		w.checkGrace(in, plan, a)
	}
	for name, n := range starting {
		if n > 1 {
			w.breaks(invStartedOnce, "two starts of %q at once", name)
		}
	}
	w.checkConsistent(in, plan)
	if !plan.WakeAt.IsZero() && !plan.WakeAt.After(in.Now) {
		w.breaks(invWake, "it is to be woken %s ago", in.Now.Sub(plan.WakeAt))
	}
	unknown := in.Pod == nil && !in.Node.SourcesReady // whether it is wanted: nothing may be done
	if w.terminal && !plan.Ending && !unknown {
		w.breaks(invNeverBack, "an ending pod came back")
	}
	w.terminal = w.terminal || plan.Ending
	if w.strict {
		w.checkStops(in, plan)
	}
}

func (w *world) checkStart(in *decide.Input, plan *decide.Plan, a pod.Action) {
	switch {
	case plan.Ending:
		w.breaks(invEnding, "%v while the pod ends", a)
	case in.Stale:
		w.breaks(invFresh, "%v on an old inspection", a)
	case in.Node.Predecessor:
		w.breaks(invPredecessor, "%v while its predecessor is here", a)
	case !in.Memory.Admitted && len(in.Observed.Sandboxes) == 0:
		w.breaks(invAdmission, "%v before admission", a)
	}
}

// checkConsistent holds that a plan's actions may all begin at once, in any order.
func (w *world) checkConsistent(in *decide.Input, plan *decide.Plan) {
	for _, c := range plan.Cancel {
		if !c.Op.Cancelable() {
			w.breaks(invPlan, "%v cannot be cancelled", c)
		}
		if !slices.ContainsFunc(in.InFlight, func(a pod.Action) bool { return a.Key() == c.Key() }) {
			w.breaks(invPlan, "%v is cancelled and not in flight", c)
		}
	}
	all := plan.Do
	for i, a := range all {
		for _, b := range all[i+1:] {
			if clash(in, a, b) || clash(in, b, a) {
				w.breaks(invPlan, "%v beside %v", a, b)
			}
		}
	}
}

// clash reports whether two actions must not begin together.
func clash(in *decide.Input, a, b pod.Action) bool {
	sameID := a.ID != "" && a.ID == b.ID
	switch a.Op {
	case pod.OpStopContainer:
		return sameID // with whatever else
	case pod.OpPreStop, pod.OpPostStart, pod.OpRemoveContainer:
		return sameID
	case pod.OpStartContainer:
		old := in.Observed.ByID(b.ID)
		return sameID || (old != nil && old.Name == a.Container && (b.Op == pod.OpStopContainer || b.Op == pod.OpPreStop)) ||
			b.Op == pod.OpRunSandbox
	case pod.OpRunSandbox, pod.OpTearDown, pod.OpForget:
		switch b.Op {
		case pod.OpStopContainer, pod.OpStopSandbox, pod.OpPreStop, pod.OpSetUp, pod.OpRunSandbox, pod.OpTearDown, pod.OpForget:
			return true
		default:
		}
	case pod.OpStopSandbox:
		old := in.Observed.ByID(b.ID)
		return b.Op == pod.OpStartContainer || (old != nil && old.SandboxID == a.ID && b.Op == pod.OpStopContainer)
	case pod.OpRemoveSandbox:
		return sameID
	case pod.OpNone, pod.OpSetUp, pod.OpPullImage, pod.OpResize:
	}
	return false
}

// checkGrace holds that what is given is what is left of the grace period, as the plan itself counts it.
func (w *world) checkGrace(in *decide.Input, plan *decide.Plan, a pod.Action) {
	if a.Op != pod.OpStopContainer && a.Op != pod.OpPreStop {
		return
	}
	left := plan.StopBegan.Add(plan.StopGrace).Sub(in.Now)
	switch {
	case a.Op == pod.OpStopContainer && a.Grace < w.pol.MinGrace:
		w.breaks(invLeastGrace, "%v has less than the smallest grace", a)
	case plan.Ending && a.Grace > max(left, w.pol.MinGrace):
		w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
	case plan.Ending && a.Op == pod.OpPreStop && a.Grace > left:
		w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
	}
}

// checkStops holds, from what really happened, that what a plan stops has a reason, in its order, with its time.
func (w *world) checkStops(in *decide.Input, plan *decide.Plan) {
	if in.Pod == nil && !in.Node.SourcesReady && !w.orphaned && len(plan.Do) > 0 {
		w.breaks(invSources, "%v before every source has answered", plan.Do[0])
	}
	w.orphaned = w.orphaned || (in.Pod == nil && in.Node.SourcesReady)
	if plan.Ending {
		w.checkEnd(plan)
	}
	if !plan.Ending && in.Pod != nil && !right(in.Observed.Sandboxes) {
		w.joinsTheEnd(in.Observed.Containers)
	}
	for _, a := range plan.Do {
		switch a.Op {
		case pod.OpPostStart:
			f := w.fate(a.ID)
			if f.postStarted++; f.postStarted > 1 {
				w.breaks(invPostStart, "%v for the second time", a)
			}
		case pod.OpPreStop, pod.OpStopContainer:
			w.checkStop(in, plan, a)
		default:
		}
	}
}

// checkEnd holds that the pod has a reason to end, and keeps the clock of its grace period.
func (w *world) checkEnd(plan *decide.Plan) {
	if w.endBegan.IsZero() {
		w.endBegan, w.asked = w.now, time.Duration(1<<62)
		if !w.mayEnd() {
			w.breaks(invNeedless, "the pod ends (%s)", plan.Why)
		}
	}
	if w.pod == nil {
		return
	}
	asked := decide.DefaultGrace
	if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		asked = time.Duration(*s) * time.Second
	}
	if s := w.pod.DeletionGracePeriodSeconds; s != nil {
		asked = time.Duration(*s) * time.Second
	}
	if s := w.mem.Stop; s != nil && s.Grace != nil {
		asked = min(asked, *s.Grace)
	}
	w.asked = min(w.asked, max(asked, time.Second)) // to end at once is to have one second
}

// mayEnd reports whether there is a reason for the whole pod to end.
func (w *world) mayEnd() bool {
	p := w.pod
	if p == nil || w.orphaned || p.DeletionTimestamp != nil || w.evicted || terminalPhase(p.Status.Phase) {
		return true
	}
	if ads := p.Spec.ActiveDeadlineSeconds; ads != nil && !w.now.Before(epoch.Add(time.Duration(*ads)*time.Second)) {
		return true
	}
	done := len(p.Spec.Containers) > 0
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		r := w.record(c.Name)
		done = done && r.ran && r.ended && !r.replaced && !mayRunAgain(&p.Spec, c, r.code)
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		r := w.record(c.Name)
		done = done || (r.ran && r.ended && r.code != 0 && !decide.IsSidecar(c) && !mayRunAgain(&p.Spec, c, r.code))
	}
	if p.Spec.RestartPolicy == v1.RestartPolicyNever && !w.sandboxRight() { // nothing of it may run again elsewhere
		done = done || slices.ContainsFunc(w.records, func(r record) bool { return r.tried >= 0 })
	}
	return done
}

func terminalPhase(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// mayRunAgain is the restart policy, said a second time and otherwise: container rules, container policy, pod policy.
func mayRunAgain(spec *v1.PodSpec, c *v1.Container, code int32) bool {
	policy := string(spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = string(*c.RestartPolicy)
		for _, rule := range c.RestartPolicyRules {
			listed := slices.Contains(rule.ExitCodes.Values, code)
			if listed == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
				return true
			}
		}
	}
	return policy == "Always" || (policy == "OnFailure" && code != 0)
}

// checkStop holds one stop, or hook before a stop, against what happened.
func (w *world) checkStop(in *decide.Input, plan *decide.Plan, a pod.Action) {
	c, f := w.byID(a.ID), w.fate(a.ID)
	if c == nil {
		return
	}
	if !plan.Ending && !f.reason && !w.mayStop(c, f) {
		w.breaks(invNeedless, "%v", a)
	}
	f.reason = true
	f.owed = f.owed || (!plan.Ending && !f.condemned && w.owesStart(c))
	f.resized = f.resized || a.Why == decide.WhyResizeRestart
	if !plan.Ending && !f.condemned {
		w.beginsToEnd(c, f)
	}
	until := w.stopsBy(in, plan, c, f)
	left := until.Sub(in.Now)
	if a.Op == pod.OpPreStop {
		if f.hooked++; f.hooked > 1 {
			w.breaks(invPreStop, "%v for the second time", a)
		}
		if a.Grace > left {
			w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
		}
		if a.Grace < left {
			w.breaks(invLeastGrace, "%v has less than the %s that are left", a, left)
		}
		return
	}
	if c.PreStop && left > 0 && !f.hookDone && !f.termed && in.Observed.ByID(a.ID).State == pod.StateRunning {
		w.breaks(invPreStop, "%v before its hook", a)
	}
	f.termed = true
	switch {
	case a.Grace < left:
		w.breaks(invLeastGrace, "%v has less than the %s that are left", a, left)
	case a.Grace > max(left, w.pol.MinGrace):
		w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
	case plan.Ending && left > 0 && in.Pod != nil:
		w.checkLast(in, a)
	}
}

// stopsBy is when a container's time is over, from what was asked and when its end began.
func (w *world) stopsBy(in *decide.Input, plan *decide.Plan, c *pod.Container, f *fate) time.Time {
	if plan.Ending {
		grace := w.asked
		switch {
		case in.Pod == nil && c.Grace >= 0:
			grace = min(grace, max(c.Grace, time.Second))
		case in.Pod == nil:
			grace = min(grace, decide.DefaultGrace)
		}
		return w.endBegan.Add(grace)
	}
	if f.condemned { // a rule restarts all: that takes no time
		return in.Now
	}
	return f.killBegan.Add(f.killGrace)
}

// beginsToEnd starts the clock of a container that is told to end while its pod goes on: all that live in a sandbox that is not
// right begin together, though sidecars wait for their turn.
func (w *world) beginsToEnd(c *pod.Container, f *fate) {
	if f.killBegan.IsZero() {
		f.killBegan, f.killGrace = w.now, w.aloneGrace(c)
	}
	if w.sandboxRight() {
		return
	}
	for i := range w.containers {
		o := &w.containers[i]
		if x := w.fate(o.ID); o.Alive() && x.killBegan.IsZero() {
			x.killBegan, x.killGrace = w.now, w.aloneGrace(o)
		}
	}
}

// joinsTheEnd starts the clock of a container that comes to run while others of its sandbox, which is not right, end already: as
// theirs began when they were told, its begins when it is seen.
func (w *world) joinsTheEnd(seen []pod.Container) {
	ends := func(c pod.Container) bool { return !w.fate(c.ID).killBegan.IsZero() }
	if !slices.ContainsFunc(seen, ends) {
		return
	}
	for i := range seen {
		if x := w.fate(seen[i].ID); seen[i].Alive() && x.killBegan.IsZero() {
			x.killBegan, x.killGrace = w.now, w.aloneGrace(&seen[i])
		}
	}
}

// aloneGrace is the grace period of a probe that failed, where that has one, else the pod's.
func (w *world) aloneGrace(c *pod.Container) time.Duration {
	grace := decide.DefaultGrace
	if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if h := w.healthOf(c.ID); h != nil && h.sick {
		if spec := w.spec(c.Name); spec != nil {
			probe := spec.LivenessProbe
			if !h.started && spec.StartupProbe != nil {
				probe = spec.StartupProbe
			}
			if probe != nil && probe.TerminationGracePeriodSeconds != nil {
				grace = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
			}
		}
	}
	return grace
}

// owesStart reports whether a main container that is told to end now starts again though it may end with 0: it is to run
// as its spec says now, or its policy is not Never and it was not its own decision to end.
func (w *world) owesStart(c *pod.Container) bool {
	spec := w.spec(c.Name)
	if spec == nil || w.newest(c.Name).ID != c.ID || ephemeral(w.pod, c.Name) || w.completes(c.Name) {
		return false
	}
	if w.resizeRestarts(c) || (w.hashes[c.Name] != "" && c.SpecHash != "" && w.hashes[c.Name] != c.SpecHash) {
		return true
	}
	never := w.pod.Spec.RestartPolicy == v1.RestartPolicyNever
	if spec.RestartPolicy != nil {
		never = *spec.RestartPolicy == v1.ContainerRestartPolicyNever
	}
	h := w.healthOf(c.ID)
	return !never && (h != nil && h.sick || c.State == pod.StateUnknown || !w.sandboxRight() || c.SandboxID != w.sandboxes[0].ID)
}

// resizeRestarts reports whether a container has other memory than it should, and a policy that restarts it for that.
func (w *world) resizeRestarts(c *pod.Container) bool {
	spec := w.spec(c.Name)
	return spec != nil && len(spec.ResizePolicy) > 0 && w.given[c.ID].MemoryLimit != w.size(c.Name).MemoryLimit
}

// mayStop reports whether there is a reason to stop one container of a pod that goes on.
func (w *world) mayStop(c *pod.Container, f *fate) bool {
	newest := w.newest(c.Name)
	return f.doomed || f.condemned || c.State == pod.StateUnknown || w.spec(c.Name) == nil || newest.ID != c.ID ||
		w.resizeRestarts(c) || (w.hashes[c.Name] != "" && c.SpecHash != "" && w.hashes[c.Name] != c.SpecHash) ||
		!w.sandboxRight() || c.SandboxID != w.sandboxes[0].ID
}

// sandboxRight reports whether the newest sandbox is the only one that is ready, and has its address.
func (w *world) sandboxRight() bool { return right(w.sandboxes) }

func right(sandboxes []pod.Sandbox) bool {
	for i, sb := range sandboxes {
		if sb.Ready != (i == 0) {
			return false
		}
	}
	return len(sandboxes) > 0 && (len(sandboxes[0].IPs) > 0 || sandboxes[0].HostNetwork)
}

// checkLast holds the order in which an ending pod's containers are told to end.
func (w *world) checkLast(in *decide.Input, a pod.Action) {
	rank := func(name string) int {
		return slices.IndexFunc(in.Pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && decide.IsSidecar(&c) })
	}
	mine := rank(a.Container)
	if mine < 0 {
		return
	}
	for _, o := range in.Observed.Containers {
		ephemeral := slices.ContainsFunc(in.Pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == o.Name })
		if other := rank(o.Name); o.Name != a.Container && o.State == pod.StateRunning && !ephemeral && (other < 0 || other > mine) {
			w.breaks(invSidecarsLast, "%v while %s runs", a, o.ID)
		}
	}
}
