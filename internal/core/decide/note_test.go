package decide_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// TestPullReasons checks which waiting reasons are about the image, and which of them are shown as ImagePullBackOff between two pulls.
func TestPullReasons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason          string
		pull, isBackOff bool
	}{
		{"ErrImagePull", true, true},
		{"RegistryUnavailable", true, true},
		{"SignatureValidationFailed", true, true},
		{"ErrImageNeverPull", true, false},
		{"InvalidImageName", true, false},
		{"ImageInspectError", true, false},
		{"CreateContainerError", false, false},
		{"", false, false},
	} {
		if got := decide.PullReason(c.reason); got != c.pull {
			t.Errorf("PullReason(%q): got %v", c.reason, got)
		}
		if got := decide.PullBacksOff(c.reason); got != c.isBackOff {
			t.Errorf("PullBacksOff(%q): got %v", c.reason, got)
		}
	}
}

// TestMeet checks that Meet stores, for a running container, which list of the spec has the container and its index in that list. Both
// stay in the memory if the spec no longer has the container.
func TestMeet(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "init"}, {Name: "side"}, {Name: "done"}},
		Containers:          []v1.Container{{Name: "app"}, {Name: "web"}},
		EphemeralContainers: []v1.EphemeralContainer{{}, {EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	obs := &pod.Observed{}
	for _, name := range []string{"side", "web", "debug", "done"} {
		obs.Containers = append(obs.Containers, pod.Container{Name: name, State: pod.StateRunning})
	}
	obs.Containers[3].State = pod.StateExited
	var m decide.Memory
	decide.Meet(&m, p, obs)
	pol := decide.DefaultPolicy()
	start := pod.Outcome{Action: pod.Action{Op: pod.OpStartContainer, Container: "side"}, ID: "side-1"}
	decide.Note(&m, &v1.Pod{}, start, &pol)
	want := map[string]struct {
		kind  pod.Kind
		place uint16
	}{"side": {pod.KindInit, 1}, "web": {pod.KindMain, 1}, "debug": {pod.KindEphemeral, 1}}
	for name, w := range want {
		if c := m.Container(name); c == nil || c.Kind != w.kind || c.Place != w.place {
			t.Errorf("%s: got %+v, want %v %d", name, c, w.kind, w.place)
		}
	}
	if len(m.Containers) != len(want) {
		t.Errorf("a container that does not run is noted: %+v", m.Containers)
	}
}

// TestRefreshDropsTheWaitsOfVolumes checks that Refresh ends the back-off of set-up and tear-down, and not of other actions.
func TestRefreshDropsTheWaitsOfVolumes(t *testing.T) {
	t.Parallel()
	m := decide.Memory{PodTries: decide.PodTries{Retry: []decide.Retry{{Op: pod.OpSetUp}, {Op: pod.OpTearDown}, {Op: pod.OpStopSandbox, ID: "s"}}}}
	m.Refresh()
	if len(m.Retry) != 1 || m.Retry[0].Op != pod.OpStopSandbox {
		t.Errorf("waits that are left: %+v", m.Retry)
	}
}

// TestAFailedRefreshLeavesTheVolumes checks that volumes stay set up if the set-up that renews their content fails, or if its outcome is not known.
func TestAFailedRefreshLeavesTheVolumes(t *testing.T) {
	t.Parallel()
	pol := decide.DefaultPolicy()
	setUp := func(m *decide.Memory, o pod.Outcome) {
		o.Action = pod.Action{Op: pod.OpSetUp}
		decide.Note(m, nil, o, &pol)
	}
	var m decide.Memory
	setUp(&m, pod.Outcome{Err: errors.New("no such secret")})
	if m.SetUp {
		t.Error("the first set-up failed, and the volumes count as set up")
	}
	m.Refresh()
	if m.Outdated {
		t.Error("volumes that were never set up count as outdated")
	}
	setUp(&m, pod.Outcome{})
	m.Refresh()
	for name, o := range map[string]pod.Outcome{"failed": {Err: errors.New("the API server is away")}, "unknown": {Unknown: true}} {
		if setUp(&m, o); !m.SetUp || !m.Outdated {
			t.Errorf("%s refresh: set up %t, outdated %t", name, m.SetUp, m.Outdated)
		}
	}
	if setUp(&m, pod.Outcome{}); !m.SetUp || m.Outdated {
		t.Errorf("refresh: set up %t, outdated %t", m.SetUp, m.Outdated)
	}
}
