package nodeclock

import "time"

// Source knows what the clock of a node shows. Its methods are those of agent.Clock. Calls may be concurrent.
type Source interface {
	Shows(t time.Time) time.Time
	Instant(shown time.Time) time.Time
}

// Clock is the clock of a node. The zero value is a clock that is right: what it shows is the instant. Copies are the same clock. Methods may be
// called concurrently.
type Clock struct{ source Source }

// Of returns the clock that source knows; nil: a clock that is right.
func Of(source Source) Clock { return Clock{source} }

// Shows returns what the clock shows at the instant t, or, if t has passed, what it showed then. The zero time, which means that a time is not
// known, stays zero.
func (c Clock) Shows(t time.Time) time.Time {
	if c.source == nil || t.IsZero() {
		return t
	}
	return c.source.Shows(t)
}

// Instant returns when the clock shows the time shown, if it always goes as it goes now. The zero time stays zero.
func (c Clock) Instant(shown time.Time) time.Time {
	if c.source == nil || shown.IsZero() {
		return shown
	}
	return c.source.Instant(shown)
}
