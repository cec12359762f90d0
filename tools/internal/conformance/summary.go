package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mostAgain is the largest number of failed tests that run a second time. If more tests fail, a busy machine is not the reason.
const mostAgain = 5

// failed returns the names of the tests that failed.
func (r Results) failed() []string {
	return slices.DeleteFunc(r.Names(), func(name string) bool { return r[name].Status != "failed" })
}

// FailedHereOnly returns the names of the tests that failed and do not fail with upstream's kubelet.
func (r Results) FailedHereOnly(upstream Results) []string {
	return slices.DeleteFunc(r.failed(), func(name string) bool { return upstream[name].Status == "failed" })
}

// Again replaces the results of failed tests by those of a second run, in which these tests ran alone, and sets Retried. A test that passes
// in the second run keeps the message of its first failure.
func (r Results) Again(second Results) {
	for name, now := range second {
		if before, ok := r[name]; ok && before.Status == "failed" {
			now.Retried = true
			if now.Status == "passed" {
				now.Message = before.Message
			}
			r[name] = now
		}
	}
}

// Missing returns those of the named tests that did not run.
func (r Results) Missing(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := r[name]; return ok })
}

// Summary returns the important results of a run, for CI pages that show only the end of a log: the totals, the longest tests, and last the
// tests that did not pass, with the messages. wall is the duration of the run in seconds.
func Summary(ran Results, missing []string, wall float64) string {
	var b strings.Builder
	names := ran.Names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(ran[b].Seconds, ran[a].Seconds) })
	fmt.Fprintln(&b, "longest:")
	for _, name := range names[:min(3, len(names))] {
		fmt.Fprintf(&b, "  %5.1f s  %s\n", ran[name].Seconds, name)
	}
	counts, sum := map[string]int{}, 0.0
	for _, name := range names {
		counts[ran[name].Status]++
		sum += ran[name].Seconds
		if r := ran[name]; r.Retried && r.Status == "passed" {
			fmt.Fprintf(&b, "FAILED ONCE, passed when it was run again alone: %s\n%s", name, indent(r.Message))
		}
	}
	fmt.Fprintf(&b, "%d of %d passed, %d failed, %d skipped themselves; %.0f s in all, wall time %.0f s\n",
		counts["passed"], len(ran)+len(missing), counts["failed"], counts["skipped"], sum, wall)
	for _, name := range missing {
		fmt.Fprintf(&b, "DID NOT RUN: %s\n", name)
	}
	for _, name := range ran.failed() {
		twice := ""
		if ran[name].Retried {
			twice = ", and again when it was run alone"
		}
		fmt.Fprintf(&b, "FAILED%s: %s\n%s", twice, name, indent(ran[name].Message))
	}
	return b.String()
}

const (
	headLines = 4
	tailLines = 8
	lineBytes = 300
)

// indent returns a message, indented for a log. Of a long message it returns only the first and the last lines.
func indent(message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	if cut := len(lines) - headLines - tailLines; cut > 1 {
		lines = slices.Concat(lines[:headLines], []string{fmt.Sprintf("... (%d lines)", cut)}, lines[len(lines)-tailLines:])
	}
	var b strings.Builder
	for _, line := range lines {
		if len(line) > lineBytes {
			line = strings.ToValidUTF8(line[:lineBytes], "") + "..."
		}
		fmt.Fprintf(&b, "    %s\n", strings.TrimRight(line, "\r"))
	}
	return b.String()
}
