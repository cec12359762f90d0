package report

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// countEnds calls report for each end of a container that the statuses in after show and those in before do not. A container that
// restarts at once shows its end only as its last state.
func countEnds(before, after []v1.ContainerStatus, kind string, report func(kind string, exitCode int32, reason string)) {
	for i := range after {
		was := slices.IndexFunc(before, func(s v1.ContainerStatus) bool { return s.Name == after[i].Name })
		for _, end := range []*v1.ContainerStateTerminated{after[i].LastTerminationState.Terminated, after[i].State.Terminated} {
			if end == nil || end.ContainerID == "" || was >= 0 && has(&before[was], end.ContainerID) {
				continue
			}
			report(kind, end.ExitCode, end.Reason)
		}
	}
}

// has reports whether a status already shows the end of the container with the ID.
func has(s *v1.ContainerStatus, id string) bool {
	for _, end := range []*v1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
		if end != nil && end.ContainerID == id {
			return true
		}
	}
	return false
}
