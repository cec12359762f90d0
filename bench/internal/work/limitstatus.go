package work

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// conditions returns the conditions of a pod. sandbox is the status of PodReadyToStartContainers. ready is the status of Ready and
// ContainersReady. The other conditions are true.
func conditions(sandbox, ready v1.ConditionStatus, now metav1.Time) []v1.PodCondition {
	var out []v1.PodCondition
	for _, c := range []struct {
		t v1.PodConditionType
		s v1.ConditionStatus
	}{{v1.PodReadyToStartContainers, sandbox}, {v1.PodInitialized, v1.ConditionTrue}, {v1.PodReady, ready}, {v1.ContainersReady, ready}, {v1.PodScheduled, v1.ConditionTrue}} {
		out = append(out, v1.PodCondition{Type: c.t, Status: c.s, LastTransitionTime: now})
	}
	return out
}

func waiting(now metav1.Time) v1.PodStatus {
	ip := rig.Address()
	return v1.PodStatus{
		Phase: v1.PodPending, StartTime: &now, HostIP: ip, HostIPs: []v1.HostIP{{IP: ip}}, QOSClass: v1.PodQOSBestEffort,
		Conditions: conditions(v1.ConditionFalse, v1.ConditionFalse, now),
		ContainerStatuses: []v1.ContainerStatus{{Name: "sleep", Image: image, Started: new(false),
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}},
	}
}

func running(s *v1.PodStatus, ip string, attempt uint32, c *runtimeapi.ContainerStatus) {
	s.Phase, s.PodIP, s.PodIPs = v1.PodRunning, ip, []v1.PodIP{{IP: ip}}
	s.Conditions = conditions(v1.ConditionTrue, v1.ConditionTrue, metav1.Now())
	s.ContainerStatuses = []v1.ContainerStatus{{
		Name: "sleep", Image: image, ImageID: c.GetImageRef(), ContainerID: "containerd://" + c.GetId(), Ready: true, Started: new(true), RestartCount: int32(attempt),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Unix(0, c.GetStartedAt()))}},
	}}
}

func ended(s *v1.PodStatus, c *runtimeapi.ContainerStatus) {
	s.Conditions = conditions(v1.ConditionTrue, v1.ConditionFalse, metav1.Now())
	if len(s.ContainerStatuses) == 0 {
		return
	}
	cs := &s.ContainerStatuses[0]
	cs.Ready, cs.Started = false, new(false)
	cs.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: c.GetExitCode(), Reason: c.GetReason(), ContainerID: cs.ContainerID,
		StartedAt: metav1.NewTime(time.Unix(0, c.GetStartedAt())), FinishedAt: metav1.NewTime(time.Unix(0, c.GetFinishedAt())),
	}}
}
