package status

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkPatch measures the patch for a pod that became ready.
func BenchmarkPatch(b *testing.B) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	status := func(ready v1.ConditionStatus, state v1.ContainerState) *v1.PodStatus {
		s := &v1.PodStatus{Phase: v1.PodRunning, HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}, PodIP: "10.1.0.1",
			PodIPs: []v1.PodIP{{IP: "10.1.0.1"}}, StartTime: &at, QOSClass: v1.PodQOSBestEffort}
		for _, t := range []v1.PodConditionType{v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
			c := v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: at, ObservedGeneration: 1}
			if t == v1.PodReady || t == v1.ContainersReady {
				c.Status = ready
			}
			s.Conditions = append(s.Conditions, c)
		}
		s.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Image: "registry.example/app:1", ImageID: "sha256:0123", ContainerID: "containerd://0123", State: state}}
		return s
	}
	base := status(v1.ConditionFalse, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	want := status(v1.ConditionTrue, v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}})
	b.ReportAllocs()
	for b.Loop() {
		if raw, err := buildPatch("u", base, want); err != nil || raw == nil {
			b.Fatal(err)
		}
	}
}
