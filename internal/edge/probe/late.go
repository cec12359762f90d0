package probe

import (
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// A probe that begins late is not a failed one: its timeout starts when it begins. But the lateness is reported.

// Lateness describes one probe that began late.
type Lateness struct {
	Pod       pod.Ref
	Container string
	Kind      Kind
	At        time.Time // when the probe began
	Late      time.Duration
	Own       bool // checks of the same pod over connections delayed the probe, not the load of the node
}

// Behind describes the late probes of the whole node: those that began late in one period of behindWindow, or those that cannot begin.
type Behind struct {
	Late, Runs int           // Late of Runs probes began late
	Within     time.Duration // the period in which they began
	// Waiting is how many probes are due and cannot begin, because so many checks hang that there is no room. Then Late, Runs and Within
	// are 0.
	Waiting int
	Most    time.Duration // how late the latest probe began, or for how long the first of those that wait has been due
}

const (
	// lateAgain is the minimum time between two reports of lateness for one container.
	lateAgain = time.Minute
	// behindWindow is the time over which the late probes of the node are counted. It is longer than the time for which many pods that
	// start at once overload a node.
	behindWindow = 30 * time.Second
	// behindAgain is the minimum time between two reports for the node.
	behindAgain = 10 * time.Minute
)

// behind counts the late probes of the node in periods of behindWindow.
type behind struct {
	since      time.Time
	runs, late int
	most       time.Duration
	before     bool // the last period was bad: at least a tenth of its probes were late
	reportedAt time.Time
}

// isLate reports whether a delay counts as late: at least half a period, and at least a second.
func isLate(late, period time.Duration) bool { return late >= time.Second && late >= period/2 }

// lateness records how late a probe began, and returns the reports about its container and about the node; nil: nothing to report. It
// is called with the lock held.
func (p *Probes) lateness(r *runner, late time.Duration, began time.Time) (*Lateness, *Behind) {
	own := r.held && r.spec.Exec == nil // a command that is held may also wait because others of its pod wait in the scheduler
	ofNode := late
	if own {
		ofNode = 0
	}
	node := p.behind.ran(ofNode, period(r.spec), began)
	c := r.c
	if !isLate(late, period(r.spec)) || !c.reportedAt.IsZero() && began.Sub(c.reportedAt) < lateAgain {
		return nil, node
	}
	c.reportedAt = began
	return &Lateness{Pod: c.ref, Container: c.target.Spec.Name, Kind: r.kind, At: began, Late: late, Own: own}, node
}

// ran counts one run. It returns a report if the node is behind: at least a tenth of its probes were late in each of two consecutive
// periods of behindWindow.
func (b *behind) ran(late, period time.Duration, now time.Time) (report *Behind) {
	if now.Sub(b.since) >= behindWindow {
		bad := b.late > 0 && 10*b.late >= b.runs
		if bad && b.before && b.mayReport(now) {
			b.reportedAt = now
			report = &Behind{Late: b.late, Runs: b.runs, Most: b.most, Within: now.Sub(b.since)}
		}
		b.since, b.runs, b.late, b.most, b.before = now, 0, 0, 0, bad
	}
	b.runs++
	if isLate(late, period) {
		b.late++
		b.most = max(b.most, late)
	}
	return report
}

// mayReport reports whether the last report is long enough ago for another one.
func (b *behind) mayReport(now time.Time) bool {
	return b.reportedAt.IsZero() || now.Sub(b.reportedAt) >= behindAgain
}
