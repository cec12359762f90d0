package fleet

import (
	"errors"
	"sort"
	"sync/atomic"
	"time"

	"github.com/wherry-node/wherry/agent"
)

const (
	// maxOffset bounds Skew.Offset, and maxDrift bounds Skew.Drift: a clock always goes forward.
	maxOffset = 10 * 365 * 24 * time.Hour
	maxDrift  = 30 * time.Minute
	// maxSettings bounds how many of its settings a clock remembers. It forgets the oldest ones first.
	maxSettings = 256
)

// Skew says how wrong the clock of a node is.
type Skew struct {
	// Offset is how much the clock is ahead when the fault begins; negative: behind. At most ten years.
	Offset time.Duration `json:"offset"`
	// Drift is how much time the clock gains in an hour; negative: it loses time. At most 30 minutes.
	Drift time.Duration `json:"drift"`
}

// check returns an error if the skew is not valid.
func (s *Skew) check() error {
	switch {
	case s.Offset == 0 && s.Drift == 0:
		return errors.New("a wrong clock needs an offset, such as 5m or -5m, or a drift, such as 10s in an hour")
	case s.Offset > maxOffset || s.Offset < -maxOffset:
		return wrong("offset", "%s: use at most ten years (%s), ahead or behind", s.Offset, maxOffset)
	case s.Drift > maxDrift || s.Drift < -maxDrift:
		return wrong("drift", "%s: a clock gains or loses at most %s in an hour", s.Drift, maxDrift)
	}
	return nil
}

// String describes the skew for people.
func (s Skew) String() string {
	text, to := "", "ahead"
	if s.Offset < 0 {
		to = "behind"
	}
	if s.Offset != 0 {
		text = s.Offset.Abs().String() + " " + to
	}
	if s.Drift == 0 {
		return text
	}
	if text != "" {
		text += ", "
	}
	if s.Drift < 0 {
		return text + "loses " + s.Drift.Abs().String() + " an hour"
	}
	return text + "gains " + s.Drift.String() + " an hour"
}

// clock is the clock of one node. It remembers how it was set, so that what it showed at an instant stays the same for ever. set and its callers
// hold the fleet's lock; the other methods may be called concurrently.
type clock struct {
	settings atomic.Pointer[[]setting] // ordered by from; nil: the clock has always been right
}

// setting says how a clock goes from an instant on: it is ahead by offset at this instant, and gains drift in an hour.
type setting struct {
	from          time.Time
	offset, drift time.Duration
}

var _ agent.Clock = (*clock)(nil)

// ahead returns how much the clock is ahead at the instant t.
func (s *setting) ahead(t time.Time) time.Duration {
	return s.offset + time.Duration(t.Sub(s.from).Hours()*float64(s.drift))
}

// Shows returns what the clock shows at the instant t, or what it showed then.
func (c *clock) Shows(t time.Time) time.Time {
	if s := c.at(t); s != nil {
		return t.Round(0).Add(s.ahead(t))
	}
	return t
}

// Instant returns when the clock shows the time shown, if it always goes as it goes now.
func (c *clock) Instant(shown time.Time) time.Time {
	s := c.at(time.Now())
	if s == nil {
		return shown
	}
	// shown = t + offset + rate·(t - from), solved for t - from
	since := shown.Sub(s.from.Round(0)) - s.offset
	if s.drift != 0 {
		since = time.Duration(float64(since) / (1 + s.drift.Hours()))
	}
	return s.from.Round(0).Add(since)
}

// now returns what the clock shows.
func (c *clock) now() time.Time { return c.Shows(time.Now()) }

// at returns the setting at the instant t; nil: the clock was right.
func (c *clock) at(t time.Time) *setting {
	all := c.settings.Load()
	if all == nil {
		return nil
	}
	i := sort.Search(len(*all), func(i int) bool { return (*all)[i].from.After(t) })
	if i == 0 {
		return nil
	}
	return &(*all)[i-1]
}

// set sets the clock at the instant now, as these faults make it together; none: right again. Together they have the bounds of one: with two that lose half an
// hour in an hour the clock would stand still, and with three it would go back. since are the instants when the faults began. The caller holds
// the fleet's lock.
func (c *clock) set(now time.Time, faults []activeSkew) {
	next, hours := setting{from: now}, 0.0
	for _, f := range faults {
		one := setting{from: f.since, offset: f.Offset, drift: f.Drift}
		next.offset += one.ahead(now)
		hours += one.ahead(now).Hours()
		next.drift += f.Drift
	}
	switch most := maxOffset.Hours(); { // the sum of many offsets may be too large for a Duration
	case hours > most:
		next.offset = maxOffset
	case hours < -most:
		next.offset = -maxOffset
	}
	next.drift = max(-maxDrift, min(next.drift, maxDrift))
	var all []setting
	if old := c.settings.Load(); old != nil {
		all = append(all, *old...)
	}
	if all = append(all, next); len(all) > maxSettings {
		all = all[len(all)-maxSettings:]
	}
	c.settings.Store(&all)
}

// activeSkew is a Skew that began at the instant since.
type activeSkew struct {
	Skew
	since time.Time
}

// setClock sets the node's clock as its faults of the kind FaultClock make it. The caller holds the fleet's lock.
func (n *node) setClock() {
	var faults []activeSkew
	for _, a := range n.faults {
		if a.kind == FaultClock {
			faults = append(faults, activeSkew{a.skew, a.since})
		}
	}
	n.clock.set(time.Now(), faults)
}
