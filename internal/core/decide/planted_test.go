package decide_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
)

// planted is a bug that a test adds to the agent on purpose, to show that the search finds it.
type planted struct {
	bug   string
	finds invariant
	scope string // the name of the test pod (see scopes) on which the search must find the bug
	plant func(*brain)
}

// plan returns a planted bug that changes the plan that Decide returns.
func plan(change func(in *decide.Input, p *decide.Plan)) func(*brain) {
	return func(b *brain) {
		b.decide = func(in *decide.Input) decide.Plan {
			p := decide.Decide(in)
			p.Do = slices.Clone(p.Do)
			change(in, &p)
			return p
		}
	}
}

// seeing returns a planted bug that changes the input of Decide.
func seeing(change func(in *decide.Input)) func(*brain) {
	return func(b *brain) {
		b.decide = func(in *decide.Input) decide.Plan {
			blurred := *in
			change(&blurred)
			return decide.Decide(&blurred)
		}
	}
}

// forgetting returns a planted bug that drops a part of Input.Memory before each call of Decide.
func forgetting(change func(m *decide.Memory)) func(*brain) {
	return func(b *brain) {
		b.decide = func(in *decide.Input) decide.Plan {
			blurred, m := *in, in.Memory.Clone()
			change(&m)
			blurred.Memory = &m
			return decide.Decide(&blurred)
		}
	}
}

// doing returns a planted bug that changes every planned action of one kind.
func doing(op pod.Op, change func(in *decide.Input, a *pod.Action)) func(*brain) {
	return plan(func(in *decide.Input, p *decide.Plan) {
		for i := range p.Do {
			if p.Do[i].Op == op {
				change(in, &p.Do[i])
			}
		}
	})
}

// without returns a planted bug that removes every planned action of one kind.
func without(op pod.Op) func(*brain) {
	return plan(func(_ *decide.Input, p *decide.Plan) {
		p.Do = slices.DeleteFunc(p.Do, func(a pod.Action) bool { return a.Op == op })
	})
}

// also returns a planted bug that adds an action to a plan: the action that the function what returns, unless it is already
// planned or in flight.
func also(what func(in *decide.Input, p *decide.Plan) (pod.Action, bool)) func(*brain) {
	return plan(func(in *decide.Input, p *decide.Plan) {
		a, ok := what(in, p)
		if !ok {
			return
		}
		same := func(o pod.Action) bool { return o.Key() == a.Key() }
		if !slices.ContainsFunc(in.InFlight, same) && !slices.ContainsFunc(p.Do, same) {
			p.Do = append(p.Do, a)
		}
	})
}

func changedSpec(change func(p *v1.Pod)) func(*brain) {
	return seeing(func(in *decide.Input) {
		if in.Pod != nil {
			p := in.Pod.DeepCopy()
			change(p)
			in.Pod = p
		}
	})
}

func reported(change func(in *podstatus.Input, s *v1.PodStatus)) func(*brain) {
	return func(b *brain) {
		b.derive = func(in podstatus.Input) v1.PodStatus {
			s := podstatus.Derive(in)
			change(&in, &s)
			return s
		}
	}
}

