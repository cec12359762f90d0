package pressure

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Status is the answer for one condition.
type Status uint8

// The answers. Unknown is the zero value: nothing was measured.
const (
	Unknown Status = iota
	False
	True
)

// String is the condition status of the API.
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

// State is what one evaluation leaves for the next. The zero value is the start. It is never written to: Evaluate
// returns a new one.
type State struct {
	firstMet map[string]time.Time               // by threshold: met without a break since
	lastSeen map[v1.NodeConditionType]time.Time // condition last observed
	active   map[string]bool                    // grace met, reclaim not yet reached
	last     map[v1.NodeConditionType]Status
}

// Crossing is a threshold that is met, with the reading that met it.
type Crossing struct {
	Threshold Threshold
	Observed  Observation
	// Due is set once the grace period is over: pods should be evicted.
	Due bool
}

// String says what is short, for a log line or an event.
func (c Crossing) String() string {
	return fmt.Sprintf("%s: %d available of %d", c.Threshold, c.Observed.Available, c.Observed.Capacity)
}

// Input of Evaluate.
type Input struct {
	Signals          Signals
	Thresholds       []Threshold
	TransitionPeriod time.Duration
	Previous         State
	Now              time.Time
}

// Result of Evaluate.
type Result struct {
	Memory, Disk, PID Status
	// Met are all thresholds met now, in order of reclaim.
	Met []Crossing
	// Missing are signals that have a threshold and were not measured.
	Missing []Signal
	// Next is when a condition or a grace period changes by the passing of time alone; zero: never.
	Next  time.Time
	State State
}

// Reclaim is the first threshold whose grace period is over and what the node is short of: what an eviction would
// have to be about. ok is false when nothing has to be reclaimed.
func (r Result) Reclaim() (c Crossing, ok bool) {
	for _, m := range r.Met {
		if m.Due {
			return m, true
		}
	}
	return Crossing{}, false
}

// Evaluate judges one set of readings.
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
		obs, ok := in.Signals[t.Signal]
		if !ok {
			if !slices.Contains(res.Missing, t.Signal) {
				res.Missing = append(res.Missing, t.Signal)
			}
			if since, was := in.Previous.firstMet[t.String()]; was { // a failed reading does not restart a grace period
				res.State.firstMet[t.String()] = since
				res.State.active[t.String()] = in.Previous.active[t.String()]
			}
			continue
		}
		measured[cond] = true
		res.judge(in, t, obs)
	}
	res.Memory = res.condition(in, v1.NodeMemoryPressure, configured, measured)
	res.Disk = res.condition(in, v1.NodeDiskPressure, configured, measured)
	res.PID = res.condition(in, v1.NodePIDPressure, configured, measured)
	return res
}

// judge notes one threshold when it is met.
func (r *Result) judge(in Input, t Threshold, obs Observation) {
	key := t.String()
	limit := t.Value.Of(obs.Capacity)
	if in.Previous.active[key] && t.MinReclaim != nil {
		limit += t.MinReclaim.Of(obs.Capacity)
	}
	if obs.Available >= limit {
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
	r.Met = append(r.Met, Crossing{Threshold: t, Observed: obs, Due: due})
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
		// One failed reading is no news; only a node that was never measured is unknown.
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
