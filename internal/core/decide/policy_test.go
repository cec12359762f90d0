package decide_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// TestMayRestart checks after which exit codes a container starts again. Kubernetes documents: "restartPolicy ... Always, OnFailure, and
// Never"; "the container-level restartPolicy ... takes precedence over the pod-level"; "rules are evaluated in order; the first that
// matches ... counts".
func TestMayRestart(t *testing.T) {
	t.Parallel()
	restart, all := v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	rules := func(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}}
	}
	noCodes := []v1.ContainerRestartRule{{Action: restart}}
	tests := []struct {
		pod       v1.RestartPolicy
		container v1.ContainerRestartPolicy // the container's own restart policy; "": none
		rules     []v1.ContainerRestartRule
		code      int32
		want      bool
	}{
		{v1.RestartPolicyAlways, "", nil, 0, true},
		{v1.RestartPolicyAlways, "", nil, 1, true},
		{v1.RestartPolicyOnFailure, "", nil, 0, false},
		{v1.RestartPolicyOnFailure, "", nil, 1, true},
		{v1.RestartPolicyNever, "", nil, 0, false},
		{v1.RestartPolicyNever, "", nil, 1, false},
		{"", "", nil, 0, true}, // the default is Always
		{v1.RestartPolicyNever, v1.ContainerRestartPolicyAlways, nil, 0, true},
		{v1.RestartPolicyNever, v1.ContainerRestartPolicyOnFailure, nil, 0, false},
		{v1.RestartPolicyNever, v1.ContainerRestartPolicyOnFailure, nil, 1, true},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, nil, 0, false},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, nil, 1, false},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(restart, in, 42, 43), 42, true},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(restart, in, 42, 43), 43, true},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(restart, in, 42, 43), 44, false},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(restart, notIn, 42), 42, false},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(restart, notIn, 42), 41, true},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(all, in, 42), 42, true},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, rules(restart, "Other", 42), 42, false},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, noCodes, 42, false},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, append(noCodes, rules(restart, in, 42)...), 42, true},
		{v1.RestartPolicyNever, "", rules(restart, in, 42), 42, false}, // rules without a restart policy of the container itself have no effect
		{v1.RestartPolicyAlways, "Other", nil, 1, true},                // the container's policy is unknown, so the pod's policy counts
	}
	for _, tt := range tests {
		c := v1.Container{RestartPolicyRules: tt.rules}
		if tt.container != "" {
			c.RestartPolicy = &tt.container
		}
		if got := decide.MayRestart(&v1.PodSpec{RestartPolicy: tt.pod}, &c, tt.code); got != tt.want {
			t.Errorf("pod %q, container %q, rules %v, code %d: %v", tt.pod, tt.container, tt.rules, tt.code, got)
		}
	}
	first := append(rules(restart, in, 1), rules(all, in, 1)...)
	if r := decide.MatchingRule(&v1.Container{RestartPolicyRules: first}, 1); r != &first[0] {
		t.Errorf("the first of two rules does not count: %v", r)
	}
	if r := decide.MatchingRule(&v1.Container{RestartPolicyRules: first}, 2); r != nil {
		t.Errorf("a rule matches that does not: %v", r)
	}
}

func TestIsSidecar(t *testing.T) {
	t.Parallel()
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	for policy, want := range map[*v1.ContainerRestartPolicy]bool{nil: false, &always: true, &never: false} {
		if got := pod.IsSidecar(&v1.Container{RestartPolicy: policy}); got != want {
			t.Errorf("policy %v: %v", policy, got)
		}
	}
}

func TestSameContainer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		api, id string
		want    bool
	}{
		{"containerd://abc", "abc", true}, {"containerd://abc", "ab", false}, {"containerd://abc", "bc", false},
		{"abc", "abc", false}, {"", "", false}, {"://", "abc", false}, {"containerd://abc", "", false}, {"containerd://", "", false},
	} {
		if got := decide.SameContainer(tt.api, tt.id); got != tt.want {
			t.Errorf("SameContainer(%q, %q) = %v", tt.api, tt.id, got)
		}
	}
}

