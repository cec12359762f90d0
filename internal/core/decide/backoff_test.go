package decide_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// A machine starts with a clock that is eight hours fast, and a container crashes twice. Then the clock is set. The container starts again after
// its back-off, and not eight hours later. The same holds for a container whose last instance was removed.
func TestBackOffWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	policy := decide.DefaultPolicy()
	for name, containers := range map[string][]pod.Container{
		"ended":   {{ID: "app-1", Name: "app", SandboxID: "s", Attempt: 1, State: pod.StateExited, ExitCode: 1, FinishedAt: epoch.Add(8 * time.Hour)}},
		"removed": nil,
	} {
		m := &decide.Memory{}
		m.Admitted, m.SetUp = true, true
		cm := m.Ensure("app")
		cm.CrashedID, cm.CrashUntil, cm.CrashDelay = "app-1", epoch.Add(8*time.Hour+10*time.Second), 20*time.Second
		cm.Pulled, cm.PulledImage = true, "i"
		in := &decide.Input{
			Pod:      &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "i"}}}},
			Observed: &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}}, Containers: containers},
			Memory:   m, Node: decide.Node{SourcesReady: true, NetworkReady: true}, Policy: &policy, Now: epoch,
		}
		plan := decide.Decide(in)
		if want := epoch.Add(20 * time.Second); len(plan.Do) != 0 || !plan.WakeAt.Equal(want) {
			t.Errorf("%s: begins %v, and looks again at %v, want %v", name, plan.Do, plan.WakeAt, want)
		}
		if !decide.Remember(m, &plan) {
			t.Errorf("%s: the checkpoint keeps the old time", name)
		}
		in.Now = epoch.Add(19 * time.Second)
		if plan = decide.Decide(in); len(plan.Do) != 0 || decide.Remember(m, &plan) {
			t.Errorf("%s: after 19 s: begins %v, back-off until %v", name, plan.Do, m.Container("app").CrashUntil)
		}
		in.Now = epoch.Add(20 * time.Second)
		if plan = decide.Decide(in); len(plan.Do) != 1 || plan.Do[0].Op != pod.OpStartContainer {
			t.Errorf("%s: after 20 s: begins %v", name, plan.Do)
		}
	}
}
