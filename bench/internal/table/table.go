package table

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Stat is one statistic of one arm: the median over rounds, and the least and greatest of any round.
type Stat struct {
	Median, Min, Max float64
	N                int
}

// Of summarizes values; ok is false when there are none.
func Of(values []float64, quantile float64) (Stat, bool) {
	if len(values) == 0 {
		return Stat{}, false
	}
	v := slices.Sorted(slices.Values(values))
	return Stat{Quantile(v, quantile), v[0], v[len(v)-1], len(v)}, true
}

// Quantile of sorted values, between neighbours in proportion.
func Quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Unit says how a value is printed.
type Unit string

// The units of a row. A value is kept in seconds, bytes or plain numbers.
const (
	Milliseconds Unit = "ms"
	Seconds      Unit = "s"
	MiB          Unit = "MiB"
	Percent      Unit = "%"
	Plain        Unit = ""
)

func (u Unit) format(v float64) string {
	switch u {
	case Milliseconds:
		return fmt.Sprintf("%.0f", v*1000)
	case Seconds:
		return fmt.Sprintf("%.2f", v)
	case MiB:
		return fmt.Sprintf("%.1f", v/(1<<20))
	case Percent:
		return fmt.Sprintf("%.2f", v)
	case Plain:
	}
	return fmt.Sprintf("%.0f", v)
}

// Row is one line of the table.
type Row struct {
	Title    string
	Sample   string
	Unit     Unit
	Quantile float64 // 0: the median
	// Target is the greatest ratio to upstream's; 0: none.
	Target float64
	// Limit is the greatest value of our own, whatever upstream's; 0: none.
	Limit float64
	// Short marks what a short table shows.
	Short bool
}

// Line is a filled row.
type Line struct {
	Work   string          `json:"work"`
	Unit   Unit            `json:"unit"`
	Arms   map[string]Stat `json:"arms"`
	Ratio  float64         `json:"ratio,omitempty"` // of the two agents
	Target float64         `json:"target,omitempty"`
	Limit  float64         `json:"limit,omitempty"`
	Short  bool            `json:"-"`
}

// Fill makes lines of what was measured; rows without any value are left out. The ratio is of the arm ours to theirs.
func Fill(rows []Row, samples map[string]map[string][]float64, theirs, ours string) []Line {
	var out []Line
	for _, r := range rows {
		q := r.Quantile
		if q == 0 {
			q = 0.5
		}
		l := Line{Work: r.Title, Unit: r.Unit, Arms: map[string]Stat{}, Target: r.Target, Limit: r.Limit, Short: r.Short}
		for arm, s := range samples {
			if st, ok := Of(s[r.Sample], q); ok {
				l.Arms[arm] = st
			}
		}
		if len(l.Arms) == 0 {
			continue
		}
		a, haveA := l.Arms[ours]
		b, haveB := l.Arms[theirs]
		if haveA && haveB && b.Median > 0 {
			l.Ratio = a.Median / b.Median
		}
		out = append(out, l)
	}
	return out
}

// Print writes lines as a table with one column per arm.
func Print(w io.Writer, lines []Line, arms []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "work\tunit\t%s\tratio\ttarget\n", strings.Join(arms, "\t"))
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s", l.Work, l.Unit)
		for _, arm := range arms {
			fmt.Fprintf(t, "\t%s", l.cell(arm))
		}
		fmt.Fprintf(t, "\t%s\t%s\n", ratio(l.Ratio), l.target())
	}
	return t.Flush()
}

// Markdown writes lines as a Markdown table.
func Markdown(w io.Writer, lines []Line, arms []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| work | %s | ratio | target |\n|---|%s---:|---:|\n", strings.Join(arms, " | "), strings.Repeat("---:|", len(arms)))
	for _, l := range lines {
		title := l.Work
		if l.Unit != Plain {
			title += ", " + string(l.Unit)
		}
		fmt.Fprintf(&b, "| %s |", title)
		for _, arm := range arms {
			fmt.Fprintf(&b, " %s |", l.cell(arm))
		}
		fmt.Fprintf(&b, " %s | %s |\n", ratio(l.Ratio), l.target())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Between replaces what stands between two marks, of which each has to be there once.
func Between(text, begin, end, with string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("it has no line %q", strings.TrimSpace(begin))
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("it has no line %q after %q", strings.TrimSpace(end), strings.TrimSpace(begin))
	}
	return before + begin + with + end + after, nil
}

// cell is an arm's value with its spread, where there is one.
func (l *Line) cell(arm string) string {
	s, ok := l.Arms[arm]
	if !ok {
		return ""
	}
	value, low, high := l.Unit.format(s.Median), l.Unit.format(s.Min), l.Unit.format(s.Max)
	if s.N == 1 || low == high {
		return value
	}
	return fmt.Sprintf("%s (%s-%s)", value, low, high)
}

// target is what a line is to be: a ratio, or a value.
func (l *Line) target() string {
	if l.Limit > 0 {
		return "at most " + l.Unit.format(l.Limit) + " " + string(l.Unit)
	}
	return ratio(l.Target)
}

func ratio(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}
