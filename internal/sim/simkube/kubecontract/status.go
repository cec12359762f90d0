package kubecontract

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tryStatus patches the status and returns whether the server accepted it or found it invalid.
func (e *env) tryStatus(t *testing.T, name string, status any) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.CoreV1().Pods(e.ns).Patch(t.Context(), name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	switch {
	case err == nil:
		return "taken"
	case apierrors.IsInvalid(err):
		return "invalid"
	}
	t.Fatal(err)
	return ""
}

// states returns the part of a pod status in which list, such as containerStatuses, has one entry: a container with this name and state.
func states(list, name string, state v1.ContainerState) map[string]any {
	return map[string]any{list: []any{v1.ContainerStatus{Name: name, State: state}}}
}

func terminated(code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
}

var (
	isWaiting = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	isRunning = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
)

// rules gives a container its own restart policy, and a rule for an exit code if action is set.
func rules(c *v1.Container, policy v1.ContainerRestartPolicy, action v1.ContainerRestartRuleAction, code int32) {
	c.RestartPolicy = &policy
	if action != "" {
		c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}}}}
	}
}

func finalEnds(t *testing.T, e *env) {
	const restart = v1.ContainerRestartRuleActionRestart
	for i, tt := range []struct {
		pod    v1.RestartPolicy
		own    v1.ContainerRestartPolicy
		action v1.ContainerRestartRuleAction // the action for exit code 42
		code   int32
		want   string
	}{
		{v1.RestartPolicyAlways, "", "", 0, "taken"},
		{v1.RestartPolicyAlways, "", "", 1, "taken"},
		{v1.RestartPolicyOnFailure, "", "", 0, "invalid"},
		{v1.RestartPolicyOnFailure, "", "", 1, "taken"},
		{v1.RestartPolicyNever, "", "", 0, "invalid"},
		{v1.RestartPolicyNever, "", "", 1, "invalid"},
		{v1.RestartPolicyNever, v1.ContainerRestartPolicyAlways, "", 0, "taken"},
		{v1.RestartPolicyNever, v1.ContainerRestartPolicyOnFailure, "", 0, "invalid"},
		{v1.RestartPolicyNever, v1.ContainerRestartPolicyOnFailure, "", 1, "taken"},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, "", 1, "invalid"},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, restart, 42, "taken"},
		{v1.RestartPolicyAlways, v1.ContainerRestartPolicyNever, restart, 43, "invalid"},
	} {
		name := fmt.Sprint("p", i)
		e.pod(t, name, func(p *v1.Pod) {
			p.Spec.RestartPolicy = tt.pod
			if tt.own != "" {
				rules(&p.Spec.Containers[0], tt.own, tt.action, 42)
			}
		})
		if got := e.tryStatus(t, name, states("containerStatuses", "c", terminated(tt.code))); got != "taken" {
			t.Fatalf("%+v: the end is %s", tt, got)
		}
		if got := e.tryStatus(t, name, states("containerStatuses", "c", terminated(7))); got != "taken" {
			t.Errorf("%+v: another end is %s", tt, got)
		}
		e.tryStatus(t, name, states("containerStatuses", "c", terminated(tt.code)))
		for _, next := range []v1.ContainerState{isWaiting, isRunning} {
			if got := e.tryStatus(t, name, states("containerStatuses", "c", next)); got != tt.want {
				t.Errorf("%+v: a status after the end, %+v, is %s", tt, next, got)
			}
		}
	}
	e.pod(t, "other", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyAlways })
	e.tryStatus(t, "other", states("containerStatuses", "unknown", terminated(1)))
	if got := e.tryStatus(t, "other", states("containerStatuses", "unknown", isRunning)); got != "invalid" {
		t.Errorf("a container that the spec does not have changes after its end: %s", got)
	}
}

func finalInitEnds(t *testing.T, e *env) {
	withInits := func(policy v1.RestartPolicy) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.RestartPolicy = policy
			p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "i"}, {Name: "side", Image: "i"}}
			rules(&p.Spec.InitContainers[1], v1.ContainerRestartPolicyAlways, "", 0)
		}
	}
	for i, tt := range []struct {
		pod  v1.RestartPolicy
		name string
		code int32
		want string
	}{
		{v1.RestartPolicyAlways, "init", 0, "taken"},
		{v1.RestartPolicyOnFailure, "init", 0, "invalid"},
		{v1.RestartPolicyOnFailure, "init", 1, "taken"},
		{v1.RestartPolicyNever, "init", 1, "invalid"},
		{v1.RestartPolicyNever, "side", 0, "taken"},
		{v1.RestartPolicyNever, "side", 1, "taken"},
	} {
		name := fmt.Sprint("p", i)
		e.pod(t, name, withInits(tt.pod))
		e.tryStatus(t, name, states("initContainerStatuses", tt.name, terminated(tt.code)))
		if got := e.tryStatus(t, name, states("initContainerStatuses", tt.name, isRunning)); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
	e.pod(t, "debugged")
	e.tryStatus(t, "debugged", states("ephemeralContainerStatuses", "debug", terminated(1)))
	if got := e.tryStatus(t, "debugged", states("ephemeralContainerStatuses", "debug", isRunning)); got != "invalid" {
		t.Errorf("an ephemeral container changes after its end: %s", got)
	}
}

