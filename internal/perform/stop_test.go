package perform

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
)

// The Killing event says why in upstream's words, and promises a restart only where there will be one.
func TestKilling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		container string
		policy    v1.RestartPolicy
		why       pod.Why
		want      string
	}{
		{"main", v1.RestartPolicyAlways, decide.WhyLiveness, "Container main failed liveness probe, will be restarted"},
		{"main", v1.RestartPolicyOnFailure, decide.WhyStartup, "Container main failed startup probe, will be restarted"},
		{"main", v1.RestartPolicyNever, decide.WhyLiveness, "Container main failed liveness probe"},
		{"main", v1.RestartPolicyNever, decide.WhyChanged, "Container main definition changed, will be restarted"},
		{"always", v1.RestartPolicyNever, decide.WhyLiveness, "Container always failed liveness probe, will be restarted"},
		{"never", v1.RestartPolicyAlways, decide.WhyLiveness, "Container never failed liveness probe"},
		{"side", v1.RestartPolicyAlways, decide.WhyLiveness, "Init container side failed liveness probe"},
		{"main", v1.RestartPolicyAlways, decide.WhyDeleted, "Stopping container main: the pod is being deleted"},
		{"main", v1.RestartPolicyAlways, "", "Stopping container main"},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.policy, InitContainers: []v1.Container{{Name: "side"}}, Containers: []v1.Container{
			{Name: "main"}, {Name: "always", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, {Name: "never", RestartPolicy: new(v1.ContainerRestartPolicyNever)},
		}}}
		if got := killing(p, pod.Action{Container: c.container, Why: c.why}); got != c.want {
			t.Errorf("%s %s %s:\n got %q\nwant %q", c.container, c.policy, c.why, got, c.want)
		}
	}
	if got, want := killing(nil, pod.Action{Container: "main", Why: decide.WhyLiveness}), "Container main failed liveness probe"; got != want {
		t.Errorf("without a pod: got %q, want %q", got, want)
	}
}
