package report

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEndsAreCountedOnce(t *testing.T) {
	t.Parallel()
	end := func(id string, code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: "Error"}}
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	one := func(state, last v1.ContainerState) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "other", State: running}, {Name: "main", State: state, LastTerminationState: last}}
	}
	none := v1.ContainerState{}
	for _, tt := range []struct {
		name          string
		before, after []v1.ContainerStatus
		want          []string
	}{
		{"runs", nil, one(running, none), nil},
		{"ended", one(running, none), one(end("a", 139), none), []string{"container 139 Error"}},
		{"ended before the first look", nil, one(end("a", 139), none), []string{"container 139 Error"}},
		{"still ended", one(end("a", 139), none), one(end("a", 139), none), nil},
		{"runs again", one(end("a", 139), none), one(running, end("a", 139)), nil},
		{"ended and runs again between two looks", one(running, none), one(running, end("a", 1)), []string{"container 1 Error"}},
		{"ended twice", one(running, none), one(end("b", 2), end("a", 1)), []string{"container 1 Error", "container 2 Error"}},
		{"ended again", one(running, end("a", 1)), one(end("b", 2), end("a", 1)), []string{"container 2 Error"}},
		{"an end that nobody saw has no ID", nil, one(end("", 137), none), nil},
	} {
		var got []string
		countEnds(tt.before, tt.after, "container", func(kind string, code int32, reason string) {
			got = append(got, fmt.Sprintf("%s %d %s", kind, code, reason))
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
