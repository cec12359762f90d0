package fleet_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/fleet"
)

// Of an instant only the last change of each object is passed on, in the order of the names, and only if something has changed.
func TestInstants(t *testing.T) {
	t.Parallel()
	pod := func(at time.Duration, name, state string) fleet.Change {
		return fleet.Change{At: at * time.Millisecond, Node: "n", Pod: name, State: state}
	}
	var got []fleet.Change
	i := fleet.NewInstants(func(c fleet.Change) { got = append(got, c) })
	for _, c := range []fleet.Change{
		pod(0, "b", "Pending"), pod(0, "a", "Pending"), pod(0, "b", "Running"), pod(0, "x", "Pending"), pod(0, "x", "Gone"),
		pod(1, "a", "Running"), pod(1, "a", "Pending"), pod(2, "a", "Gone"), pod(2, "b", "Gone"), pod(2, "b", "Running"),
	} {
		i.Changed(c)
	}
	i.Changed(fleet.Change{At: 2*time.Millisecond + 3, Node: "n", Pod: "b", State: "Running"})
	i.Flush()
	if diff := cmp.Diff([]fleet.Change{pod(0, "a", "Pending"), pod(0, "b", "Running"), pod(2, "a", "Gone")}, got); diff != "" {
		t.Error(diff)
	}
}
