package decide_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
)

// FuzzDecide makes specs, observations, memories and actions in flight out of bytes, whether or not they can occur. Decide must
// not panic, and its plan must keep the invariants of a single plan.
func FuzzDecide(f *testing.F) {
	for i := range 64 {
		seed := make([]byte, 160)
		for j := range seed {
			seed[j] = byte((i*37 + j*j*13 + j) % 251)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := (&bytesSource{data: data}).input()
		before := in.Memory.Clone()
		plan := decide.Decide(&in)
		if !reflect.DeepEqual(&before, in.Memory) {
			t.Error("Decide wrote to memory")
		}
		for _, bad := range badPlan(&in, &plan) {
			t.Errorf("%s\nplan: %v\ninput: %+v", bad, plan.Do, in)
		}
		if p := decide.Decide(&in); !reflect.DeepEqual(p, plan) {
			t.Errorf("the same input gives another plan: %v, %v", plan, p)
		}
		again := in
		mem := in.Memory.Clone()
		again.Memory = &mem
		decide.Remember(again.Memory, &plan)
		if decide.Remember(again.Memory, &plan) {
			t.Error("Remember changes memory twice")
		}
		again.InFlight = slices.DeleteFunc(slices.Clone(in.InFlight), func(a pod.Action) bool {
			return slices.ContainsFunc(plan.Cancel, func(c pod.Action) bool { return c.Key() == a.Key() })
		})
		for _, a := range plan.Do {
			again.InFlight = append(again.InFlight, a.Key())
		}
		if p := decide.Decide(&again); len(plan.Cancel) == 0 && len(p.Do) > 0 {
			t.Errorf("with its plan %v in flight it plans again: %v", plan.Do, p.Do)
		}
		if in.Pod != nil {
			checkStatus(t, &in, &plan)
		}
	})
}

func checkStatus(t *testing.T, in *decide.Input, plan *decide.Plan) {
	st := podstatus.Derive(podstatus.Input{
		Pod: in.Pod, Observed: in.Observed, Memory: in.Memory, Probed: in.Probed, Plan: plan, RuntimeName: "sim",
		HostIPs: []string{"192.0.2.1"}, Now: in.Now,
	})
	was := in.Pod.Status.Phase
	if (was == v1.PodFailed || was == v1.PodSucceeded) && !(in.Memory.Stop != nil && in.Memory.Stop.Rejected) && st.Phase != was {
		t.Errorf("terminal phase %s becomes %s", was, st.Phase)
	}
	if was != st.Phase && (st.Phase == v1.PodFailed || st.Phase == v1.PodSucceeded) && in.Observed.AnyAlive() && !plan.Ended {
		t.Errorf("phase %s while a container lives", st.Phase)
	}
	checkContainers(t, &st)
}

// badPlan returns what is wrong with a plan. It checks what must hold for every input.
func badPlan(in *decide.Input, plan *decide.Plan) []string {
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	seen := map[pod.Action]bool{}
	for _, a := range in.InFlight {
		seen[a.Key()] = true
	}
	starts := map[string]bool{}
	for _, a := range in.InFlight {
		if a.Op == pod.OpStartContainer {
			starts[a.Container] = true
		}
	}
	for _, a := range plan.Do {
		if seen[a.Key()] {
			say("%v is planned twice", a)
		}
		seen[a.Key()] = true
		if a.Why == "" {
			say("%v has no reason", a)
		}
		if a.Op.Starts() && (plan.Ending || in.Stale || in.Node.Predecessor || in.Pod == nil) {
			say("%v starts something at the wrong time", a)
		}
		switch a.Op {
		case pod.OpStartContainer:
			if starts[a.Container] {
				say("%v is a second start", a)
			}
			starts[a.Container] = true
			for _, c := range in.Observed.Containers {
				if c.Name == a.Container && c.State == pod.StateRunning {
					say("%v beside running %s", a, c.ID)
				}
			}
		case pod.OpRunSandbox:
			for _, c := range in.Observed.Containers {
				if c.State == pod.StateRunning {
					say("%v beside running %s", a, c.ID)
				}
			}
		case pod.OpTearDown, pod.OpForget, pod.OpStopSandbox:
			for _, c := range in.Observed.Containers {
				if c.State == pod.StateRunning {
					say("%v under running %s", a, c.ID)
				}
			}
		case pod.OpRemoveContainer:
			if c := in.Observed.ByID(a.ID); c == nil || c.State == pod.StateRunning {
				say("%v of a container that runs or is not there", a)
			}
		case pod.OpStopContainer:
			if a.Grace < leastGrace(in) {
				say("%v has too little grace", a)
			}
		case pod.OpNone, pod.OpSetUp, pod.OpPullImage, pod.OpPostStart, pod.OpPreStop, pod.OpRemoveSandbox, pod.OpResize:
		}
	}
	if !plan.WakeAt.IsZero() && !plan.WakeAt.After(in.Now) {
		say("it wakes at %v, which is not after now", plan.WakeAt)
	}
	return bad
}

