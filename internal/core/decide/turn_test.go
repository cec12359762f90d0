package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/script"
)

// TestTurns compares single decisions with testdata/turns.txt. It covers states that a script could reach only with
// many lines, or not at all.
func TestTurns(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, tt := range slices.Concat(holdTurns(), runTurns(), endTurns(), resizeTurns()) {
		in := running(tt.containers...)
		if tt.change != nil {
			tt.change(in)
		}
		plan := decide.Decide(&in.Input)
		fmt.Fprintf(&b, "# %s\n", tt.name)
		writePlan(&b, &plan)
	}
	script.Golden(t, "testdata/turns.txt", b.String(), *update)
}

// writePlan prints all fields of a plan.
func writePlan(b *strings.Builder, plan *decide.Plan) {
	for _, a := range plan.Do {
		fmt.Fprintf(b, "    %s", a)
		if a.Cause != pod.CauseNone {
			fmt.Fprintf(b, " cause=%s", a.Cause)
		}
		if a.Op == pod.OpStartContainer && a.ID != "" {
			fmt.Fprintf(b, " attempt=%d", a.Attempt)
		}
		if a.Op != pod.OpResize && a.Size != (pod.Size{}) {
			fmt.Fprintf(b, " with %s", a.Size)
		}
		fmt.Fprintln(b)
	}
	for _, a := range plan.Cancel {
		fmt.Fprintf(b, "    cancel %s\n", a)
	}
	for _, e := range plan.Ends {
		fmt.Fprintf(b, "    %s (%s) begins to end: %s, %+v ago, within %s\n", e.ID, e.Name, e.Cause, now.Sub(e.Began), e.Grace)
	}
	for _, r := range plan.Replaced {
		fmt.Fprintf(b, "    %s (%s) starts again: %s\n", r.ID, r.Name, r.Cause)
	}
	for _, c := range plan.Crashes {
		fmt.Fprintf(b, "    end of %s, again at %+v, next wait %s\n", c.ID, c.Until.Sub(now), c.Next)
	}
	if s := plan.Stop; s != nil {
		fmt.Fprintf(b, "    stop %s at %+v: %s\n", s.Reason, s.Since.Sub(now), s.Message)
	}
	fmt.Fprintf(b, "    = %s: %s", plan.Phase, plan.Why)
	if !plan.WakeAt.IsZero() {
		fmt.Fprintf(b, "; wake +%s", plan.WakeAt.Sub(now))
	}
	if plan.Ending {
		fmt.Fprintf(b, "; ending since %+v with %s", plan.StopBegan.Sub(now), plan.StopGrace)
	}
	for _, said := range []struct {
		is   bool
		word string
	}{{plan.Ended, "ended"}, {plan.Finished, "finished"}, {plan.Orphaned, "orphaned"}, {plan.RestartingAll, "restarting all"}, {plan.Resized, "resized"}} {
		if said.is {
			fmt.Fprintf(b, "; %s", said.word)
		}
	}
	fmt.Fprintln(b)
}

// now is the time at which the test cases call Decide: an hour after the pod and its containers started.
var now = epoch.Add(time.Hour)

// moment is the input of one decision, with methods to change it.
type moment struct{ decide.Input }

// turnCase is one case: the containers of a running pod, and a function that changes the input of the decision.
type turnCase struct {
	name       string
	containers []v1.Container // sidecars, and containers named init, become init containers
	change     func(*moment)
}

// running returns the input of a decision about a pod whose containers all run as the spec says.
func running(containers ...v1.Container) *moment {
	pol := decide.DefaultPolicy()
	m := &moment{decide.Input{
		Pod:      &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways}, Status: v1.PodStatus{Phase: v1.PodRunning}},
		Observed: &pod.Observed{Began: epoch, Sandboxes: []pod.Sandbox{{ID: "sb0", Ready: true, IPs: []string{"10.0.0.1"}}}},
		Memory:   &decide.Memory{Grant: decide.Grant{Admitted: true, StartTime: epoch}, PodTries: decide.PodTries{SetUp: true}},
		Hashes:   map[string]string{}, Node: decide.Node{NetworkReady: true, SourcesReady: true}, Policy: &pol, Now: now,
	}}
	for _, c := range containers {
		c.Image = "img"
		if pod.IsSidecar(&c) || c.Name == "init" {
			m.Pod.Spec.InitContainers = append(m.Pod.Spec.InitContainers, c)
		} else {
			m.Pod.Spec.Containers = append(m.Pod.Spec.Containers, c)
		}
		m.Hashes[c.Name] = "1-h"
		cm := m.Memory.Ensure(c.Name)
		cm.Pulled, cm.PulledImage = true, "img"
		m.Observed.Containers = append(m.Observed.Containers, pod.Container{
			ID: c.Name + "-0", Name: c.Name, SandboxID: "sb0", State: pod.StateRunning, SpecHash: "1-h", StartedAt: epoch, Grace: -1,
		})
	}
	m.Sizes = crispec.Sizes(m.Pod)
	m.Memory.GroupSize, m.Memory.GroupSized = m.size(""), true
	for i := range m.Observed.Containers {
		c := &m.Observed.Containers[i]
		c.Actual = m.size(c.Name)
		c.Actual.MemoryRequest = 0
		cm := m.Memory.Ensure(c.Name)
		cm.SizedID, cm.Size, cm.SizeGiven = c.ID, m.size(c.Name), true
	}
	return m
}

