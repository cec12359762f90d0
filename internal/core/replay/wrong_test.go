package replay_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
)

func TestWrong(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	broken := errors.New("a secret of the runtime")
	crash := decide.Crash{Name: "app", ID: "app-1", Until: at}
	ends := decide.End{Name: "app", ID: "app-1", Cause: pod.CauseLiveness}
	for name, c := range map[string]struct {
		memory   decide.Memory
		plan     decide.Plan
		outcomes []pod.Outcome
		want     string
	}{
		"nothing":                    {},
		"a success":                  {outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpSetUp}}}},
		"a failure":                  {outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpPullImage, Container: "app"}, Err: broken, Reason: "ErrImagePull"}}, want: "pull-image app failed (ErrImagePull)"},
		"a failure without reason":   {outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpSetUp}, Err: broken}}, want: "set-up failed (error)"},
		"an action that was cut":     {outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpPullImage, Container: "app"}, Err: broken, Canceled: true}}},
		"a crash":                    {plan: decide.Plan{Crashes: []decide.Crash{crash}}, want: "container app ended with exit code 7"},
		"a crash of an earlier turn": {memory: decide.Memory{Containers: []decide.ContainerMemory{crashed("app", "app-1")}}, plan: decide.Plan{Crashes: []decide.Crash{crash}}},
		"a probe":                    {plan: decide.Plan{Ends: []decide.End{ends}}, want: "container app is ended: Liveness"},
		"a probe of an earlier turn": {memory: decide.Memory{Ends: decide.Ends{ends}}, plan: decide.Plan{Ends: []decide.End{ends}}},
		"a changed definition":       {plan: decide.Plan{Ends: []decide.End{{Name: "app", ID: "app-1", Cause: pod.CauseChanged}}}},
		"a deadline":                 {plan: decide.Plan{Stop: &decide.Stop{Reason: "DeadlineExceeded"}}, want: "the node ends the pod: DeadlineExceeded"},
		"an eviction":                {memory: decide.Memory{Stop: &decide.Stop{Reason: "Evicted"}}, plan: decide.Plan{Ending: true}, want: "the node ends the pod: Evicted"},
		"a deletion":                 {plan: decide.Plan{Ending: true}},
		"a failed pod":               {plan: decide.Plan{Ending: true, Finished: true}, want: "container app ended with exit code 7, and the pod has failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := decide.Input{Memory: &c.memory, Observed: &pod.Observed{Containers: []pod.Container{{Name: "app", ID: "app-1", State: pod.StateExited, ExitCode: 7}}}}
			got := replay.Wrong(&in, &c.plan, c.outcomes)
			if !strings.EqualFold(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// crashed returns the memory of a container whose end the worker has already recorded.
func crashed(name, id string) decide.ContainerMemory {
	m := decide.Memory{}
	cm := m.Ensure(name)
	cm.CrashedID = id
	return *cm
}
