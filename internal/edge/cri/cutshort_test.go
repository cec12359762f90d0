package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// If the agent is killed while containerd 2.x starts a container, containerd keeps a status of the container. The function cutShort returns
// true for such a status, and false for similar statuses that have another cause.
func TestStartThatWasCutShort(t *testing.T) {
	t.Parallel()
	const cut = `failed to create containerd task: failed to create shim task: context canceled`
	exited := runtimeapi.ContainerState_CONTAINER_EXITED
	for name, c := range map[string]struct {
		status *runtimeapi.ContainerStatus
		want   bool
	}{
		"cut short": {&runtimeapi.ContainerStatus{State: exited, FinishedAt: 9, ExitCode: 128, Reason: "StartError", Message: cut}, true},
		"by containerd 1.6": {&runtimeapi.ContainerStatus{State: exited, FinishedAt: 9, ExitCode: 128, Reason: "StartError",
			Message: "failed to create containerd task: failed to create shim task: context canceled: unknown"}, true},
		"it had started":    {&runtimeapi.ContainerStatus{State: exited, StartedAt: 8, FinishedAt: 9, ExitCode: 128, Reason: "StartError", Message: cut}, false},
		"no such program":   {&runtimeapi.ContainerStatus{State: exited, FinishedAt: 9, ExitCode: 128, Reason: "StartError", Message: "exec: no such file"}, false},
		"its own last word": {&runtimeapi.ContainerStatus{State: exited, FinishedAt: 9, ExitCode: 1, Reason: "Error", Message: cut}, false},
	} {
		c.status.Id = "c1"
		got := New(Config{}).container(c.status, &pod.Container{ID: "c1"})
		if got.CutShort != c.want || (got.State == pod.StateCreated) != c.want {
			t.Errorf("%s: cut short %v in state %s, want %v", name, got.CutShort, got.State, c.want)
		}
	}
}