func (m *moment) size(name string) pod.Size {
	for _, s := range m.Sizes {
		if s.Name == name {
			return s.Size
		}
	}
	return pod.Size{}
}

// sick sets the probe results of a container to a failed liveness probe.
func (m *moment) sick(name string) {
	m.Probed.Set(decide.Probed{Name: name, ID: name + "-0", Failed: decide.FailedProbe{Cause: pod.CauseLiveness}})
}

// c returns the newest attempt of a container in the inspection. cm returns what the agent's memory holds about the container.
func (m *moment) c(name string) *pod.Container           { return m.Observed.Newest(name) }
func (m *moment) cm(name string) *decide.ContainerMemory { return m.Memory.Ensure(name) }

// without removes all instances of a container from the inspection, as if the runtime did not have the container.
func (m *moment) without(name string) {
	m.Observed.Containers = slices.DeleteFunc(m.Observed.Containers, func(c pod.Container) bool { return c.Name == name })
}

// exited makes a container exit with code at the time of the decision.
func (m *moment) exited(name string, code int32) {
	c := m.c(name)
	c.State, c.ExitCode, c.FinishedAt = pod.StateExited, code, now
}

// instances replaces the instances of a container by instances in these states, newest first: app-0, app-1 and so on.
func (m *moment) instances(name string, states ...pod.ContainerState) {
	c := *m.c(name)
	m.without(name)
	for i, state := range states {
		c.ID, c.State, c.Attempt = fmt.Sprintf("%s-%d", name, i), state, uint32(len(states)-i)
		if c.FinishedAt = (time.Time{}); state == pod.StateExited {
			c.FinishedAt = epoch.Add(time.Minute)
		}
		m.Observed.Containers = append(m.Observed.Containers, c)
	}
}

// older adds an earlier instance of a container; the instance is still alive.
func (m *moment) older(name string) {
	c := *m.c(name)
	c.ID, c.State = name+"-old", pod.StateRunning
	m.Observed.Containers = append(m.Observed.Containers, c)
}

func (m *moment) inFlight(a pod.Action) { m.InFlight = append(m.InFlight, a) }

func (m *moment) status(st v1.ContainerStatus) {
	m.Pod.Status.ContainerStatuses = append(m.Pod.Status.ContainerStatuses, st)
}

func container(name string, changes ...func(*v1.Container)) v1.Container {
	return with(v1.Container{Name: name}, changes...)
}

// holdTurns returns the cases in which a container with a postStart hook delays the containers after it in the spec. It delays them while
// it starts or stops, but not while it waits for its back-off. Kubernetes documents: "PostStart: This hook is executed immediately after a
// container is created".
func holdTurns() []turnCase {
	two := []v1.Container{container("app", postStart), container("job")}
	row := func(name string, change func(*moment)) turnCase {
		return turnCase{"holds: " + name, two, func(m *moment) {
			m.cm("app").PostStartedID = "app-0"
			m.without("job")
			change(m)
		}}
	}
	return []turnCase{
		row("it runs, and its hook is done", func(*moment) {}),
		row("its hook is not done", func(m *moment) { m.cm("app").PostStartedID = "" }),
		row("its start was cut short", func(m *moment) { m.c("app").State, m.c("app").CutShort = pod.StateCreated, true }),
		row("its start failed", func(m *moment) { m.c("app").State, m.cm("app").StartFailedID = pod.StateCreated, "app-0" }),
		row("it is created", func(m *moment) { m.c("app").State, m.c("app").Attempt = pod.StateCreated, 7 }),
		row("it is created, and an older one lives", func(m *moment) { m.c("app").State = pod.StateCreated; m.older("app") }),
		row("it has ended", func(m *moment) { m.exited("app", 1) }),
		row("it has ended, and an older one lives", func(m *moment) { m.exited("app", 1); m.older("app") }),
		row("it has ended, and waits", func(m *moment) {
			m.exited("app", 1)
			m.cm("app").CrashedID, m.cm("app").CrashUntil = "app-0", now.Add(time.Minute)
		}),
		row("it has ended, and needs its image", func(m *moment) { m.exited("app", 1); m.cm("app").Pulled = false }),
		row("its image is on its way", func(m *moment) {
			m.exited("app", 1)
			m.cm("app").Pulled = false
			m.inFlight(pod.Action{Op: pod.OpPullImage, Container: "app"})
		}),
		row("nobody knows its state", func(m *moment) { m.c("app").State = pod.StateUnknown }),
		row("nobody knows its state, and it was stopped", func(m *moment) {
			m.c("app").State, m.cm("app").StopID, m.cm("app").Stopped = pod.StateUnknown, "app-0", true
		}),
		row("nobody knows its state, it was stopped, and its sandbox is new", func(m *moment) {
			m.c("app").State, m.cm("app").StopID, m.cm("app").Stopped = pod.StateUnknown, "app-0", true
			m.c("app").SandboxID = "sb-old"
		}),
		row("it failed its liveness probe", func(m *moment) { m.sick("app") }),
		row("it lives in another sandbox", func(m *moment) { m.c("app").SandboxID = "sb-old" }),
		{"holds: one that is created, too", two, func(m *moment) {
			m.exited("app", 1)
			m.c("job").State = pod.StateCreated
		}},
		{"holds: a start that was unknown waits", two, func(m *moment) {
			m.c("app").State, m.cm("app").StartUntil = pod.StateCreated, now.Add(time.Second)
			m.without("job")
		}},
	}
}

