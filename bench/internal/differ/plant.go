package differ

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Plants contains faults that an agent might have, by name. Each function changes what Wherry did with a case as that fault would
// change it, and reports whether the case allowed that. With plants one can measure how many faults the comparison finds in a
// recorded run.
var Plants = map[string]func(*Case, *Trace) bool{
	"grace":   plantGrace,
	"restart": plantRestart,
	"reason":  plantReason,
}

// PlantedBefore plants a fault into what Wherry did before a time since the pod's first sandbox, so long before it that the
// comparison has to find it in spite of a crossing at that time. It reports whether the case allowed that.
func PlantedBefore(plant func(*Case, *Trace) bool, c *Case, t *Trace, before time.Duration) bool {
	early := *t
	end := t.Created.Add(before - late)
	early.Calls = slices.DeleteFunc(slices.Clone(t.Calls), func(call Call) bool { return !call.At.Before(end) })
	early.Statuses = nil
	for _, s := range t.Statuses {
		if s.At.Before(end) {
			early.Statuses = append(early.Statuses, Seen{s.At, s.Pod.DeepCopy()})
		}
	}
	return plant(c, &early)
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

// plantReason changes the reason of the condition Ready while containers are not ready.
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