// bytesSource makes values from bytes, and zeros when there are no more bytes.
type bytesSource struct{ data []byte }

func (s *bytesSource) byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

func (s *bytesSource) n(n int) int { return int(s.byte()) % n }
func (s *bytesSource) bool() bool  { return s.byte()%2 == 1 }
func (s *bytesSource) rare() bool  { return s.byte()%8 == 7 }

func (s *bytesSource) time() time.Time {
	if s.bool() {
		return time.Time{}
	}
	return epoch.Add(time.Duration(s.n(120)-60) * time.Second)
}

var fuzzNames = [...]string{"a", "b", "i", "s", "e", "x"}

func (s *bytesSource) input() decide.Input {
	pol := decide.DefaultPolicy()
	in := decide.Input{
		Observed: &pod.Observed{Began: epoch}, Memory: &decide.Memory{Grant: decide.Grant{Admitted: !s.rare()}}, Policy: &pol, Now: epoch,
		Stale: s.rare(), Hashes: map[string]string{"a": "1-h", "b": "1-h", "i": "1-h", "s": "1-h"},
		Node: decide.Node{NetworkReady: !s.rare(), SourcesReady: !s.rare(), Predecessor: s.rare()},
	}
	if !s.rare() {
		in.Pod = s.pod()
	}
	for i := range s.n(3) {
		in.Observed.Sandboxes = append(in.Observed.Sandboxes, pod.Sandbox{
			ID: fmt.Sprintf("sb%d", 2-i), Attempt: uint32(2 - i), Ready: i == 0 && !s.rare() || s.rare(),
			HostNetwork: s.rare(), IPs: []string{"10.0.0.1"},
		})
	}
	for _, name := range fuzzNames {
		for i := range s.n(3) {
			in.Observed.Containers = append(in.Observed.Containers, s.container(name, uint32(4-i)))
		}
		if s.bool() {
			s.memory(&in, in.Memory.Ensure(name), name)
		}
	}
	s.podMemory(in.Memory)
	for range s.n(3) {
		a := pod.Action{Op: pod.Op(s.n(int(pod.OpResize) + 1))}
		name := fuzzNames[s.n(len(fuzzNames))]
		switch a.Op {
		case pod.OpPullImage:
			a.Container = name
		case pod.OpStartContainer:
			a.Container, a.Attempt = name, 5
		case pod.OpStopContainer, pod.OpPreStop, pod.OpPostStart, pod.OpRemoveContainer:
			a.Container, a.ID, a.Grace = name, name+"4", time.Duration(s.n(30))*time.Second
		case pod.OpStopSandbox, pod.OpRemoveSandbox:
			a.ID = "sb2"
		default:
		}
		in.InFlight = append(in.InFlight, a)
	}
	return in
}

func (s *bytesSource) pod() *v1.Pod {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever, ""}
	p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policies[s.n(4)], HostNetwork: s.rare()}}
	always := v1.ContainerRestartPolicyAlways
	for _, name := range []string{"i", "s"} {
		if s.bool() {
			c := s.spec(name)
			if name == "s" {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	for _, name := range []string{"a", "b"} {
		if s.bool() {
			p.Spec.Containers = append(p.Spec.Containers, s.spec(name))
		}
	}
	if s.rare() {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "e"},
		})
	}
	grace := int64(s.byte()) - 8
	if s.rare() {
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	if s.rare() {
		at := metav1.NewTime(epoch)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	}
	if s.rare() {
		p.Spec.ActiveDeadlineSeconds = &grace
		at := metav1.NewTime(epoch.Add(-time.Minute))
		p.Status.StartTime = &at
	}
	p.Status.Phase = []v1.PodPhase{"", v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodFailed, v1.PodSucceeded}[s.n(6)]
	for _, name := range fuzzNames[:2] {
		if s.bool() {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s.status(name))
		}
	}
	return p
}

