package decide_test

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
)

func (w *world) healthOf(id string) *health {
	for i := range w.health {
		if w.health[i].id == id {
			return &w.health[i]
		}
	}
	return nil
}

// probed lists the containers of the spec that may have probes and hooks.
func probed(p *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			out = append(out, c)
		}
	}
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	return out
}

// probe gives the agent the probe results, as the sync loop does at the beginning of a turn. A container has no results before its
// postStart hook is done. The first results of an instance are taken from the API status, if that shows the same instance.
func (w *world) probe() {
	if w.pod == nil {
		return
	}
	decide.Meet(&w.mem, w.pod, &w.observed)
	for _, c := range probed(w.pod) {
		inst := w.observed.Newest(c.Name)
		if inst == nil || inst.State != pod.StateRunning {
			continue
		}
		said := w.said.Of(inst)
		var before *v1.ContainerStatus
		if st := statusNamed(&w.pod.Status, c.Name); said.ID == "" && st != nil && decide.SameContainer(st.ContainerID, inst.ID) {
			before = st
		}
		if !decide.PostStartDone(c, w.mem.Container(c.Name), said, inst) && (before == nil || before.Started == nil || !*before.Started) {
			continue
		}
		if c.StartupProbe == nil && c.LivenessProbe == nil && c.ReadinessProbe == nil {
			w.said.Set(decide.Probed{Name: c.Name, ID: inst.ID, Started: true, Ready: true})
			continue
		}
		h := w.healthOf(inst.ID)
		if h == nil {
			w.health = append(w.health, health{id: inst.ID})
			h = &w.health[len(w.health)-1]
			h.started = c.StartupProbe == nil || (before != nil && before.Started != nil && *before.Started)
			h.ready = h.started && (c.ReadinessProbe == nil || (before != nil && before.Ready))
		}
		said = decide.Probed{Name: c.Name, ID: inst.ID, Started: h.started, Ready: h.ready}
		if h.sick {
			said.Failed = failedProbe(c, h.started)
		}
		w.said.Set(said)
	}
}

// failedProbe returns the failed probe of a container: the startup probe until that has succeeded, then the liveness probe. c may
// be nil.
func failedProbe(c *v1.Container, started bool) decide.FailedProbe {
	failed := decide.FailedProbe{Cause: pod.CauseLiveness}
	if c == nil {
		return failed
	}
	probe := c.LivenessProbe
	if !started && c.StartupProbe != nil {
		failed.Cause, probe = pod.CauseStartup, c.StartupProbe
	}
	if probe != nil {
		failed.Grace = probe.TerminationGracePeriodSeconds
	}
	return failed
}

