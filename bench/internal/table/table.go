package table

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Samples are measured values, by the name of what was measured.
type Samples = map[string][]float64

// Stat is a statistic of one arm (one of the agents or baselines that the benchmark compares): a quantile, such as the median, of all
// samples, with its spread. Min and Max are the smallest and largest quantile of a single round or, if there is only one round, the
// smallest and largest sample. Value always lies between them.
type Stat struct {
	Value, Min, Max float64
	N               int // number of samples
}

// Of computes the quantile of the samples of all rounds; ok is false if there are no samples.
func Of(rounds [][]float64, quantile float64) (s Stat, ok bool) {
	rounds = slices.DeleteFunc(slices.Clone(rounds), func(v []float64) bool { return len(v) == 0 })
	all := slices.Sorted(slices.Values(slices.Concat(rounds...)))
	if len(all) == 0 {
		return Stat{}, false
	}
	spread := all
	if len(rounds) > 1 {
		spread = nil
		for _, v := range rounds {
			spread = append(spread, Quantile(slices.Sorted(slices.Values(v)), quantile))
		}
	}
	value := Quantile(all, quantile)
	return Stat{value, min(value, slices.Min(spread)), max(value, slices.Max(spread)), len(all)}, true
}

// Quantile returns a quantile (q from 0 to 1) of sorted values, interpolated between neighbours.
func Quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Unit is the unit in which a value is printed.
type Unit string

// These are the units of rows. The samples are in seconds, bytes or plain numbers.
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
		return digits(v * 1000)
	case MiB:
		return digits(v / (1 << 20))
	case Seconds:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case Percent, Plain:
	}
	return digits(v)
}

// digits formats v with two significant digits, because further digits would differ from run to run. It keeps all digits before the decimal
// point, and prints at most three decimal places.
func digits(v float64) string {
	places := 0
	for at := 10.0; places < 3 && math.Abs(v) < at && v != 0; at /= 10 {
		places++
	}
	return strconv.FormatFloat(v, 'f', places, 64)
}

// Row describes one line of the table.
type Row struct {
	Title    string
	Sample   string
	Unit     Unit
	Quantile float64 // 0: the median
	// Target is the largest acceptable ratio of Wherry's value to upstream's; 0: none.
	Target float64
	// Limit is the largest acceptable value of Wherry, independent of upstream's value; 0: none.
	Limit float64
	// Short marks the rows that the README's table also has.
	Short bool
}

// Line is a line of the table: a row with its values. Arms has the statistics by arm.
type Line struct {
	Work   string          `json:"work"`
	Unit   Unit            `json:"unit"`
	Arms   map[string]Stat `json:"arms"`
	Ratio  *Stat           `json:"ratio,omitempty"` // ratio of the two agents, with its spread over the rounds; nil if an agent has no samples
	Target float64         `json:"target,omitempty"`
	Limit  float64         `json:"limit,omitempty"`
	Short  bool            `json:"-"`
}

// Fill makes the lines of the table from the samples of all arms, and leaves out rows without a value. Line.Ratio is the value of the arm
// ours divided by that of the arm theirs.
func Fill(rows []Row, samples map[string][]Samples, theirs, ours string) []Line {
	var out []Line
	for _, r := range rows {
		q := r.Quantile
		if q == 0 {
			q = 0.5
		}
		l := Line{Work: r.Title, Unit: r.Unit, Arms: map[string]Stat{}, Target: r.Target, Limit: r.Limit, Short: r.Short}
		for arm, rounds := range samples {
			if st, ok := Of(named(rounds, r.Sample), q); ok {
				l.Arms[arm] = st
			}
		}
		if len(l.Arms) == 0 {
			continue
		}
		l.Ratio = ratio(named(samples[ours], r.Sample), named(samples[theirs], r.Sample), q)
		out = append(out, l)
	}
	return out
}

func named(rounds []Samples, name string) [][]float64 {
	out := make([][]float64, len(rounds))
	for i, s := range rounds {
		out[i] = s[name]
	}
	return out
}

// ratio returns the ratio of two arms, with its spread over single rounds; nil if one arm has no samples.
func ratio(ours, theirs [][]float64, quantile float64) *Stat {
	of := func(a, b [][]float64) (float64, bool) {
		x, haveX := Of(a, quantile)
		y, haveY := Of(b, quantile)
		return x.Value / y.Value, haveX && haveY && y.Value > 0
	}
	all, ok := of(ours, theirs)
	if !ok {
		return nil
	}
	r := &Stat{Value: all, Min: all, Max: all, N: 1}
	var each []float64
	for i := range min(len(ours), len(theirs)) {
		if v, ok := of(ours[i:i+1], theirs[i:i+1]); ok {
			each = append(each, v)
		}
	}
	if len(each) > 1 {
		r.Min, r.Max, r.N = min(all, slices.Min(each)), max(all, slices.Max(each)), len(each)
	}
	return r
}

// Print writes lines as a text table with one column per arm.
func Print(w io.Writer, lines []Line, arms []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "work\tunit\t%s\tratio\ttarget\n", strings.Join(arms, "\t"))
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s", l.Work, l.Unit)
		for _, arm := range arms {
			fmt.Fprintf(t, "\t%s", l.cell(arm))
		}
		fmt.Fprintf(t, "\t%s\t%s\n", l.ratio(), l.target())
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
		fmt.Fprintf(&b, " %s | %s |\n", l.ratio(), l.target())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Between replaces the text between the marks begin and end. It returns an error unless each mark occurs exactly once.
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

// cell returns the text of one arm's cell: the value and, if there are several samples, its spread.
func (l *Line) cell(arm string) string {
	s, ok := l.Arms[arm]
	if !ok {
		return ""
	}
	return s.print(l.Unit.format)
}

func (l *Line) ratio() string {
	if l.Ratio == nil {
		return ""
	}
	return l.Ratio.print(hundredths)
}

func (s *Stat) print(format func(float64) string) string {
	value, low, high := format(s.Value), format(s.Min), format(s.Max)
	if s.N == 1 || low == high {
		return value
	}
	return fmt.Sprintf("%s (%s-%s)", value, low, high)
}

// target returns the text in the column "target": the largest acceptable value or ratio; "" if the row has neither.
func (l *Line) target() string {
	if l.Limit > 0 {
		return "at most " + l.Unit.format(l.Limit) + " " + string(l.Unit)
	}
	if l.Target == 0 {
		return ""
	}
	return hundredths(l.Target)
}

func hundredths(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
