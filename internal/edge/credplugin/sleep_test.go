package credplugin

import (
	"testing"
	"time"
	"unsafe"
)

// Credentials that have expired while the machine slept are not used: the plugin is asked again. Not in a bubble, in which no time passes that the clock does not
// show.
func TestAnswersExpireWhileTheMachineSleeps(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(`"cacheKeyType":"Image",`+auth), "")
	p := s.load()
	ask := func(when string, runs int) {
		t.Helper()
		if _, err := p.Credentials(t.Context(), nil, "a.example.com/app"); err != nil || s.runs() != runs {
			t.Errorf("%s: %d runs, %v, want %d", when, s.runs(), err, runs)
		}
	}
	ask("at first", 1)
	ask("at once", 1)
	for key, a := range p.kept {
		before := a.until
		*(*uint64)(unsafe.Pointer(&a.until)) -= uint64(2*time.Hour/time.Second) << 30 // what the clock shows, in seconds from bit 30 on; the time that passed stays
		if a.until.Sub(before) != 0 || before.Round(0).Sub(a.until.Round(0)) != 2*time.Hour {
			t.Fatal("a time.Time is not made as this test believes")
		}
		p.kept[key] = a
	}
	ask("after two hours of sleep", 2)
	ask("after that", 2)
}
