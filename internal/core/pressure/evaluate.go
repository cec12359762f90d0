package pressure

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Status is the status of one condition.
type Status uint8

// These are the statuses. Unknown is the zero value, and means that nothing was measured.
const (
	Unknown Status = iota
	False
	True
)

// String returns the condition status of the API.
func (s Status) String() string {
	switch s {
	case True:
		return string(v1.ConditionTrue)
	case False:
		return string(v1.ConditionFalse)
	case Unknown:
		return string(v1.ConditionUnknown)
	}
	return "invalid"
}

// State passes information from one evaluation to the next. The first evaluation gets the zero value. Evaluate does not change its State,
// but returns a new one.
type State struct {
	firstMet map[string]time.Time               // the time since which a threshold has been met without a break, by threshold
	lastSeen map[v1.NodeConditionType]time.Time // when a threshold of a condition was last met, by condition
	active   map[string]bool                    // thresholds whose grace period is over and whose minimum reclaim is not reached
	last     map[v1.NodeConditionType]Status    // status that the last evaluation gave a condition, by condition
}

// Limit returns how much has to be available so that a threshold is not met, in the capacity's unit. While the node reclaims for a
// threshold, that is more than the threshold, by its minimum reclaim.
func (s State) Limit(t Threshold, capacity int64) int64 {
	if s.active[t.String()] {
		return t.Wanted(capacity)
	}
	return t.Value.Of(capacity)
}

// Seen returns when a threshold of a condition was last met; zero: never.
func (s State) Seen(c v1.NodeConditionType) time.Time { return s.lastSeen[c] }

// Crossing is a threshold that is met, with the reading that met it.
type Crossing struct {
	Threshold Threshold
	Observed  Observation
	// Since is when the evaluation first found the threshold met; it has been met since then.
	Since time.Time
	// Due is set once the grace period is over: pods should be evicted.
	Due bool
}

// String describes the shortage, for a log line or an event.
func (c Crossing) String() string {
	return fmt.Sprintf("%s: %d available of %d", c.Threshold, c.Observed.Available, c.Observed.Capacity)
}

// Input is the input of Evaluate.
type Input struct {
	Signals          Signals
	Thresholds       []Threshold
	TransitionPeriod time.Duration
	Previous         State
	Now              time.Time
}

// Result is the result of Evaluate.
type Result struct {
	Memory, Disk, PID Status
	// Met lists all thresholds that are met now. The resource that is reclaimed first comes first.
	Met []Crossing
	// Missing lists signals that have a threshold and were not measured, or have a capacity of 0.
	Missing []Signal
	// Next is when the next grace period or transition period ends, so that the result changes without a new measurement; zero: never.
	Next  time.Time
	State State
}

// True returns the node's pressure conditions that are true, always in the same order.
func (r *Result) True() []v1.NodeConditionType {
	var out []v1.NodeConditionType
	for _, c := range [...]struct {
		condition v1.NodeConditionType
		status    Status
	}{{v1.NodeMemoryPressure, r.Memory}, {v1.NodeDiskPressure, r.Disk}, {v1.NodePIDPressure, r.PID}} {
		if c.status == True {
			out = append(out, c.condition)
		}
	}
	return out
}

// Evaluate compares one set of readings with the thresholds.
func Evaluate(in Input) Result {
	res := Result{State: State{
		firstMet: map[string]time.Time{},
		lastSeen: maps.Clone(in.Previous.lastSeen),
		active:   map[string]bool{},
		last:     map[v1.NodeConditionType]Status{},
	}}
	if res.State.lastSeen == nil {
		res.State.lastSeen = map[v1.NodeConditionType]time.Time{}
	}
	configured, measured := map[v1.NodeConditionType]bool{}, map[v1.NodeConditionType]bool{}
	for _, t := range in.Thresholds {
		cond := t.Signal.Condition()
		configured[cond] = true
		obs, ok := in.Signals.Read(t.Signal)
		if !ok {
			if !slices.Contains(res.Missing, t.Signal) {
				res.Missing = append(res.Missing, t.Signal)
			}
			if since, was := in.Previous.firstMet[t.String()]; was { // a signal that could not be read does not interrupt a grace period
				res.State.firstMet[t.String()] = since
				res.State.active[t.String()] = in.Previous.active[t.String()]
			}
			continue
		}
		measured[cond] = true
		res.evaluate(in, t, obs)
	}
	res.Memory = res.condition(in, v1.NodeMemoryPressure, configured, measured)
	res.Disk = res.condition(in, v1.NodeDiskPressure, configured, measured)
	res.PID = res.condition(in, v1.NodePIDPressure, configured, measured)
	return res
}

// evaluate records a threshold if it is met.
func (r *Result) evaluate(in Input, t Threshold, obs Observation) {
	key := t.String()
	if obs.Available >= in.Previous.Limit(t, obs.Capacity) {
		return
	}
	since, ok := in.Previous.firstMet[key]
	if !ok {
		since = in.Now
	}
	due := in.Now.Sub(since) >= t.Grace
	r.State.firstMet[key] = since
	r.State.active[key] = due
	r.State.lastSeen[t.Signal.Condition()] = in.Now
	r.Met = append(r.Met, Crossing{Threshold: t, Observed: obs, Since: since, Due: due})
	if !due {
		r.wake(since.Add(t.Grace))
	}
}

func (r *Result) condition(in Input, c v1.NodeConditionType, configured, measured map[v1.NodeConditionType]bool) Status {
	status := False
	seen, ok := r.State.lastSeen[c]
	switch {
	case ok && (seen.Equal(in.Now) || in.Now.Sub(seen) < in.TransitionPeriod):
		status = True
		r.wake(seen.Add(in.TransitionPeriod))
	case configured[c] && !measured[c]:
		// One failed reading changes nothing; a condition is unknown only if it was never measured.
		status = in.Previous.last[c]
	}
	r.State.last[c] = status
	return status
}

func (r *Result) wake(at time.Time) {
	if r.Next.IsZero() || at.Before(r.Next) {
		r.Next = at
	}
}
