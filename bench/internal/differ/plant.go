package differ

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Plants contains faults that an agent might have, by name. Each function changes a trace of Wherry as if Wherry had the fault, and
// returns false if the trace gives no occasion for the fault. Plants measure how many faults the comparison finds in recorded runs.
var Plants = map[string]func(*Case, *Trace) bool{
	"grace":   plantGrace,
	"restart": plantRestart,
	"reason":  plantReason,
}

// PlantedBefore reports whether plant can plant its fault early enough in the trace: at least 5 s (late) before the time before, so that
// a Crossing at that time does not excuse the fault. It does not change the trace.
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

// plantGrace adds four seconds to the timeout of every StopContainer.
func plantGrace(_ *Case, t *Trace) (planted bool) {
	for i, c := range t.Calls {
		if c.Verb == "StopContainer" && !c.Late {
			t.Calls[i].Timeout += 4
			planted = true
		}
	}
	return planted
}

// plantRestart removes all instances of main containers with attempt 2 or more from the trace, as if the agent had given up restarting.
func plantRestart(c *Case, t *Trace) bool {
	before := len(t.Calls)
	t.Calls = slices.DeleteFunc(t.Calls, func(call Call) bool { return c.kind(call.Container) == "main" && call.Attempt%lifeAttempts > 1 })
	return len(t.Calls) < before
}

// plantReason replaces the reason ContainersNotReady of the Ready condition.
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
