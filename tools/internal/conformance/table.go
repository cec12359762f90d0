package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Table compares a run of the agent node with the reference: first the failures, then the totals, then the commands that run each test with
// a different result on both node agents. target is the make target of the suite. wall is the duration of the run in seconds.
func Table(target, node string, ran Results, reference Reference, wall float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-8s %8s %8s  %s\n", node, "upstream", "s", "s", "test")
	names := ran.Names()
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(ran[a].Status, ran[b].Status) // the statuses sort as failed, passed, skipped
	})
	upstream := reference.Results()
	var sum, both, theirs float64
	var differ []string
	passed := 0
	for _, name := range names {
		r := ran[name]
		up, seconds := "-", "-"
		if u, ok := upstream[name]; ok {
			up, seconds = u.Status, fmt.Sprintf("%.1f", u.Seconds)
			if u.Status == "passed" && r.Status == "passed" {
				both, theirs = both+r.Seconds, theirs+u.Seconds
			}
			if u.Status != r.Status {
				differ = append(differ, name)
			}
		}
		if r.Status == "passed" {
			passed++
		}
		sum += r.Seconds
		fmt.Fprintf(&b, "%-8s %-8s %8.1f %8s  %s\n", r.Status, up, r.Seconds, seconds, name)
	}
	fmt.Fprintf(&b, "%d of %d passed, %.0f s in all, wall time %.0f s\n", passed, len(ran), sum, wall)
	if theirs > 0 {
		fmt.Fprintf(&b, "those that both pass: %s %.0f s, upstream's kubelet %.0f s, ratio %.2f\n", node, both, theirs, both/theirs)
	}
	if w, ok := reference.Wall(ran); ok && w > 0 {
		fmt.Fprintf(&b, "wall time of the same tests: %s %.0f s, upstream's kubelet %.0f s, ratio %.2f\n", node, wall, w, wall/w)
	}
	// The names are escaped for the shell, where ' ends a quoted string, and for make, where $$ stands for $.
	if len(differ) > 0 {
		fmt.Fprintf(&b, "%d differ; to see one on both:\n", len(differ))
	}
	for _, name := range differ {
		fmt.Fprintf(&b, "%s, upstream's kubelet %s: %s\n", ran[name].Status, upstream[name].Status, name)
		for _, node := range []string{"wherry", "kubelet"} {
			fmt.Fprintf(&b, "    make %s NODE=%s FOCUS='%s$$'\n", target, node, strings.ReplaceAll(regexp.QuoteMeta(name), "'", "."))
		}
	}
	return b.String()
}

// focusOn returns a regular expression that matches exactly the named tests.
func (o Options) focusOn(names ...string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^" + o.suite().title + " (" + strings.Join(quoted, "|") + ")$"
}