// plantedBugs returns the planted bugs. At least one of them breaks each invariant.
func plantedBugs() []planted {
	const why = pod.Why("planted")
	noted := func(op pod.Op) func(*brain) {
		return func(b *brain) {
			b.note = func(m *decide.Memory, p *v1.Pod, o pod.Outcome, pol *decide.Policy) bool {
				return o.Action.Op != op && decide.Note(m, p, o, pol)
			}
		}
	}
	return []planted{
		{"a container that runs is not seen", invOneInstance, "always", seeing(func(in *decide.Input) {
			o := *in.Observed
			o.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(c pod.Container) bool { return c.State == pod.StateRunning })
			in.Observed = &o
		})},
		{"what is in flight is not seen", invStartedOnce, "always", seeing(func(in *decide.Input) { in.InFlight = nil })},
		{"a start is planned twice", invStartedOnce, "always", plan(func(_ *decide.Input, p *decide.Plan) {
			if len(p.Do) > 0 && p.Do[0].Op == pod.OpStartContainer {
				p.Do = append(p.Do, p.Do[0])
			}
		})},
		{"a running container is started", invStartedOnce, "always", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			c := in.Observed.Newest("app")
			return pod.Action{Op: pod.OpStartContainer, Container: "app", ID: "app-0", Why: why}, c != nil && c.State == pod.StateRunning && !p.Ending && !in.Stale
		})},
		{"volumes are set up while it ends", invEnding, "always", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			return pod.Action{Op: pod.OpSetUp, Why: why}, p.Ending
		})},
		{"age of the inspection ignored", invFresh, "lag", seeing(func(in *decide.Input) { in.Stale = false })},
		{"the predecessor is not seen", invPredecessor, "predecessor", seeing(func(in *decide.Input) { in.Node.Predecessor = false })},
		{"main containers do not wait", invInitFirst, "init", changedSpec(func(p *v1.Pod) { p.Spec.InitContainers = nil })},
		{"init containers in reverse order", invInitOrder, "sidecar-init", changedSpec(func(p *v1.Pod) { slices.Reverse(p.Spec.InitContainers) })},
		{"a sidecar's startup probe holds nobody", invInitOrder, "sidecar-init", changedSpec(func(p *v1.Pod) { p.Spec.InitContainers[0].StartupProbe = nil })},
		{"an init container that completed is forgotten", invInitOnce, "init", seeing(func(in *decide.Input) {
			o := *in.Observed
			o.Containers = slices.Clone(o.Containers)
			for i := range o.Containers {
				if c := &o.Containers[i]; c.Name == "init" && c.State == pod.StateExited {
					c.ExitCode = 1
				}
			}
			in.Observed = &o
		})},
		{"attempts begin at 0", invAttempts, "always", doing(pod.OpStartContainer, func(_ *decide.Input, a *pod.Action) { a.Attempt = 0 })},
		{"a sandbox's attempt does not grow", invAttempts, "never", doing(pod.OpRunSandbox, func(_ *decide.Input, a *pod.Action) { a.Attempt = 0 })},
		{"what was reserved by a create of unknown result", invAttempts, "always", forgetting(func(m *decide.Memory) {
			for i := range m.Containers {
				m.Containers[i].AttemptKnown = false
			}
		})},
		{"a terminal phase follows the containers", invTerminal, "never", reported(func(in *podstatus.Input, s *v1.PodStatus) {
			if len(in.Observed.Sandboxes) > 0 && !in.Observed.Sandboxes[0].Ready && in.Plan.Phase == decide.PhaseStopped && in.Old != nil && in.Old.Phase == v1.PodSucceeded {
				s.Phase = v1.PodRunning
			}
		})},
		{"that it began to end is forgotten", invNeverBack, "never", func(b *brain) {
			b.remember = func(m *decide.Memory, p *decide.Plan) bool {
				q := *p
				q.Finished, q.Ending = false, false
				return decide.Remember(m, &q)
			}
			seeing(func(in *decide.Input) {
				if in.Pod != nil {
					in.Pod = in.Pod.DeepCopy()
					in.Pod.Status.Phase = v1.PodRunning
					o := *in.Observed
					o.Containers = slices.Clone(o.Containers)
					if len(o.Sandboxes) > 0 && !o.Sandboxes[0].Ready {
						o.Sandboxes, o.Containers = nil, nil
					}
					in.Observed = &o
				}
			})(b)
		}},
		{"an orphan comes back", invNeverBack, "sources", forgetting(func(m *decide.Memory) { m.Orphaned, m.StopBegan = false, time.Time{} })},
		{"a deletion's grace is halved", invLeastGrace, "always", doing(pod.OpStopContainer, func(in *decide.Input, a *pod.Action) { a.Grace = max(a.Grace/2, in.Policy.MinGrace) })},
		{"a probe's own grace is the pod's at most halved", invLeastGrace, "probes", seeing(func(in *decide.Input) {
			in.Probed = slices.Clone(in.Probed)
			for i := range in.Probed {
				in.Probed[i].Failed.Grace = new(int64(3))
			}
		})},
		{"StopContainer with no time at all", invLeastGrace, "always", doing(pod.OpStopContainer, func(_ *decide.Input, a *pod.Action) { a.Grace = 0 })},
		{"a pod that has to be killed at once is asked to end", invMostGrace, "evicted", forgetting(func(m *decide.Memory) {
			if m.Stop != nil {
				m.Stop.AtOnce = false
			}
		})},
		{"each evicted pod is killed at once", invLeastGrace, "evicted", forgetting(func(m *decide.Memory) {
			if m.Stop != nil {
				m.Stop.AtOnce = true
			}
		})},
		{"each stop gets the whole period", invMostGrace, "hooks", doing(pod.OpStopContainer, func(_ *decide.Input, a *pod.Action) { a.Grace = 30 * time.Second })},
		{"StopBegan is forgotten", invMostGrace, "hooks", forgetting(func(m *decide.Memory) { m.StopBegan = time.Time{} })},
		{"a shorter grace period is not heard of", invProgress, "hooks", seeing(func(in *decide.Input) {
			if in.Pod != nil && in.Pod.DeletionTimestamp != nil {
				in.Pod = in.Pod.DeepCopy()
				in.Pod.DeletionTimestamp = nil
			}
		})},
		{"the sidecar is a main container", invSidecarsLast, "sidecar", changedSpec(func(p *v1.Pod) {
			if p.DeletionTimestamp != nil {
				p.Spec.InitContainers = nil
			}
		})},
		{"sidecars end in the order in which they began", invSidecarsLast, "sidecars", changedSpec(func(p *v1.Pod) {
			if p.DeletionTimestamp != nil {
				slices.Reverse(p.Spec.InitContainers)
			}
		})},
		{"Never is Always", invPolicy, "rules", changedSpec(func(p *v1.Pod) {
			*p.Spec.Containers[0].RestartPolicy = v1.ContainerRestartPolicyAlways
		})},
		{"OnFailure is Always", invPolicy, "two", changedSpec(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyAlways })},
		{"no back-off", invBackOff, "always", forgetting(func(m *decide.Memory) {
			for i := range m.Containers {
				m.Containers[i].CrashDelay, m.Containers[i].CrashUntil = 0, time.Time{}
			}
		})},
		{"a container is restarted for its health", invNeedless, "always", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			c := in.Observed.Newest("app")
			return pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "app-1", Grace: 30 * time.Second, Why: why},
				c != nil && c.ID == "app-1" && c.State == pod.StateRunning && !p.Ending
		})},
		{"the pod ends with its first container", invNeedless, "two", changedSpec(func(p *v1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] })},
		{"preStop hooks are left out", invPreStop, "hooks", func(b *brain) {
			seeing(func(in *decide.Input) {
				if in.Pod != nil {
					in.Pod = in.Pod.DeepCopy()
					in.Pod.Spec.Containers[0].Lifecycle.PreStop = nil
				}
				o := *in.Observed
				o.Containers = slices.Clone(o.Containers)
				for i := range o.Containers {
					o.Containers[i].PreStop = false
				}
				in.Observed = &o
			})(b)
		}},
		{"that a preStop hook ran is forgotten", invPreStop, "hooks", noted(pod.OpPreStop)},
		{"that a postStart hook ran is forgotten", invPostStart, "hooks", noted(pod.OpPostStart)},
		{"postStart hooks are left out", invPostStart, "hooks", without(pod.OpPostStart)},
		{"sources are taken to have answered", invSources, "sources", seeing(func(in *decide.Input) { in.Node.SourcesReady = true })},
		{"volumes are torn down at once", invUnder, "always", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			return pod.Action{Op: pod.OpTearDown, Why: why}, p.Ending && in.Observed.AnyAlive()
		})},
		{"the sandbox is stopped at once", invUnder, "always", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			return pod.Action{Op: pod.OpStopSandbox, ID: "sb0", Why: why}, p.Ending && in.Observed.AnyAlive()
		})},
		{"a living container is removed", invUnder, "always", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			return pod.Action{Op: pod.OpRemoveContainer, Container: "app", ID: "app-0", Why: why}, p.Ending && in.Observed.AnyAlive()
		})},
		{"removed while it is stopped", invPlan, "always", plan(func(_ *decide.Input, p *decide.Plan) {
			if len(p.Do) > 0 && p.Do[0].Op == pod.OpStopContainer {
				p.Do = append(p.Do, pod.Action{Op: pod.OpRemoveContainer, Container: p.Do[0].Container, ID: p.Do[0].ID, Why: why})
			}
		})},
		{"a start is cancelled", invPlan, "always", plan(func(in *decide.Input, p *decide.Plan) {
			if p.Ending && len(in.InFlight) > 0 && in.InFlight[0].Op == pod.OpStartContainer {
				p.Cancel = append(p.Cancel, in.InFlight[0])
			}
		})},
		{"no reason", invWhy, "always", doing(pod.OpStartContainer, func(_ *decide.Input, a *pod.Action) { a.Why = "" })},
		{"a stop is said again each turn", invIdle, "always", plan(func(in *decide.Input, p *decide.Plan) {
			for i := range p.Do {
				if p.Do[i].Op == pod.OpPullImage {
					p.Do[i].Attempt = uint32(len(in.InFlight)) + 7
				}
			}
			if len(p.Do) == 0 && len(in.InFlight) > 0 {
				p.Do = append(p.Do, pod.Action{Op: pod.OpPullImage, Container: "app", Attempt: uint32(len(in.InFlight)) + 7, Why: why})
			}
		})},
		{"a wake-up in the past", invWake, "always", plan(func(in *decide.Input, p *decide.Plan) {
			if !p.WakeAt.IsZero() {
				p.WakeAt = in.Now
			}
		})},
		{"no wake-up", invProgress, "always", plan(func(_ *decide.Input, p *decide.Plan) { p.WakeAt = time.Time{} })},
		{"a wake-up each second", invRest, "always", plan(func(in *decide.Input, p *decide.Plan) { p.WakeAt = in.Now.Add(time.Second) })},
		{"nothing is pulled", invProgress, "always", without(pod.OpPullImage)},
		{"sandboxes are not replaced", invProgress, "sidecar-sandbox", plan(func(_ *decide.Input, p *decide.Plan) {
			p.Do = slices.DeleteFunc(p.Do, func(a pod.Action) bool { return a.Op == pod.OpRunSandbox && a.Attempt > 0 })
		})},
		{"the deadline is not kept", invProgress, "deadline", changedSpec(func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = nil })},
		{"the sandbox of an orphan is kept", invLeft, "onfailure", without(pod.OpRemoveSandbox)},
		{"directories are forgotten too soon", invLeft, "onfailure", also(func(in *decide.Input, p *decide.Plan) (pod.Action, bool) {
			return pod.Action{Op: pod.OpForget, Why: why}, in.Pod == nil && !in.Observed.AnyAlive()
		})},
		{"liveness is not heard of", invUnhealthy, "probes", seeing(func(in *decide.Input) {
			in.Probed = slices.Clone(in.Probed)
			for i := range in.Probed {
				in.Probed[i].Failed = decide.FailedProbe{}
			}
		})},
		{"a failed probe waits for the end of an earlier sidecar", invUnhealthy, "sidecars-probes", plan(func(in *decide.Input, p *decide.Plan) {
			if slices.ContainsFunc(in.InFlight, func(a pod.Action) bool { return a.ID == "side-0" && a.Op == pod.OpStopContainer }) {
				p.Do = slices.DeleteFunc(p.Do, func(a pod.Action) bool { return a.Container == "other" && a.Op == pod.OpStopContainer })
			}
		})},
		{"the status says waiting", invTruth, "always", reported(func(_ *podstatus.Input, s *v1.PodStatus) {
			for i := range s.ContainerStatuses {
				s.ContainerStatuses[i].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
			}
		})},
		{"that it was ended to start again is forgotten", invNeedless, "probes-polite", forgetting(func(m *decide.Memory) {
			for i := range m.Containers {
				m.Containers[i].ReplacedID = ""
			}
		})},
		{"an init container that runs again is reported as running", invRefused, "init-polite", reported(func(in *podstatus.Input, s *v1.PodStatus) {
			if c := in.Observed.Newest("init"); c != nil && c.State == pod.StateRunning {
				s.InitContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
			}
		})},
		{"what is ended to start again is reported as terminated", invTruth, "change-polite", reported(func(_ *podstatus.Input, s *v1.PodStatus) {
			for i := range s.ContainerStatuses {
				if st := &s.ContainerStatuses[i]; st.State.Waiting != nil && st.LastTerminationState.Terminated != nil {
					st.State = st.LastTerminationState
				}
			}
		})},
		{"a restart is not counted", invCounts, "always", reported(func(in *podstatus.Input, s *v1.PodStatus) {
			for i := range s.ContainerStatuses {
				if s.ContainerStatuses[i].State.Terminated != nil || in.Plan.Ending {
					s.ContainerStatuses[i].RestartCount = 0
				}
			}
		})},
		{"failed as soon as it is deleted", invFinalStatus, "always", reported(func(in *podstatus.Input, s *v1.PodStatus) {
			if in.Plan.Ending {
				s.Phase = v1.PodFailed
			}
		})},
		{"one container restarts alone", invRestartAll, "restart-all", func(b *brain) {
			changedSpec(func(p *v1.Pod) {
				for i := range p.Spec.Containers[0].RestartPolicyRules {
					p.Spec.Containers[0].RestartPolicyRules[i].Action = v1.ContainerRestartRuleActionRestart
				}
			})(b)
		}},
		{"an ephemeral container is restarted", invEphemeral, "ephemeral", func(b *brain) {
			seeing(func(in *decide.Input) {
				o := *in.Observed
				o.Containers = slices.DeleteFunc(slices.Clone(o.Containers), func(c pod.Container) bool { return c.Name == "debug" && c.State == pod.StateExited })
				in.Observed = &o
				if in.Pod != nil {
					in.Pod = in.Pod.DeepCopy()
					in.Pod.Status.EphemeralContainerStatuses = nil
				}
			})(b)
		}},
		{"not admitted and begun", invAdmission, "unadmitted", forgetting(func(m *decide.Memory) { m.Admitted = true })},
		{"volumes are not waited for", invSandboxBefore, "always", forgetting(func(m *decide.Memory) { m.SetUp = true })},
		{"resizes are not made", invSize, "resize", without(pod.OpResize)},
		{"the pod's cgroup shrinks before its containers", invRoom, "resize", also(func(in *decide.Input, _ *decide.Plan) (pod.Action, bool) {
			if in.Pod == nil || !in.Memory.Resize.InProgress || in.Stale || in.Memory.GroupSize == in.Sizes[0].Size {
				return pod.Action{}, false
			}
			return pod.Action{Op: pod.OpResize, Size: in.Sizes[0].Size, Why: why}, true
		})},
	}
}

