package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A clock remembers how it was set: what it showed at an instant does not change when it is set again. Faults add up.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	begin := time.Now().Add(-10 * time.Hour)
	at := func(hours float64) time.Time { return begin.Add(time.Duration(hours * float64(time.Hour))) }
	ahead := func(hours float64) string {
		return c.Shows(at(hours)).Sub(at(hours).Round(0)).Round(time.Second).String()
	}
	if got := c.Shows(at(1)); !got.Equal(at(1)) || !c.Instant(at(1)).Equal(at(1)) {
		t.Errorf("a clock that was never set shows %s and not %s", got, at(1))
	}
	hour := activeSkew{Skew{Offset: time.Hour}, at(2)}
	slow := activeSkew{Skew{Offset: -time.Minute, Drift: -10 * time.Second}, at(4)}
	c.set(at(2), []activeSkew{hour})
	c.set(at(4), []activeSkew{hour, slow})
	c.set(at(6), []activeSkew{slow})
	got := map[string]string{}
	for name, hours := range map[string]float64{"1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "8": 8} {
		got[name] = ahead(hours)
	}
	want := map[string]string{"1": "0s", "2": "1h0m0s", "3": "1h0m0s", "4": "59m0s", "5": "58m50s", "6": "-1m20s", "8": "-1m40s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("how much the clock is ahead, by hours since the beginning (-want +got):\n%s", diff)
	}
	for _, shown := range []time.Time{at(9), at(10), at(11), at(100)} { // times of others, which the clock need not have shown yet
		if again := c.at(time.Now()).ahead(c.Instant(shown)); !c.Instant(shown).Add(again).Round(time.Millisecond).Equal(shown.Round(0).Round(time.Millisecond)) {
			t.Errorf("the clock shows %s at %s, and then it is ahead by %s", shown, c.Instant(shown), again)
		}
	}
	c.set(at(9), nil)
	if got := []string{ahead(8), ahead(9.5)}; got[0] != "-1m40s" || got[1] != "0s" {
		t.Errorf("after the faults, the clock was ahead by %s, and is by %s", got[0], got[1])
	}
	for range 2 * maxSettings {
		c.set(time.Now(), []activeSkew{hour})
	}
	if n := len(*c.settings.Load()); n != maxSettings {
		t.Errorf("the clock remembers %d settings, want %d", n, maxSettings)
	}
}

// Several faults together make no clock that stands still, goes back or is ahead by more than one fault can make it.
func TestClockWithManyFaults(t *testing.T) {
	t.Parallel()
	var c clock
	begin := time.Now()
	var faults []activeSkew
	for range 40 {
		faults = append(faults, activeSkew{Skew{Offset: maxOffset, Drift: -maxDrift}, begin})
	}
	c.set(begin, faults)
	now, later := c.Shows(begin), c.Shows(begin.Add(time.Hour))
	if ahead := now.Sub(begin.Round(0)); ahead != maxOffset {
		t.Errorf("the clock is ahead by %s, want %s", ahead, maxOffset)
	}
	if passed := later.Sub(now); passed != time.Hour-maxDrift {
		t.Errorf("in an hour, %s pass on the clock, want %s", passed, time.Hour-maxDrift)
	}
	if at := c.Instant(later).Sub(begin.Round(0)).Round(time.Millisecond); at != time.Hour {
		t.Errorf("the clock shows this time after %s, want an hour", at)
	}
}

// A skew that no clock can have is refused, and described for people.
func TestSkew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		skew Skew
		text string
		err  string
	}{
		{Skew{}, "", "needs an offset, such as 5m or -5m, or a drift"},
		{Skew{Offset: 5 * time.Minute}, "5m0s ahead", ""},
		{Skew{Offset: -time.Hour}, "1h0m0s behind", ""},
		{Skew{Drift: 10 * time.Second}, "gains 10s an hour", ""},
		{Skew{Offset: time.Second, Drift: -time.Minute}, "1s ahead, loses 1m0s an hour", ""},
		{Skew{Offset: 11 * 365 * 24 * time.Hour}, "96360h0m0s ahead", "at most ten years"},
		{Skew{Offset: -1 << 63}, "2562047h47m16.854775807s behind", "at most ten years"},
		{Skew{Drift: -31 * time.Minute}, "loses 31m0s an hour", "at most 30m0s in an hour"},
	} {
		err := c.skew.check()
		if got := c.skew.String(); got != c.text || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %q, %v; want %q, %q", c.skew, got, err, c.text, c.err)
		}
	}
}
