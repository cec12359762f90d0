package syncloop

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/probe"
)

// A container without probes counts as started only once its postStart hook is done, because otherwise the hook would never run.
// If the memory was lost, the started state in the API counts, if it belongs to the same container instance.
func TestPostStartComesBeforeStarted(t *testing.T) {
	t.Parallel()
	const id = "abc"
	hook := &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	reported := func(id string) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id, Started: new(true)}}
	}
	for name, c := range map[string]struct {
		lifecycle *v1.Lifecycle
		status    []v1.ContainerStatus
		memory    decide.ContainerLearned
		said      decide.ProbeResults
		want      bool
	}{
		"no hook":                               {want: true},
		"hook to run":                           {lifecycle: hook, said: decide.ProbeResults{{Name: "main", ID: id}}},
		"hook to run, nothing remembered":       {lifecycle: hook},
		"hook done":                             {lifecycle: hook, memory: decide.ContainerLearned{PostStartedID: id}, want: true},
		"hook failed":                           {lifecycle: hook, memory: decide.ContainerLearned{PostStartedID: id, PostStartFailed: true}},
		"hook of the instance before done":      {lifecycle: hook, memory: decide.ContainerLearned{PostStartedID: "before"}},
		"memory lost, reported as started":      {lifecycle: hook, status: reported(id), want: true},
		"memory lost, another instance started": {lifecycle: hook, status: reported("before")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: v1.PodStatus{ContainerStatuses: c.status},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Lifecycle: c.lifecycle}}}}
			obs := &pod.Observed{Containers: []pod.Container{{Name: "main", ID: id, State: pod.StateRunning, StartedAt: time.Now()}}}
			var m decide.Memory
			m.Ensure("main").ContainerLearned = c.memory
			(&Probes{Probes: probe.New(probe.Config{}), HostIPs: func() []string { return nil }}).Sync(p, obs, &m, &c.said)
			if got := c.said.Of(&obs.Containers[0]).Started; got != c.want {
				t.Errorf("started = %v, want %v", got, c.want)
			}
		})
	}
}
