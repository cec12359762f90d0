package fleets

import (
	"fmt"
	"strings"
)

// rows are the rows of the report.
var rows = []struct {
	title string
	cell  func(r Result) string
}{
	{"nodes Ready, s", func(r Result) string { return seconds(r.NodesReady) }},
	{"nodes a second", func(r Result) string { return rate(r.Nodes, r.NodesReady) }},
	{"pods Ready, s", func(r Result) string { return seconds(r.PodsReady) }},
	{"pods Ready a second", func(r Result) string { return rate(r.Pods, r.PodsReady) }},
	{"  no event waits any more, s later", func(r Result) string { return seconds(r.EventsLate) }},
	{"pods deleted (grace 1 s) and gone, s", func(r Result) string { return seconds(r.PodsGone) }},
	{"pods gone a second", func(r Result) string { return rate(r.Pods, r.PodsGone) }},
	{"memory of the process, MiB", func(r Result) string { return number(float64(r.Memory)/(1<<20), r.Memory > 0) }},
	{"  per node, KiB", func(r Result) string { return number(float64(r.Memory)/(1<<10)/float64(max(r.Nodes, 1)), r.Memory > 0) }},
	{"CPU at rest, % of a core", func(r Result) string { return number(r.CPU, r.Memory > 0) }},
	{"requests to the API server at rest, per node and minute", func(r Result) string { return number(r.Requests, r.Requests > 0) }},
	{"leases renewed late, p50, s", func(r Result) string { return number(r.LateP50, r.Renewals > 0) }},
	{"leases renewed late, p99, s", func(r Result) string { return number(r.LateP99, r.Renewals > 0) }},
	{"nodes that were no longer Ready", func(r Result) string { return fmt.Sprint(r.Lost) }},
}

// Markdown returns a table for each number of nodes, with a column for each arm. results are in the order of the run.
func Markdown(results []Result) string {
	var b strings.Builder
	for _, nodes := range sizes(results) {
		var of []Result
		for _, r := range results {
			if r.Nodes == nodes {
				of = append(of, r)
			}
		}
		fmt.Fprintf(&b, "| %d nodes, %d pods |", nodes, of[0].Pods)
		for _, r := range of {
			fmt.Fprintf(&b, " %s |", r.Arm)
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(of)) + "\n")
		for _, row := range rows {
			fmt.Fprintf(&b, "| %s |", row.title)
			for _, r := range of {
				fmt.Fprintf(&b, " %s |", row.cell(r))
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// sizes returns the numbers of nodes in the results, in their order.
func sizes(results []Result) (out []int) {
	seen := map[int]bool{}
	for _, r := range results {
		if !seen[r.Nodes] {
			seen[r.Nodes] = true
			out = append(out, r.Nodes)
		}
	}
	return out
}

func seconds(s float64) string { return number(s, s > 0) }

func rate(n int, s float64) string { return number(float64(n)/s, s > 0) }

// number formats a number with three digits; "": it was not measured.
func number(v float64, known bool) string {
	switch {
	case !known:
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
