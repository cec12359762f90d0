package decide_test

import (
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// invariant is a statement that must be true in every state that the search reaches.
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
	invPolicy        invariant = "a container that its restart policy leaves ended is not started again"
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
	invUnhealthy     invariant = "a container that failed its liveness or startup probe is stopped, whatever else the pod waits for"
	invTruth         invariant = "the API's status converges to the runtime's truth"
	invRefused       invariant = "the API server accepts every status"
	invCounts        invariant = "a restart count never falls"
	invFinalStatus   invariant = "a terminal phase is reported only when nothing runs"
	invRestartAll    invariant = "a RestartAllContainers rule restarts all containers"
	invEphemeral     invariant = "an ephemeral container runs once"
	invAdmission     invariant = "nothing begins before the node has admitted the pod"
	invRoom          invariant = "no container has more than its pod's group"
	invSize          invariant = "a running container gets the resources that the node has accepted"
	invSandboxBefore invariant = "a container starts in a ready sandbox, with its volumes"
)

// invariants are the invariants that the search checks. planted_test.go has at least one bug that breaks each invariant.
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

// record holds the true history of one container name. It belongs to the oracle: the part of these tests that knows what really happened,
// even if the agent cannot know it.
type record struct {
	name     string
	tried    int    // highest attempt that was created; -1: none
	reserved int    // highest attempt whose name the runtime may still have reserved, so that this agent must not use it again; -1: none
	upIn     string // the sandbox in which the container completed (init) or started (sidecar)
	ran      bool   // an instance has run
	ended    bool   // the newest instance that ran has ended
	replaced bool   // the agent ended the newest instance in order to start another, whatever its exit code
	sandbox  string // the sandbox of the newest instance that ran
	code     int32
	at       time.Time // when the newest instance ended
	ends     int       // number of ends in a row that count for the back-off
}

// fate holds the true history of one container instance, for the oracle of these tests (see record).
type fate struct {
	id          string
	doomed      bool // a probe or the postStart hook of the instance failed, so the container has to be restarted
	reason      bool // there was a reason to stop the instance
	termed      bool // a StopContainer for the instance was planned
	hooked      int  // how often the preStop hook was begun since the agent last crashed
	hookDone    bool
	postStarted int // how often the postStart hook was begun since the agent last crashed
	postDone    bool
	resized     bool          // the agent ended the instance because the container gets new resources
	owed        bool          // the agent ended the instance in order to start another
	condemned   bool          // the instance existed when a RestartAllContainers rule applied
	killBegan   time.Time     // when the agent first began to end the instance although the pod continues to run
	killGrace   time.Duration // the grace period of the instance at the time killBegan
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

// checkPlan checks the invariants of a single plan.
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
	unknown := in.Pod == nil && !in.Node.SourcesReady // it is not known whether the pod is wanted, so nothing may be done
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

// checkConsistent checks that all actions of a plan may begin at once, in any order.
func (w *world) checkConsistent(in *decide.Input, plan *decide.Plan) {
	cancelable := []pod.Op{pod.OpPullImage, pod.OpPostStart, pod.OpPreStop} // other actions are calls of CRI that run to their end
	for _, c := range plan.Cancel {
		if !slices.Contains(cancelable, c.Op) {
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

// clash reports whether the actions a and b must not begin in the same plan. The caller also asks with a and b exchanged.
func clash(in *decide.Input, a, b pod.Action) bool {
	sameID := a.ID != "" && a.ID == b.ID
	switch a.Op {
	case pod.OpStopContainer:
		return sameID // no other action on the same container may begin together with its stop
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

// leastGrace returns the smallest timeout of a StopContainer: Policy.MinGrace, or nothing if the node has to kill the pod at once.
func leastGrace(in *decide.Input) time.Duration {
	if s := in.Memory.Stop; s != nil && s.AtOnce {
		return 0
	}
	return in.Policy.MinGrace
}

// checkGrace checks that the timeout of a stop is not longer than the rest of the grace period in the plan, and not shorter than
// leastGrace.
func (w *world) checkGrace(in *decide.Input, plan *decide.Plan, a pod.Action) {
	if a.Op != pod.OpStopContainer && a.Op != pod.OpPreStop {
		return
	}
	left := plan.StopBegan.Add(plan.StopGrace).Sub(in.Now)
	switch {
	case a.Op == pod.OpStopContainer && a.Grace < leastGrace(in):
		w.breaks(invLeastGrace, "%v has less than the smallest grace", a)
	case plan.Ending && a.Grace > max(left, leastGrace(in)):
		w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
	case plan.Ending && a.Op == pod.OpPreStop && a.Grace > left:
		w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
	}
}
