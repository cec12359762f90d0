package decide

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// After the highest number, attempts do not begin again with 0: a runtime that makes numbers up, or a bad checkpoint, cannot make the names of old
// containers come back.
func TestAttemptsDoNotOverflow(t *testing.T) {
	t.Parallel()
	const most = math.MaxUint32
	for _, in := range []Input{
		{Observed: &pod.Observed{Sandboxes: []pod.Sandbox{{Attempt: most}}, Containers: []pod.Container{{Name: "main", Attempt: most}}}, Memory: &Memory{}},
		{Observed: &pod.Observed{}, Memory: &Memory{PodTries: PodTries{SandboxAttempt: most, SandboxAttemptKnown: true}}},
	} {
		in.Pod = &v1.Pod{}
		r := &turn{in: &in}
		if got := r.nextSandboxAttempt(); got != most {
			t.Errorf("the attempt of the sandbox after %d: %d", uint32(most), got)
		}
		cm := &ContainerMemory{ContainerTries: ContainerTries{HighestAttempt: most, AttemptKnown: true}}
		if got := r.nextAttempt("main", cm); got != most {
			t.Errorf("the attempt of the container after %d: %d", uint32(most), got)
		}
	}
}