// TestPlantedBugs shows that the search can fail: it breaks each invariant on purpose, and the search has to report that
// invariant by its name.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	bugs := plantedBugs()
	for _, inv := range invariants {
		if inv != invPure && !slices.ContainsFunc(bugs, func(p planted) bool { return p.finds == inv }) {
			t.Errorf("no bug is planted for: %s", inv)
		}
	}
	all := append(scopes(), scope{name: "unadmitted", policy: v1.RestartPolicyAlways, mains: []v1.Container{{Name: "app", Image: "a"}},
		unadmitted: true, budget: give{exits: 1}})
	for _, p := range bugs {
		t.Run(p.bug, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(all, func(sc scope) bool { return sc.name == p.scope })
			if i < 0 {
				t.Fatalf("no pod %q", p.scope)
			}
			b := realBrain()
			p.plant(&b)
			s := newSearch()
			s.until, s.most = p.finds, 80_000
			s.run(all[i].first(b), all[i].budget.array())
			if !slices.Contains(s.broken, p.finds) {
				t.Errorf("not found in %d states: %s; broken were only: %q", len(s.seen), p.finds, distinct(s.broken))
			}
		})
	}
	t.Logf("%d bugs planted, for %d invariants", len(bugs), len(invariants))
}

func distinct(all []invariant) []invariant {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

// TestPlantedImpurity makes Decide change the memory in its input, and checks that the world (the simulated node of these tests) reports
// the broken invariant.
func TestPlantedImpurity(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.pod = &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "a"}}}}
	w.brain.decide = func(in *decide.Input) decide.Plan {
		in.Memory.SetUp = true
		return decide.Decide(in)
	}
	w.inspect()
	w.turn()
	if len(w.broken) == 0 || w.broken[0].inv != invPure {
		t.Errorf("not found: %v", w.broken)
	}
}