// runTurns returns the cases of pods that keep running.
func runTurns() []turnCase {
	app, job := container("app"), container("job")
	never := func(m *moment) { m.Pod.Spec.RestartPolicy = v1.RestartPolicyNever }
	onFail := func(m *moment) { m.Pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure }
	hooked := with(app, postStart)
	on137 := with(app, rule(v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestart, 137))
	stopped := func(m *moment) {
		m.c("app").State, m.cm("app").StopID, m.cm("app").Stopped = pod.StateUnknown, "app-0", true
	}
	lost := func(name string, policy v1.RestartPolicy, c v1.Container, st v1.ContainerStatus) turnCase {
		return turnCase{"lost: " + name, []v1.Container{c, job}, func(m *moment) {
			m.Pod.Spec.RestartPolicy = policy
			m.without("app")
			st.Name = "app"
			m.status(st)
		}}
	}
	ended := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
	}
	run := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	wait := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	const onFailure = v1.RestartPolicyOnFailure
	return []turnCase{
		{"everything runs", []v1.Container{app, job}, nil},
		{"one whose state was unknown counts as killed: never", []v1.Container{app, job}, func(m *moment) { never(m); stopped(m) }},
		{"one whose state was unknown counts as killed: on failure", []v1.Container{app, job}, func(m *moment) { m.Pod.Spec.RestartPolicy = onFailure; stopped(m) }},
		{"one whose state was unknown counts as killed: 137", []v1.Container{on137, job}, func(m *moment) { never(m); stopped(m) }},
		lost("it had failed", onFailure, app, v1.ContainerStatus{State: ended(1)}),
		lost("it had completed", onFailure, app, v1.ContainerStatus{State: ended(0)}),
		lost("it ran, and counts as killed", onFailure, app, v1.ContainerStatus{State: run}),
		lost("it ran, and counts as killed: 137", v1.RestartPolicyNever, on137, v1.ContainerStatus{State: run}),
		lost("it ran, and never does again", v1.RestartPolicyNever, app, v1.ContainerStatus{State: run}),
		lost("it had failed before", onFailure, app, v1.ContainerStatus{State: wait, LastTerminationState: ended(1)}),
		lost("it had completed before", onFailure, app, v1.ContainerStatus{State: wait, LastTerminationState: ended(0)}),
		lost("its pod ended before it was made, and begins anew", v1.RestartPolicyNever, app, v1.ContainerStatus{State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}}),
		lost("it has never run", onFailure, app, v1.ContainerStatus{State: wait}),
		{"volumes come before a restart", []v1.Container{app, job}, func(m *moment) { m.exited("app", 1); m.Memory.SetUp = false }},
		{"a restart does not wait until volumes are set up again", []v1.Container{app, job}, func(m *moment) { m.exited("app", 1); m.Memory.Outdated = true }},
		{"nor while they are", []v1.Container{app, job}, func(m *moment) {
			m.exited("app", 1)
			m.Memory.Outdated = true
			m.inFlight(pod.Action{Op: pod.OpSetUp, Renews: true})
		}},
		{"nor after that has failed", []v1.Container{app, job}, func(m *moment) {
			m.exited("app", 1)
			m.Memory.Outdated = true
			m.Memory.Retry = []decide.Retry{{Op: pod.OpSetUp, Until: m.Now.Add(time.Minute)}}
		}},
		{"a definition of which nothing is known", []v1.Container{app}, func(m *moment) { m.Hashes = nil }},
		{"all restart, though who asked for it is gone", []v1.Container{container("init"), app}, func(m *moment) {
			never(m)
			m.exited("init", 143)
			m.without("app")
			m.Memory.RestartingAll = true
		}},
		{"all have to restart, and an init container has failed", []v1.Container{
			sidecar("side", rule(v1.ContainerRestartPolicyAlways, v1.ContainerRestartRuleActionRestartAllContainers, 42)), container("init"), app,
		}, func(m *moment) {
			never(m)
			m.exited("side", 42)
			m.exited("init", 1)
			m.without("app")
		}},
		{"containers without any sandbox", []v1.Container{app, job}, func(m *moment) {
			never(m)
			m.exited("app", 0)
			m.without("job")
			m.Observed.Sandboxes = nil
		}},
		{"the size of another instance says nothing of this one's back-off", []v1.Container{app, job}, func(m *moment) {
			m.exited("app", 1)
			m.cm("app").SizedID, m.cm("app").Size, m.cm("app").CrashDelay = "app-older", pod.Size{CPURequest: 100}, time.Minute
		}},
		{"an older instance that lives is stopped, not removed", []v1.Container{app}, func(m *moment) {
			m.instances("app", pod.StateRunning, pod.StateExited, pod.StateRunning)
			m.inFlight(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "app-2", Grace: time.Second})
		}},
		{"an attempt that was only created is no dead one", []v1.Container{app}, func(m *moment) {
			m.instances("app", pod.StateRunning, pod.StateCreated, pod.StateExited)
		}},
		{"a stray in another sandbox", []v1.Container{app}, func(m *moment) { m.older("app"); m.Observed.Containers[1].SandboxID = "sb-old" }},
		{"a container that the spec does not have, in another sandbox", []v1.Container{app}, func(m *moment) {
			m.Observed.Containers = append(m.Observed.Containers, pod.Container{ID: "gone-0", Name: "gone", SandboxID: "sb-old", State: pod.StateRunning, Grace: -1})
		}},
		{"a stop whose hook has run goes on, whatever the probes say now", []v1.Container{app}, func(m *moment) { m.cm("app").PreStoppedID = "app-0" }},
		{"a container whose end goes on holds those after it", []v1.Container{hooked, job}, func(m *moment) {
			m.without("job")
			m.Memory.Ends = decide.Ends{{Name: "app", ID: "app-0", Cause: pod.CauseLiveness, Began: now.Add(-time.Second), Grace: time.Minute}}
		}},
		{"a container whose stop goes on holds those after it", []v1.Container{hooked, job}, func(m *moment) {
			m.without("job")
			m.cm("app").StopID = "app-0"
		}},
		{"an ephemeral container of another sandbox does not start again", []v1.Container{app}, func(m *moment) {
			onFail(m)
			c := *m.c("app")
			c.ID, c.Name, c.SandboxID = "debug-0", "debug", "sb-old"
			m.Observed.Containers = append(m.Observed.Containers, c)
			m.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
		}},
		{"an init container of unknown state has rules of its own", []v1.Container{container("init"), app}, func(m *moment) {
			onFail(m)
			m.without("app")
			m.c("init").State = pod.StateUnknown
		}},
		{"a container of unknown state starts again, whatever its exit code", []v1.Container{app}, func(m *moment) {
			onFail(m)
			m.c("app").State = pod.StateUnknown
		}},
		{"a stop in flight for a cause replaces nothing once more", []v1.Container{app}, func(m *moment) {
			onFail(m)
			m.sick("app")
			m.inFlight(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "app-0", Grace: 30 * time.Second})
		}},
		{"a changed container has a hook", []v1.Container{with(app, preStop), job}, func(m *moment) { m.Hashes["app"] = "1-other" }},
		{"a stop that failed goes on, whatever the probes say now", []v1.Container{app}, func(m *moment) { m.cm("app").StopID = "app-0" }},
		{"a sidecar that is being stopped lets nobody begin", []v1.Container{sidecar("side"), app}, func(m *moment) {
			m.without("app")
			m.inFlight(pod.Action{Op: pod.OpStopContainer, Container: "side", ID: "side-0", Grace: time.Second})
		}},
		{"a sidecar whose hook runs before its end lets nobody begin", []v1.Container{sidecar("side"), app}, func(m *moment) {
			m.without("app")
			m.inFlight(pod.Action{Op: pod.OpPreStop, Container: "side", ID: "side-0", Grace: time.Second})
		}},
		{"older sandboxes are stopped already", []v1.Container{app}, func(m *moment) {
			m.without("app")
			m.Observed.Sandboxes = []pod.Sandbox{{ID: "sb1", Attempt: 1}, {ID: "sb0"}}
			m.Memory.StoppedSandboxes = []string{"sb1"}
		}},
	}
}
