package fleetctl

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// While no pod starts or ends, the progress says which pods have no node and why, and asks the API server once in ten seconds. While pods start, it
// asks nothing.
func TestStuck(t *testing.T) {
	t.Parallel()
	var k stuck
	asked := 0
	var answer fleet.Unplaced
	var failure error
	ask := func(context.Context) (fleet.Unplaced, error) {
		asked++
		return answer, failure
	}
	now := time.Unix(1000, 0)
	tell := func(after time.Duration, running, wantAsked int, want string) {
		t.Helper()
		now = now.Add(after)
		if got := k.tell(t.Context(), &fleet.Pods{Running: running, Succeeded: 1}, now, ask); got != want || asked != wantAsked {
			t.Errorf("at %s with %d pods: %q, asked %d times; want %q, %d times", now, running, got, asked, want, wantAsked)
		}
	}
	answer = fleet.Unplaced{Pods: 7, Pod: "default/p", Says: "0/1 nodes are available:\n1 Too many pods."}
	const why = "; 7 pods have no node, such as default/p: 0/1 nodes are available:\\n1 Too many pods."
	tell(0, 100, 0, "")
	tell(9*time.Second, 110, 0, "")
	tell(9*time.Second, 110, 0, "")
	tell(time.Second, 110, 1, why)
	tell(9*time.Second, 110, 1, why)
	tell(time.Second, 110, 2, why)
	tell(time.Second, 111, 2, "")
	answer.Says = ""
	tell(10*time.Second, 111, 3, "; 7 pods have no node, and the scheduler has not said why")
	answer.Pods = 0
	tell(10*time.Second, 111, 4, "")
	answer, failure = fleet.Unplaced{Pods: 3}, errors.New("no answer")
	tell(10*time.Second, 111, 5, "")
	answer, failure = fleet.Unplaced{Pods: 3, Pod: "a/b", Says: strings.Repeat("x", 1000)}, nil
	tell(10*time.Second, 111, 6, "; 3 pods have no node, such as a/b: "+strings.Repeat("x", mostWhy)+"...")
}

// The state of a fleet says how far its scenarios are: also that no fault has happened because the conditions never held.
func TestStateSaysHowFarScenariosAre(t *testing.T) {
	t.Parallel()
	var s State
	s.Scenarios = []fleet.ScenarioStatus{
		{Name: "a.yaml", Faults: 3}, {Name: "b.yaml", Faults: 3, Happened: 1, Next: "reboot"}, {Name: "c.yaml", Faults: 5, Happened: 3, Failed: 2, Ended: true},
	}
	var out bytes.Buffer
	writeState(&out, &s)
	for _, want := range []string{
		"faults    a.yaml: 0 of 3 happened; it waits for its conditions\n", "faults    b.yaml: 1 of 3 happened; next: reboot\n", "faults    c.yaml: 3 of 5 happened, 2 could not\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the state does not say %q:\n%s", want, &out)
		}
	}
}
