package perform

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// A pod that refers to too many objects is not set up, and none of its images is pulled, because both would read the objects. One event says why. The
// Performer of this test has nothing to work with, so it would panic if it went on.
func TestAPodWithTooManyReferencesIsNotSetUp(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "app:1"}}}}
	for i := range 5000 {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: fmt.Sprint(i)})
	}
	events := &messages{}
	x := New(Config{Recorder: events})
	const want = "the pod refers to 5000 ConfigMaps, Secrets and PersistentVolumeClaims, and a pod may refer to at most 1024: "
	for _, tt := range []struct {
		action pod.Action
		reason string
	}{
		{pod.Action{Op: pod.OpSetUp}, "FailedMount"},
		{pod.Action{Op: pod.OpPullImage, Container: "main"}, "CreateContainerConfigError"},
	} {
		out := x.Do(t.Context(), pod.Job{Pod: p, Action: tt.action})
		if out.Err == nil || out.Reason != tt.reason || !strings.HasPrefix(out.Message, want) {
			t.Errorf("%s: %+v, want %s: %s", tt.action.Op, out, tt.reason, want)
		}
	}
	alive := &pod.Observed{Containers: []pod.Container{{Name: "main", State: pod.StateRunning}}}
	out := x.Do(t.Context(), pod.Job{Pod: p, Action: pod.Action{Op: pod.OpSetUp}, Observed: alive})
	if says := "The pod was started by another node agent: it goes on running, but its volumes are not renewed"; !strings.Contains(out.Message, says) || len(events.messages) != 2 || !strings.Contains(events.messages[1], says) {
		t.Errorf("of a pod that runs: %q, events %q", out.Message, events.messages)
	}
	events.messages = events.messages[:1]
	if len(events.messages) != 1 || !strings.HasPrefix(events.messages[0], want) {
		t.Errorf("events %q, want one about the references", events.messages)
	}
}

// A debug container that refers to too many objects does not start, and an event says why. The pod is set up as before.
func TestADebugContainerWithTooManyReferencesIsNotStarted(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "app:1"}}}}
	c := v1.EphemeralContainerCommon{Name: "debug", Image: "app:1"}
	for i := range 5000 {
		c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: fmt.Sprint(i)}}})
	}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: c}}
	events := &messages{}
	out := New(Config{Recorder: events}).Do(t.Context(), pod.Job{Pod: p, Action: pod.Action{Op: pod.OpPullImage, Container: "debug"}})
	const want = "with its debug containers, the pod refers to 5000 ConfigMaps"
	if out.Err == nil || !strings.HasPrefix(out.Message, want) || len(events.messages) != 1 || !strings.Contains(events.messages[0], want) {
		t.Errorf("%+v, events %q", out, events.messages)
	}
}