// TestStarted checks when a container counts as started: when its startup probe has succeeded; if it has no startup probe, when its
// postStart hook is done; if it has neither, when it runs. Probe results of another instance do not count.
func TestStarted(t *testing.T) {
	t.Parallel()
	inst := &pod.Container{ID: "app-1"}
	hook := &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	hooked := func(id string, failed bool) *decide.ContainerMemory {
		return &decide.ContainerMemory{ContainerLearned: decide.ContainerLearned{PostStartedID: id, PostStartFailed: failed}}
	}
	said := func(id string, started bool) decide.ProbeResults {
		return decide.ProbeResults{{ID: id, Started: started}}
	}
	tests := []struct {
		name          string
		c             v1.Container
		cm            *decide.ContainerMemory
		said          decide.ProbeResults
		started, done bool
	}{
		{"nothing asked for", v1.Container{}, nil, nil, true, true},
		{"an empty lifecycle", v1.Container{Lifecycle: &v1.Lifecycle{}}, nil, nil, true, true},
		{"a hook, nothing known", v1.Container{Lifecycle: hook}, nil, nil, false, false},
		{"a hook that is done", v1.Container{Lifecycle: hook}, hooked("app-1", false), nil, true, true},
		{"a hook that failed", v1.Container{Lifecycle: hook}, hooked("app-1", true), nil, false, false},
		{"a hook of the one before", v1.Container{Lifecycle: hook}, hooked("app-0", false), nil, false, false},
		{"a hook, reported as started", v1.Container{Lifecycle: hook}, nil, said("app-1", true), true, true},
		{"a hook, reported as not started", v1.Container{Lifecycle: hook}, nil, said("app-1", false), false, false},
		{"a hook, the one before reported as started", v1.Container{Lifecycle: hook}, nil, said("app-0", true), false, false},
		{"a startup probe, nothing known", v1.Container{StartupProbe: &v1.Probe{}}, nil, nil, false, true},
		{"a startup probe that succeeded", v1.Container{StartupProbe: &v1.Probe{}}, nil, said("app-1", true), true, true},
		{"a startup probe that has not", v1.Container{StartupProbe: &v1.Probe{}}, nil, said("app-1", false), false, true},
		{"a startup probe of the one before", v1.Container{StartupProbe: &v1.Probe{}}, nil, said("app-0", true), false, true},
	}
	for _, tt := range tests {
		if got := decide.Started(&tt.c, tt.cm, tt.said.Of(inst), inst); got != tt.started {
			t.Errorf("%s: started %v", tt.name, got)
		}
		if got := decide.PostStartDone(&tt.c, tt.cm, tt.said.Of(inst), inst); got != tt.done {
			t.Errorf("%s: hook done %v", tt.name, got)
		}
	}
}

// TestDefaultPolicy compares the defaults with the numbers in the documentation.
func TestDefaultPolicy(t *testing.T) {
	t.Parallel()
	want := decide.Policy{
		BackOffInitial: 10 * time.Second, BackOffMax: 300 * time.Second, BackOffReset: 600 * time.Second,
		PullBackOffInitial: 10 * time.Second, PullBackOffMax: 300 * time.Second,
		RetryInitial: time.Second / 2, RetryMax: 120 * time.Second, DeadContainersPerContainer: 1, MinGrace: 2 * time.Second,
	}
	if got := decide.DefaultPolicy(); got != want {
		t.Errorf("%+v", got)
	}
}

// TestEndReported checks that EndReported is true only for a pod of the API whose status says that the pod has ended.
func TestEndReported(t *testing.T) {
	t.Parallel()
	of := func(phase v1.PodPhase, source pod.Source) *v1.Pod {
		p := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
		p.Annotations = map[string]string{pod.AnnotationSource: source.String()}
		return p
	}
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		want bool
	}{
		{"it has succeeded", of(v1.PodSucceeded, pod.SourceAPI), true},
		{"it has failed", of(v1.PodFailed, pod.SourceAPI), true},
		{"it runs", of(v1.PodRunning, pod.SourceAPI), false},
		{"a static pod has failed", of(v1.PodFailed, pod.SourceFile), false},
		{"no source has it", nil, false},
	} {
		if got := decide.EndReported(c.pod); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

// TestStartsAgain checks StartsAgain with the restart policy Never: it is true only for the instance in ReplacedID, which the agent itself
// ended in order to start the container again, and which had not ended before a probe of it failed. A container without an instance (an empty ID) does not match an empty ReplacedID.
func TestStartsAgain(t *testing.T) {
	t.Parallel()
	never := &v1.PodSpec{RestartPolicy: v1.RestartPolicyNever}
	c, m := &v1.Container{Name: "app"}, &decide.Memory{Containers: []decide.ContainerMemory{{Name: "app"}}}
	if decide.StartsAgain(never, c, m, &pod.Container{}, 1) {
		t.Error("a container without an instance starts again")
	}
	first, second := &pod.Container{ID: "app-0"}, &pod.Container{ID: "app-1"}
	m.Containers[0].ReplacedID = "app-0"
	if !decide.StartsAgain(never, c, m, first, 0) || decide.StartsAgain(never, c, m, second, 0) {
		t.Error("only the instance that was ended for it starts again")
	}
	if always := (&v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways}); !decide.StartsAgain(always, c, m, second, 0) {
		t.Error("the restart policy does not count")
	}
	for cause, again := range map[pod.Cause]bool{pod.CauseLiveness: false, pod.CauseStartup: false, pod.CauseChanged: true} {
		m.Ends = decide.Ends{{Name: "app", ID: "app-0", Cause: cause, Decided: epoch}}
		if first.FinishedAt = epoch.Add(-time.Millisecond); decide.StartsAgain(never, c, m, first, 0) != again {
			t.Errorf("%s: an instance that had ended before starts again: %t, want %t", cause, !again, again)
		}
		if first.FinishedAt = epoch; !decide.StartsAgain(never, c, m, first, 0) {
			t.Errorf("%s: an instance that ended after that does not start again", cause)
		}
		if first.FinishedAt = (time.Time{}); !decide.StartsAgain(never, c, m, first, 0) {
			t.Errorf("%s: an instance whose end has no time does not start again", cause)
		}
	}
}

