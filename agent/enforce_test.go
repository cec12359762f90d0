package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
)

// If pods use more memory than the new limit of all pods allows, the agent sets the limit again each minute until that succeeds. It records
// one event about the failure and one about the success.
func TestLimitsOfAllPodsAreSetAgain(t *testing.T) {
	t.Parallel()
	var answers []error
	var events []string
	calls := 0
	e := &enforcement{
		setUp: func(_ context.Context, capacity v1.ResourceList) error {
			if n := capacity[nodestatus.ResourcePIDs]; n.Value() != 4000 {
				t.Errorf("the machine's processes are missing: %v", capacity)
			}
			calls++
			return answers[calls-1]
		},
		capacity: groupCapacity(&nodestatus.Settings{}, &nodestatus.Facts{}, 4000), levels: []string{"pods"},
		event: func(_, reason, _ string) { events = append(events, reason) }, log: slog.New(slog.DiscardHandler),
	}
	over := fmt.Errorf("%w: memory.max", cgroup.ErrNotEnforced)
	answers = []error{over, over, errors.New("D-Bus"), nil}
	at := time.Unix(1000, 0)
	if err := e.set(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		after time.Duration
		calls int
	}{{59 * time.Second, 1}, {time.Minute, 2}, {time.Minute + time.Second, 2}, {2 * time.Minute, 3}, {3 * time.Minute, 4}, {time.Hour, 4}} {
		if e.again(t.Context(), at.Add(step.after)); calls != step.calls {
			t.Errorf("step %d: %d calls, want %d", i, calls, step.calls)
		}
	}
	if got := strings.Join(events, " "); got != nodestatus.EventAllocatableFailed+" "+nodestatus.EventAllocatableEnforced {
		t.Errorf("events: %s", got)
	}
	var simulated *enforcement
	simulated.again(t.Context(), at)
}