func statusNamed(s *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// report derives the status, checks its invariants and writes it to the API.
func (w *world) report(plan *decide.Plan) {
	if w.pod == nil {
		w.status = nil
		return
	}
	old := w.status
	if old == nil {
		old = &w.pod.Status
	}
	st := w.brain.derive(podstatus.Input{
		Pod: w.pod, Old: w.status, Observed: &w.observed, Memory: &w.mem, Probed: w.said, Plan: plan, RuntimeName: "sim", Now: w.now,
	})
	w.checkTaken(&w.pod.Status, &st)
	if terminalPhase(old.Phase) && st.Phase != old.Phase {
		w.breaks(invTerminal, "terminal phase %s becomes %s", old.Phase, st.Phase)
	}
	if terminalPhase(st.Phase) && w.anyAlive() {
		w.breaks(invFinalStatus, "phase %s is reported while a container lives", st.Phase)
	}
	for i := range old.ContainerStatuses {
		if was, is := old.ContainerStatuses[i], st.ContainerStatuses[i]; is.RestartCount < was.RestartCount {
			w.breaks(invCounts, "restart count of %s falls from %d to %d", is.Name, was.RestartCount, is.RestartCount)
		}
	}
	if w.mem.Finished && plan.Phase >= decide.PhaseStopped && !terminalPhase(st.Phase) {
		w.breaks(invTruth, "a finished pod is reported as %s", st.Phase)
	}
	w.status = &st
	p := *w.pod
	p.Status = st
	w.pod = &p
	if w.want != nil {
		w.want = &p
	}
}

// checkTaken checks the one rule of the API server that depends on the previous status: a terminated container stays terminated,
// unless its restart policy starts it again after that exit code.
func (w *world) checkTaken(was, is *v1.PodStatus) {
	for _, c := range append(slices.Clone(w.pod.Spec.InitContainers), w.pod.Spec.Containers...) {
		for _, r := range c.RestartPolicyRules {
			if r.Action == v1.ContainerRestartRuleActionRestartAllContainers {
				return
			}
		}
	}
	for _, lists := range [][2][]v1.ContainerStatus{
		{was.InitContainerStatuses, is.InitContainerStatuses}, {was.ContainerStatuses, is.ContainerStatuses},
		{was.EphemeralContainerStatuses, is.EphemeralContainerStatuses},
	} {
		for i := range min(len(lists[0]), len(lists[1])) {
			before, now := &lists[0][i], &lists[1][i]
			if before.State.Terminated == nil || now.State.Terminated != nil {
				continue
			}
			if ephemeral(w.pod, now.Name) || !mayRunAgain(&w.pod.Spec, w.spec(now.Name), before.State.Terminated.ExitCode) {
				w.breaks(invRefused, "%s has terminated with %d and is reported as waiting or running", now.Name, before.State.Terminated.ExitCode)
			}
		}
	}
}

// die ends the agent. Only the checkpoint, the API and the runtime keep their state. For each action in flight, done returns whether the
// runtime has carried it out: "done", "half" (of a start: the container was created but not started), or "not".
func (w *world) die(done func(i int) string) {
	flights := w.flights
	w.flights = nil
	for i, f := range flights {
		switch done(i) {
		case "done":
			if f.action.Op != pod.OpPullImage && f.action.Op != pod.OpPreStop && f.action.Op != pod.OpPostStart {
				w.apply(f)
			}
		case "half":
			w.create(f)
		}
	}
	w.mem, w.said, w.status, w.health, w.down = w.saved.Clone(), nil, nil, nil, true
	for i := range w.records {
		w.records[i].reserved = -1
	}
	for i := range w.fates {
		// With the next agent, each probe and each hook gets the same result as before. A hook whose end was not stored runs again.
		f := &w.fates[i]
		f.hooked, f.postStarted = 0, 0
		f.reason, f.doomed = f.reason || f.doomed, false
		if c := w.byID(f.id); c != nil {
			f.hookDone = false
		}
	}
}

// rise starts the next agent. A cold agent knows no pod before its sources have answered.
func (w *world) rise(cold bool) {
	w.down = false
	w.pod, w.node.SourcesReady = w.want, true
	if cold {
		w.pod, w.node.SourcesReady = nil, false
	}
	w.mem = *decide.Load(&w.saved, w.now, &w.pol)
	if w.mem.StartTime.IsZero() {
		w.mem.StartTime = epoch
	}
	w.againFromTheStart()
	w.inspect()
}

// againFromTheStart lets the grace period of the pod, and of every container that is being ended, begin again now.
func (w *world) againFromTheStart() {
	if !w.endBegan.IsZero() {
		w.endBegan = w.now
	}
	for i := range w.fates {
		if f := &w.fates[i]; !f.killBegan.IsZero() {
			f.killBegan = w.now
		}
	}
}

// answer makes all sources answer. The agent then sees the pod of its source, or no pod if the source has none.
func (w *world) answer() { w.pod, w.node.SourcesReady = w.want, true }

// ended updates the oracle's record of a container that has ended. The oracle is the part of these tests that knows the pod's true history.
func (w *world) ended(c *pod.Container, r *record) {
	newest := w.newest(c.Name)
	if newest == nil || newest.ID != c.ID {
		return
	}
	f := w.fate(c.ID)
	r.ended, r.code, r.at = true, c.ExitCode, w.now
	changed := w.redefined(c)
	r.replaced = f.owed
	r.ends++
	if f.resized {
		r.ends-- // the agent stopped it, so its end is no crash
	}
	spec := w.spec(c.Name)
	init := w.pod != nil && slices.ContainsFunc(w.pod.Spec.InitContainers, func(s v1.Container) bool { return s.Name == c.Name })
	if changed || !w.sandboxRight() || (init && c.ExitCode == 0 && !pod.IsSidecar(spec)) {
		r.ends = 0
	}
	if spec != nil && !w.terminal {
		for _, rule := range spec.RestartPolicyRules {
			if rule.Action == v1.ContainerRestartRuleActionRestartAllContainers && slices.Contains(rule.ExitCodes.Values, c.ExitCode) {
				w.condemn()
			}
		}
	}
}

// condemn marks all present containers, because a RestartAllContainers rule applies: each of them has to be replaced.
func (w *world) condemn() {
	w.again = true
	for i := range w.flights {
		w.flights[i].condemned = true
	}
	for i := range w.containers {
		if c := &w.containers[i]; w.spec(c.Name) != nil && !ephemeral(w.pod, c.Name) {
			w.fate(c.ID).condemned = true
		}
	}
}

func ephemeral(p *v1.Pod, name string) bool {
	return p != nil && slices.ContainsFunc(p.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == name })
}

// beginsAgain records that the agent has begun to restart all containers. The checks of their start order then begin anew.
func (w *world) beginsAgain() {
	w.initialized = ""
	for i := range w.records {
		if r := &w.records[i]; r.name != "" && !ephemeral(w.pod, r.name) {
			r.upIn, r.ran, r.ends = "", false, 0
		}
	}
}

// checkAgain checks that a container that ran before may run again, and that its back-off is over.
func (w *world) checkAgain(c *pod.Container) {
	r := w.record(c.Name)
	spec := w.spec(c.Name)
	if w.pod == nil || spec == nil || !r.ran {
		return
	}
	init := slices.ContainsFunc(w.pod.Spec.InitContainers, func(s v1.Container) bool { return s.Name == c.Name })
	if init && r.sandbox != c.SandboxID {
		r.ends = 0 // the counted ends were in another sandbox, and the agent may not have seen them
	}
	switch {
	case ephemeral(w.pod, c.Name):
		w.breaks(invEphemeral, "ephemeral container %s runs again", c.Name)
	case w.again:
	case init && pod.IsSidecar(spec):
	case init && r.upIn == c.SandboxID && !w.vanished:
		w.breaks(invInitOnce, "init container %s runs again", c.Name)
	case init && w.vanished:
	case init && r.sandbox != c.SandboxID: // all init containers run again in a new sandbox
	case r.ended && !r.replaced && !mayRunAgain(&w.pod.Spec, spec, r.code):
		w.breaks(invPolicy, "%s ended with %d and runs again", c.Name, r.code)
	}
	if r.ended && r.ends > 1 && !w.vanished && !w.again && w.now.Before(r.at.Add(w.pol.BackOffInitial)) {
		w.breaks(invBackOff, "%s ended %s ago for the %dth time and runs again", c.Name, w.now.Sub(r.at), r.ends)
	}
}
