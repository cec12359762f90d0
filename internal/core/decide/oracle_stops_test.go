package decide_test

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// checkStops checks that each stop in a plan has a reason in the true history of the pod, comes in the right order, and has the
// right grace period.
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
	if !plan.Ending && in.Pod != nil && right(in.Observed.Sandboxes) {
		w.checkFailed(in, plan)
	}
}

// checkFailed checks that each running container whose probe has failed is being stopped, in a pod that goes on.
func (w *world) checkFailed(in *decide.Input, plan *decide.Plan) {
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		if c.State != pod.StateRunning || in.Probed.Of(c).Failed.Cause == pod.CauseNone {
			continue
		}
		ends := func(a pod.Action) bool {
			return a.ID == c.ID && (a.Op == pod.OpStopContainer || a.Op == pod.OpPreStop)
		}
		stopped := slices.ContainsFunc(in.Memory.Containers, func(m decide.ContainerMemory) bool { return m.StopID == c.ID })
		if !stopped && !slices.ContainsFunc(plan.Do, ends) && !slices.ContainsFunc(in.InFlight, ends) {
			w.breaks(invUnhealthy, "the probe of %s has failed, and it is not stopped", c.ID)
		}
	}
}

// checkEnd checks that the pod has a reason to end, and notes when its grace period began.
func (w *world) checkEnd(plan *decide.Plan) {
	if w.endBegan.IsZero() {
		w.endBegan, w.asked = w.now, time.Duration(1<<62)
		if !w.mayEnd() {
			w.breaks(invNeedless, "the pod ends (%s)", plan.Why)
		}
	}
	if s := w.mem.Stop; s != nil && s.AtOnce {
		w.asked = 0
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
	w.asked = min(w.asked, max(asked, time.Second)) // a pod that has to end at once has a grace period of one second
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
		done = done || (r.ran && r.ended && r.code != 0 && !pod.IsSidecar(c) && !mayRunAgain(&p.Spec, c, r.code))
	}
	if p.Spec.RestartPolicy == v1.RestartPolicyNever && !w.sandboxRight() { // the pod may not run again in another sandbox, so it has to end
		done = done || slices.ContainsFunc(w.records, func(r record) bool { return r.tried >= 0 })
	}
	return done
}

func terminalPhase(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// mayRunAgain is a second implementation of the restart policy, for comparison: container rules, container policy, pod policy.
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

// checkStop checks that one stop, or the preStop hook before it, has a reason in the pod's history and the right grace period.
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
	case a.Grace > max(left, leastGrace(in)):
		w.breaks(invMostGrace, "%v has more than the %s that are left", a, left)
	case plan.Ending && left > 0 && in.Pod != nil:
		w.checkLast(in, a)
	}
}

// stopsBy returns the end of a container's grace period.
func (w *world) stopsBy(in *decide.Input, plan *decide.Plan, c *pod.Container, f *fate) time.Time {
	if plan.Ending {
		grace := w.asked
		switch {
		case in.Pod == nil && c.Grace >= 0:
			grace = min(grace, max(c.Grace, time.Second))
		case in.Pod == nil:
			grace = min(grace, decide.DefaultGrace)
		}
		until := w.endBegan.Add(grace)
		if alone := f.killBegan.Add(f.killGrace); !f.killBegan.IsZero() && alone.Before(until) { // the end of the pod gives the container no more time
			return alone
		}
		return until
	}
	if f.condemned { // a RestartAllContainers rule gives no grace period
		return in.Now
	}
	return f.killBegan.Add(f.killGrace)
}

// beginsToEnd starts the grace period of a container that the agent ends although its pod continues to run. If the sandbox is wrong, the
// grace periods of all living containers in it start together, although sidecars are stopped later.
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

// joinsTheEnd starts the grace period of a container that begins to run in a wrong sandbox while the agent already ends the other
// containers in that sandbox. The period starts when an inspection shows the container.
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

// aloneGrace returns the grace period of a container that the agent ends although the pod continues to run: the grace period of the failed
// probe if the probe has one, otherwise the pod's.
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

// owesStart reports whether a main container that the agent ends now has to start again even if it exits with 0: its spec
// changed, or the agent ends it and its policy is not Never.
func (w *world) owesStart(c *pod.Container) bool {
	spec := w.spec(c.Name)
	if spec == nil || w.newest(c.Name).ID != c.ID || ephemeral(w.pod, c.Name) || w.completes(c.Name) {
		return false
	}
	if w.resizeRestarts(c) || w.redefined(c) {
		return true
	}
	never := w.pod.Spec.RestartPolicy == v1.RestartPolicyNever
	if spec.RestartPolicy != nil {
		never = *spec.RestartPolicy == v1.ContainerRestartPolicyNever
	}
	h := w.healthOf(c.ID)
	return !never && (h != nil && h.sick || c.State == pod.StateUnknown || !w.sandboxRight() || c.SandboxID != w.sandboxes[0].ID)
}

// specHash returns the hash of a container with this image, in the version of the agent under test.
func specHash(image string) string { return "1-" + image }

// redefined reports whether the definition of a container changed since the container was created. It is false if the container's hash
// has another version than the agent's.
func (w *world) redefined(c *pod.Container) bool {
	return w.hashes[c.Name] != "" && strings.HasPrefix(c.SpecHash, "1-") && c.SpecHash != w.hashes[c.Name]
}

// resizeRestarts reports whether a container has a resize policy and its memory limit differs from the one that it should have. The resize
// policy of the pods in pods_test.go demands a restart when the memory changes.
func (w *world) resizeRestarts(c *pod.Container) bool {
	spec := w.spec(c.Name)
	return spec != nil && len(spec.ResizePolicy) > 0 && w.given[c.ID].MemoryLimit != w.size(c.Name).MemoryLimit
}

// mayStop reports whether there is a reason to stop one container although its pod continues to run.
func (w *world) mayStop(c *pod.Container, f *fate) bool {
	newest := w.newest(c.Name)
	return f.doomed || f.condemned || c.State == pod.StateUnknown || w.spec(c.Name) == nil || newest.ID != c.ID ||
		w.resizeRestarts(c) || w.redefined(c) ||
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

// checkLast checks the order in which the containers of an ending pod are stopped.
func (w *world) checkLast(in *decide.Input, a pod.Action) {
	rank := func(name string) int {
		return slices.IndexFunc(in.Pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && pod.IsSidecar(&c) })
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
