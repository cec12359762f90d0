package decide_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// TestKilling checks that the Killing event names the cause in upstream's words and announces a restart only if there will be one.
func TestKilling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		container string
		policy    v1.RestartPolicy
		cause     pod.Cause
		want      string
	}{
		{"main", v1.RestartPolicyAlways, pod.CauseLiveness, "Container main failed liveness probe, will be restarted"},
		{"main", v1.RestartPolicyOnFailure, pod.CauseStartup, "Container main failed startup probe, will be restarted"},
		{"main", v1.RestartPolicyNever, pod.CauseLiveness, "Container main failed liveness probe"},
		{"main", v1.RestartPolicyNever, pod.CauseChanged, "Container main definition changed, will be restarted"},
		{"always", v1.RestartPolicyNever, pod.CauseLiveness, "Container always failed liveness probe, will be restarted"},
		{"never", v1.RestartPolicyAlways, pod.CauseLiveness, "Container never failed liveness probe"},
		{"side", v1.RestartPolicyAlways, pod.CauseLiveness, "Init container side failed liveness probe"},
		{"side", v1.RestartPolicyAlways, pod.CauseChanged, "Init container side definition changed"},
		{"main", v1.RestartPolicyAlways, pod.CausePostStart, "FailedPostStartHook"},
		{"main", v1.RestartPolicyAlways, pod.CauseResize, "Container main resize requires restart"},
		{"main", v1.RestartPolicyAlways, pod.CauseRestartAll, "Stopping container main"},
		{"main", v1.RestartPolicyAlways, pod.CauseSandbox, "Stopping container main"},
		{"main", v1.RestartPolicyAlways, "what an older agent wrote", "Stopping container main"},
		{"main", v1.RestartPolicyAlways, pod.CauseNone, "Stopping container main"},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.policy, InitContainers: []v1.Container{{Name: "side"}}, Containers: []v1.Container{
			{Name: "main"}, {Name: "always", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, {Name: "never", RestartPolicy: new(v1.ContainerRestartPolicyNever)},
		}}}
		if got := decide.Killing(p, c.container, c.cause); got != c.want {
			t.Errorf("%s %s %s:\n got %q\nwant %q", c.container, c.policy, c.cause, got, c.want)
		}
	}
	if got, want := decide.Killing(nil, "main", pod.CauseLiveness), "Container main failed liveness probe"; got != want {
		t.Errorf("without a pod: got %q, want %q", got, want)
	}
}