// A pod that ends reports its containers that were never created as terminated. NeverMade is true for these statuses only.
func TestNeverMade(t *testing.T) {
	t.Parallel()
	never := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: decide.ReasonStatusUnknown}}}
	for _, tt := range []struct {
		name   string
		phase  v1.PodPhase
		change func(*v1.ContainerStatus)
		want   bool
	}{
		{"it was never created", v1.PodPending, nil, true},
		{"its pod runs", v1.PodRunning, nil, true},
		{"its pod has failed", v1.PodFailed, nil, false},
		{"its pod has succeeded", v1.PodSucceeded, nil, false},
		{"it waits", v1.PodPending, func(st *v1.ContainerStatus) { st.State = v1.ContainerState{} }, false},
		{"it ended for another reason", v1.PodPending, func(st *v1.ContainerStatus) { st.State.Terminated.Reason = "Error" }, false},
		{"the container that ended has an ID", v1.PodPending, func(st *v1.ContainerStatus) { st.State.Terminated.ContainerID = "sim://a" }, false},
		{"it has an ID", v1.PodPending, func(st *v1.ContainerStatus) { st.ContainerID = "sim://a" }, false},
	} {
		st := *never.DeepCopy()
		if tt.change != nil {
			tt.change(&st)
		}
		if got := decide.NeverMade(&v1.PodStatus{Phase: tt.phase}, &st); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestUsableSandbox checks the conditions of a right sandbox: it is the only one that is ready, and has the pod's kind of network
// and an address.
func TestUsableSandbox(t *testing.T) {
	t.Parallel()
	ready := pod.Sandbox{ID: "a", Ready: true, IPs: []string{"10.0.0.1"}}
	host := pod.Sandbox{ID: "a", Ready: true, HostNetwork: true}
	tests := []struct {
		host      bool
		sandboxes []pod.Sandbox
		want      pod.Why
	}{
		{false, nil, decide.WhyFirstSandbox},
		{false, []pod.Sandbox{ready}, ""},
		{false, []pod.Sandbox{ready, {ID: "b"}}, ""},
		{false, []pod.Sandbox{ready, ready}, decide.WhySandboxMany},
		{false, []pod.Sandbox{{ID: "b"}, ready}, decide.WhySandboxDead},
		{false, []pod.Sandbox{{ID: "a", Ready: true}}, decide.WhySandboxNoIP},
		{false, []pod.Sandbox{host}, decide.WhySandboxNetwork},
		{true, []pod.Sandbox{ready}, decide.WhySandboxNetwork},
		{true, []pod.Sandbox{host}, ""},
	}
	for _, tt := range tests {
		p := &v1.Pod{Spec: v1.PodSpec{HostNetwork: tt.host}}
		sb, why := decide.UsableSandbox(p, &pod.Observed{Sandboxes: tt.sandboxes})
		if why != tt.want || (sb == nil) == (why == "") {
			t.Errorf("host %v, %v: %v, %q", tt.host, tt.sandboxes, sb, why)
		}
	}
}

func TestPhaseNames(t *testing.T) {
	t.Parallel()
	got := ""
	for p := range decide.PhaseGone + 2 {
		got += fmt.Sprint(p, " ")
	}
	if got != "active stopping stopped clearing gone invalid " {
		t.Errorf("%q", got)
	}
}
