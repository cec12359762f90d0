package fleet

import (
	"slices"
	"strings"
	"time"
)

const (
	// mostPlayed is the maximum number of scenarios that Status shows.
	mostPlayed = 16
	// longestName bounds the names of a scenario and its events in Status, in bytes.
	longestName = 200
)

// ScenarioStatus is the progress of a scenario that plays or has ended.
type ScenarioStatus struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"`
	// Faults is how many faults the scenario has. Happened of them have begun, and Failed could not begin.
	Faults   int `json:"faults"`
	Happened int `json:"happened"`
	Failed   int `json:"failed"`
	// Last is the name of the event whose fault came last; "": none has come.
	Last string `json:"last,omitempty"`
	// Next is the name of the event whose fault comes next, at the time NextAt. "": no event has a time yet, or no fault is left.
	Next   string    `json:"next,omitempty"`
	NextAt time.Time `json:"nextAt,omitzero"`
	Ended  bool      `json:"ended"`
}

// playing is what the fleet knows of a scenario that plays. The fleet's lock guards it.
type playing struct {
	ScenarioStatus
	next map[*Event]time.Time // when the next fault of an event happens
}

// begins notes that a scenario plays.
func (f *Fleet) begins(s *Scenario) *playing {
	p := &playing{ScenarioStatus: ScenarioStatus{Name: brief(s.Name), Began: time.Now()}, next: map[*Event]time.Time{}}
	for i := range s.Events {
		p.Faults += s.Events[i].Times
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.played) >= mostPlayed {
		oldest := max(0, slices.IndexFunc(f.played, func(p *playing) bool { return p.Ended }))
		f.played = slices.Delete(f.played, oldest, oldest+1)
	}
	f.played = append(f.played, p)
	return p
}

// plans notes when the next fault of an event happens; zero: none is planned.
func (f *Fleet) plans(p *playing, e *Event, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.IsZero() {
		delete(p.next, e)
		return
	}
	p.next[e] = at
}

// happens notes that a fault of a scenario has begun, or could not begin.
func (f *Fleet) happens(p *playing, h *Happening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Last = brief(h.Event); h.Err != "" {
		p.Failed++
		return
	}
	p.Happened++
}

// ends notes that a scenario has ended.
func (f *Fleet) ends(p *playing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.Ended, p.next = true, nil
}

// playStatus returns the progress of the scenarios, the newest first. The caller holds the lock.
func (f *Fleet) playStatus() []ScenarioStatus {
	var out []ScenarioStatus
	for _, p := range slices.Backward(f.played) {
		s := p.ScenarioStatus
		for e, at := range p.next {
			if name := brief(e.Name); s.NextAt.IsZero() || at.Before(s.NextAt) || at.Equal(s.NextAt) && name < s.Next {
				s.Next, s.NextAt = name, at
			}
		}
		out = append(out, s)
	}
	return out
}

// brief returns the beginning of a name.
func brief(name string) string {
	if len(name) <= longestName {
		return name
	}
	return strings.ToValidUTF8(name[:longestName], "") + "..."
}
