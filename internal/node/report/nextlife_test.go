package report

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A static pod whose manifest comes back continues its restart counts, and its containers have the end of their last instance as
// their last state. A container that never ran has no last state.
func TestTheNextLifeHasALastState(t *testing.T) {
	t.Parallel()
	end := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, ContainerID: "containerd://a"}}
	next := afresh(&v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "ran", RestartCount: 1, ContainerID: "containerd://a", State: end},
		{Name: "never", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}}},
	}}).ContainerStatuses
	if next[0].RestartCount != 2 || next[0].LastTerminationState.Terminated == nil || next[0].LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("what ran: %+v", next[0])
	}
	if next[1].RestartCount != 0 || next[1].LastTerminationState.Terminated != nil {
		t.Errorf("what never ran: %+v", next[1])
	}
}
