package perform

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// `kubectl debug --target`: "the ephemeral container will be run in the namespaces of the target container". If the target does
// not run, the ephemeral container must not start.
func TestTargetOfAnEphemeralContainer(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "aimed"}, TargetContainerName: "app"},
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "free"}},
	}}}
	at := func(s pod.ContainerState) *pod.Observed {
		return &pod.Observed{Containers: []pod.Container{{Name: "app", ID: "id", State: s}}}
	}
	for name, c := range map[string]struct {
		container string
		observed  *pod.Observed
		want, err string
	}{
		"it runs":      {"aimed", at(pod.StateRunning), "id", ""},
		"it has ended": {"aimed", at(pod.StateExited), "", "unable to find target container app"},
		"it never ran": {"aimed", &pod.Observed{}, "", "unable to find target container app"},
		"no target":    {"free", at(pod.StateExited), "", ""},
	} {
		got, err := targetOf(p, c.container, c.observed)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err {
			t.Errorf("%s: %q, %q; want %q, %q", name, got, text, c.want, c.err)
		}
	}
}
