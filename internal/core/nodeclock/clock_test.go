package nodeclock

import (
	"testing"
	"time"
)

// ahead is a clock that is ahead by a constant time.
type ahead time.Duration

func (a ahead) Shows(t time.Time) time.Time       { return t.Add(time.Duration(a)) }
func (a ahead) Instant(shown time.Time) time.Time { return shown.Add(-time.Duration(a)) }

// A clock converts times as its source does; the zero value, and a clock without a source, change no time. A time that is not known stays unknown.
func TestClock(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name                string
		clock               Clock
		at, shows, instants time.Time
	}{
		{"the zero value", Clock{}, noon, noon, noon},
		{"no source", Of(nil), noon, noon, noon},
		{"an hour ahead", Of(ahead(time.Hour)), noon, noon.Add(time.Hour), noon.Add(-time.Hour)},
		{"an hour behind", Of(ahead(-time.Hour)), noon, noon.Add(-time.Hour), noon.Add(time.Hour)},
		{"an unknown time", Of(ahead(time.Hour)), time.Time{}, time.Time{}, time.Time{}},
	} {
		if got := c.clock.Shows(c.at); got != c.shows {
			t.Errorf("%s: shows %s, want %s", c.name, got, c.shows)
		}
		if got := c.clock.Instant(c.at); got != c.instants {
			t.Errorf("%s: the instant is %s, want %s", c.name, got, c.instants)
		}
	}
}
