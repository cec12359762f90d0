package probe

import (
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// A probe that begins late is not a failed one: its time limit counts from when it begins. That it is late is told all the same.

// Lateness is of one probe that began late.
type Lateness struct {
	Pod       pod.Ref
	Container string
	Kind      Kind
	At        time.Time // when it began
	Late      time.Duration
}

// Behind is of all probes of the node in one window.
type Behind struct {
	Late, Runs int // that began late, of so many
	Most       time.Duration
	Within     time.Duration
}

const (
	// lateAgain is how often at most a container's lateness is told.
	lateAgain = time.Minute
	// behindWindow is what is judged at once: a crowd of pods that starts is over by then, or is not.
	behindWindow = 30 * time.Second
	// behindAgain is how often at most a node's is.
	behindAgain = 10 * time.Minute
)

// behind counts probes in windows.
type behind struct {
	since      time.Time
	runs, late int
	most       time.Duration
	before     bool // the last window was bad, too
	toldAt     time.Time
}

// isLate: half a period, and long enough for somebody to notice.
func isLate(late, period time.Duration) bool { return late >= time.Second && late >= period/2 }

// lateness notes how late a probe began, and returns what is to be told. Called with the lock held.
func (p *Probes) lateness(r *runner, late time.Duration, began time.Time) (*Lateness, *Behind) {
	node := p.behind.ran(late, period(r.spec), began)
	c := r.c
	if !isLate(late, period(r.spec)) || !c.toldAt.IsZero() && began.Sub(c.toldAt) < lateAgain {
		return nil, node
	}
	c.toldAt = began
	return &Lateness{Pod: c.ref, Container: c.target.Spec.Name, Kind: r.kind, At: began, Late: late}, node
}

// ran counts one run. A node is behind when a tenth of the probes were late in each of two windows that follow each other.
func (b *behind) ran(late, period time.Duration, now time.Time) (told *Behind) {
	if now.Sub(b.since) >= behindWindow {
		bad := b.late > 0 && 10*b.late >= b.runs
		if bad && b.before && (b.toldAt.IsZero() || now.Sub(b.toldAt) >= behindAgain) {
			b.toldAt = now
			told = &Behind{Late: b.late, Runs: b.runs, Most: b.most, Within: now.Sub(b.since)}
		}
		b.since, b.runs, b.late, b.most, b.before = now, 0, 0, 0, bad
	}
	b.runs++
	if isLate(late, period) {
		b.late++
		b.most = max(b.most, late)
	}
	return told
}