func (s *bytesSource) status(name string) v1.ContainerStatus {
	st := v1.ContainerStatus{Name: name, RestartCount: int32(s.n(9)) - 1}
	if s.bool() {
		st.ContainerID = "sim://" + name + "4"
	}
	switch s.n(3) {
	case 0:
		st.State.Running = &v1.ContainerStateRunning{}
	case 1:
		st.State.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(s.n(2))}
	default:
		st.State.Waiting = &v1.ContainerStateWaiting{}
	}
	return st
}

func (s *bytesSource) spec(name string) v1.Container {
	c := v1.Container{Name: name, Image: "img"}
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{}}
	if s.rare() {
		c.Lifecycle = &v1.Lifecycle{PostStart: hook}
	}
	if s.rare() {
		c.Lifecycle = &v1.Lifecycle{PreStop: hook}
	}
	if s.rare() {
		c.StartupProbe = &v1.Probe{}
	}
	if s.rare() {
		own := []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure}[s.n(2)]
		c.RestartPolicy = &own
		c.RestartPolicyRules = []v1.ContainerRestartRule{{
			Action: []v1.ContainerRestartRuleAction{"Restart", "RestartAllContainers"}[s.n(2)],
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1},
			},
		}}
	}
	return c
}

func (s *bytesSource) container(name string, attempt uint32) pod.Container {
	c := pod.Container{
		ID: fmt.Sprintf("%s%d", name, attempt), Name: name, Attempt: attempt, SandboxID: fmt.Sprintf("sb%d", 2-s.n(2)),
		State: pod.ContainerState(s.n(4)), ExitCode: int32(s.n(3)), SpecHash: []string{"1-h", "1-h", "0-h", "", "1-other"}[s.n(5)],
		StartedAt: s.time(), FinishedAt: s.time(), PreStop: s.rare(), Grace: time.Duration(s.n(40)-1) * time.Second,
	}
	return c
}

func (s *bytesSource) memory(in *decide.Input, cm *decide.ContainerMemory, name string) {
	id := func() string {
		if s.bool() {
			return ""
		}
		return name + "4"
	}
	cm.Pulled, cm.PulledImage = s.bool(), "img"
	cm.CrashedID, cm.CrashUntil, cm.CrashDelay = id(), s.time(), time.Duration(s.n(30))*time.Second
	cm.PullUntil, cm.PullDelay = s.time(), time.Duration(s.n(30))*time.Second
	cm.StartUntil, cm.StartFailedID = s.time(), id()
	cm.HighestAttempt, cm.AttemptKnown = uint32(s.n(8)), s.bool()
	said := decide.Probed{Name: name, ID: id(), Started: s.bool()}
	if s.rare() {
		said.Failed.Cause = []pod.Cause{pod.CauseStartup, pod.CauseLiveness}[len(name)%2]
	}
	in.Probed.Set(said)
	cm.PostStartedID, cm.PostStartFailed = id(), s.rare()
	cm.PreStoppedID = id()
	cm.StopID, cm.Stopped, cm.StopUntil = id(), s.bool(), s.time()
	cm.ReplacedID = id()
	if s.bool() {
		cm.WaitingReason = "ErrImagePull"
	}
}

func (s *bytesSource) podMemory(m *decide.Memory) {
	m.SetUp, m.TornDown, m.Forgotten = s.bool(), s.rare(), s.rare()
	m.Finished, m.Orphaned, m.RestartingAll, m.RestartedAll = s.rare(), s.rare(), s.rare(), s.rare()
	m.RestartedAll = m.RestartedAll || m.RestartingAll // Remember never leaves RestartingAll without RestartedAll
	if s.rare() {
		m.StopBegan, m.StopGrace = s.time(), time.Duration(s.n(60))*time.Second
	}
	if s.rare() {
		m.Stop = &decide.Stop{Reason: "Evicted", Rejected: s.rare(), AtOnce: s.rare()}
	}
	if s.rare() {
		m.Ends = []decide.End{{Name: "app", ID: "app4", Cause: pod.CauseLiveness, Began: s.time(), Decided: s.time(), Grace: time.Duration(s.n(50)) * time.Second}}
	}
	for range s.n(3) {
		m.Retry = append(m.Retry, decide.Retry{Op: pod.Op(s.n(14)), Until: s.time(), ID: []string{"", "sb2"}[s.n(2)]})
	}
	if s.bool() {
		m.StoppedSandboxes = []string{"sb2"}
	}
	m.Outdated = m.SetUp && s.rare()
}
