package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/core/decide"
)

// Lines writes a plan as text: a line for each action to begin, for each action to cancel, and for each decision that later turns
// remember. The last lines are the phase with its reason and the time of the next look. now is the time of the turn; times are
// relative to it.
func Lines(p *decide.Plan, now time.Time) []string {
	out := []string{}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, a := range p.Do {
		a.Grace = a.Grace.Round(time.Millisecond)
		add("%s", a)
	}
	for _, a := range p.Cancel {
		add("cancel %s", a)
	}
	if p.Stop != nil {
		add("remember: the node ends the pod: %s", p.Stop.Reason)
	}
	for _, e := range p.Ends {
		add("remember: container %s id=%s ends: %s, grace=%s", e.Name, e.ID, e.Cause, e.Grace)
	}
	for _, r := range p.Replaced {
		add("remember: container %s id=%s starts again: %s", r.Name, r.ID, r.Cause)
	}
	for _, c := range p.Crashes {
		add("remember: container %s id=%s may start again at %s, the next back-off is %s", c.Name, c.ID, after(c.Until, now), c.Next)
	}
	if p.Ending {
		add("remember: the pod ends since %s, grace=%s", after(p.StopBegan, now), p.StopGrace)
	}
	for _, flag := range []struct {
		set  bool
		text string
	}{
		{p.Ended, "nothing of the pod runs or can begin to run"}, {p.Finished, "every container has ended for good"}, {p.Orphaned, "no source has the pod"},
		{p.RestartingAll, "all containers start again"}, {p.Resized, "the resize is complete"},
	} {
		if flag.set {
			add("remember: %s", flag.text)
		}
	}
	wake := ""
	if !p.WakeAt.IsZero() {
		wake = "; looks again at " + after(p.WakeAt, now)
	}
	add("= %s: %s%s", p.Phase, p.Why, wake)
	return out
}

// after formats t relative to now, the time of the turn. It uses the wall clock, because times from a file have no monotonic clock.
func after(t, now time.Time) string {
	d := t.Round(0).Sub(now.Round(0)).Round(time.Millisecond)
	if d >= 0 {
		return "+" + d.String()
	}
	return d.String()
}

// Diff compares two plans as lines: was from the recorded turn, now from the repeated decision. Lines only in was begin with "- ",
// lines only in now with "+ ", and all others with two spaces. same reports whether both plans are equal.
func Diff(was, now []string) (lines []string, same bool) {
	same = slices.Equal(was, now)
	for _, l := range was {
		sign := "  "
		if !slices.Contains(now, l) {
			sign = "- "
		}
		lines = append(lines, sign+l)
	}
	for _, l := range now {
		if !slices.Contains(was, l) {
			lines = append(lines, "+ "+l)
		}
	}
	if !same && !slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "  ") }) {
		lines = append(lines, "  (the same lines in another order)")
	}
	return lines, same
}
