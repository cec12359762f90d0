package differ

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Plants are faults that an agent may have, by name. Each changes what Wherry did with a case as that fault would have, and says
// whether the case gave it a chance to. With them one sees how much of a recorded run the comparison finds.
var Plants = map[string]func(*Case, *Trace) bool{
	"grace":   plantGrace,
	"restart": plantRestart,
	"reason":  plantReason,
}

// plantGrace gives every container four seconds more to end than it has.
func plantGrace(_ *Case, t *Trace) (planted bool) {
	for i, c := range t.Calls {
		if c.Verb == "StopContainer" && !c.Late {
			t.Calls[i].Timeout += 4
			planted = true
		}
	}
	return planted
}

// plantRestart deletes from the trace every start of a main container after its first restart, as if the agent had stopped
// restarting it.
func plantRestart(c *Case, t *Trace) bool {
	before := len(t.Calls)
	t.Calls = slices.DeleteFunc(t.Calls, func(call Call) bool { return c.kind(call.Container) == "main" && call.Attempt%lifeAttempts > 1 })
	return len(t.Calls) < before
}

// plantReason gives the condition Ready another reason while containers are not ready.
func plantReason(_ *Case, t *Trace) (planted bool) {
	for _, s := range t.Statuses {
		for i, c := range s.Pod.Status.Conditions {
			if c.Type == v1.PodReady && c.Reason == "ContainersNotReady" {
				s.Pod.Status.Conditions[i].Reason = "NotReady"
				planted = true
			}
		}
	}
	return planted
}