func endsOfRestartAll(t *testing.T, e *env) {
	e.pod(t, "a", func(p *v1.Pod) {
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d", Image: "i"})
		p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "i"}}
		rules(&p.Spec.Containers[0], v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers, 42)
	})
	for list, name := range map[string]string{"containerStatuses": "d", "initContainerStatuses": "init"} {
		e.tryStatus(t, "a", states(list, name, terminated(0)))
		if got := e.tryStatus(t, "a", states(list, name, isWaiting)); got != "taken" {
			t.Errorf("%s changes after its end: %s", name, got)
		}
	}
}

func invalidStatus(t *testing.T, e *env) {
	e.pod(t, "a", func(p *v1.Pod) {
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	})
	ips := func(key string, ips ...string) []any {
		out := []any{map[string]any{"$patch": "replace"}}
		for _, ip := range ips {
			out = append(out, map[string]any{key: ip})
		}
		return out
	}
	user := func(uid, gid int64, groups ...int64) map[string]any {
		return map[string]any{"containerStatuses": []any{v1.ContainerStatus{Name: "c", State: isRunning,
			User: &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: uid, GID: gid, SupplementalGroups: groups}}}}}
	}
	type m = map[string]any
	for _, tt := range []struct {
		name   string
		status m
		want   string
	}{
		{"another class", m{"qosClass": "Guaranteed"}, "invalid"},
		{"the same class", m{"qosClass": "BestEffort"}, "taken"},
		{"a negative generation", m{"observedGeneration": -1}, "invalid"},
		{"a negative generation of a condition", m{"conditions": []any{m{"type": "Ready", "status": "True", "observedGeneration": -1}}}, "invalid"},
		{"a generation that is to come", m{"observedGeneration": 1000}, "taken"},
		{"a condition without a name", m{"conditions": []any{m{"type": "", "status": "True"}}}, "invalid"},
		{"a condition with an invalid name", m{"conditions": []any{m{"type": "not a name", "status": "True"}}}, "invalid"},
		{"a condition with a prefix", m{"conditions": []any{m{"type": "example.com/gate", "status": "True"}}}, "taken"},
		{"two addresses", m{"podIP": "10.0.0.1", "podIPs": ips("ip", "10.0.0.1", "fd00::1")}, "taken"},
		{"two addresses of one family", m{"podIP": "10.0.0.1", "podIPs": ips("ip", "10.0.0.1", "10.0.0.2")}, "invalid"},
		{"an invalid address", m{"podIP": "nowhere", "podIPs": ips("ip", "nowhere")}, "invalid"},
		{"two host addresses", m{"hostIP": "192.0.2.1", "hostIPs": ips("ip", "192.0.2.1", "fd00::1")}, "taken"},
		{"host addresses in another order", m{"hostIP": "192.0.2.1", "hostIPs": ips("ip", "fd00::1", "192.0.2.1")}, "invalid"},
		{"two host addresses of one family", m{"hostIP": "192.0.2.1", "hostIPs": ips("ip", "192.0.2.1", "192.0.2.2")}, "invalid"},
		{"an invalid host address", m{"hostIP": "nowhere", "hostIPs": ips("ip", "nowhere")}, "invalid"},
		{"a user", user(0, 0, 1, 2), "taken"},
		{"a negative user", user(-1, 0), "invalid"},
		{"a negative group", user(0, -1), "invalid"},
		{"a negative supplemental group", user(0, 0, -1), "invalid"},
		{"a user that is too large", user(1<<31, 0), "invalid"},
	} {
		if got := e.tryStatus(t, "a", tt.status); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func generationsStay(t *testing.T, e *env) {
	e.pod(t, "a")
	e.patch(t, "a", `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","observedGeneration":1}]}}`, "status")
	p := e.patch(t, "a", `{"status":{"observedGeneration":0,"conditions":[{"type":"Ready","status":"False","observedGeneration":0}]}}`, "status")
	if p.Status.ObservedGeneration != 1 {
		t.Errorf("the pod's observed generation became %d", p.Status.ObservedGeneration)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && (c.ObservedGeneration != 1 || c.Status != v1.ConditionFalse) {
			t.Errorf("the condition became %+v", c)
		}
	}
}

func unchecked(t *testing.T, e *env) {
	e.pod(t, "a")
	for _, status := range []v1.PodStatus{
		{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: 5, State: isRunning}}},
		{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: 1, State: isWaiting}, {Name: "c", State: isWaiting}}},
		{Phase: "NoPhase"},
	} {
		if got := e.tryStatus(t, "a", status); got != "taken" {
			t.Errorf("%+v: %s", status, got)
		}
	}
}
