package table

import (
	"slices"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{1, 2, 3, 10}, 0.5, 2.5},
		{[]float64{1, 2, 3, 10}, 1, 10},
		{[]float64{0, 100}, 0.99, 99},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	samples := map[string][]Samples{
		"upstream": {{"start": {0.5, 0.6}, "rss": {80 << 20}}, {"start": {0.4}}},
		"wherry":   {{"start": {0.2}}, {"start": {0.3, 0.25}}},
		"bare":     {{"start": {0.1, 0.3, 0.2}}},
	}
	lines := Fill([]Row{
		{Title: "start", Sample: "start", Unit: Milliseconds, Target: 0.6},
		{Title: "RSS", Sample: "rss", Unit: MiB},
		{Title: "never measured", Sample: "nothing"},
	}, samples, "upstream", "wherry")
	var b strings.Builder
	if err := Markdown(&b, lines, []string{"bare", "upstream", "wherry"}); err != nil {
		t.Fatal(err)
	}
	want := `| work | bare | upstream | wherry | ratio | target |
|---|---:|---:|---:|---:|---:|
| start, ms | 200 (100-300) | 500 (400-550) | 250 (200-275) | 0.50 (0.36-0.69) | 0.60 |
| RSS, MiB |  | 80 |  |  |  |
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.0942: "0.094", 0.00042: "0.000", 1.006: "1.0", 9.96: "10.0", 35.4: "35", 831.2: "831"} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %s, want %s", v, got, want)
		}
	}
}

// Two runs agree in a cell if their spreads overlap, as printed, or if their medians differ by at most Near.
func TestCompare(t *testing.T) {
	t.Parallel()
	run := func(start, part, rss, ratio Stat) []Line {
		return []Line{
			{Work: "start", Unit: Seconds, Arms: map[string]Stat{"a": start}, Ratio: &ratio},
			{Work: "  part", Unit: Seconds, Arms: map[string]Stat{"a": part}},
			{Work: "  part", Unit: MiB, Arms: map[string]Stat{"a": rss}},
		}
	}
	is := func(low, high float64) Stat { return Stat{Value: low, Min: low, Max: high, N: 3} }
	one := run(is(10, 12), is(1, 2), is(10<<20, 11<<20), is(0.5, 0.6))
	other := run(is(12.04, 13), is(2.1, 3), is(20<<20, 21<<20), is(0.61, 0.7))
	cells, apart := Compare(one, other)
	want := []Apart{
		{"start", "ratio", "0.50 (0.50-0.60)", "0.61 (0.61-0.70)"},
		{"  part", "a", "1.0 (1.0-2.0)", "2.1 (2.1-3.0)"}, {"  part", "a", "10 (10-11)", "20 (20-21)"},
	}
	if cells != 4 || !slices.Equal(apart, want) {
		t.Errorf("%d cells, apart:\n%q\nwant\n%q", cells, apart, want)
	}
	if _, apart := Compare(run(is(10, 10), is(1, 1), is(1<<20, 1<<20), is(0.50, 0.50)), run(is(11.1, 11.1), is(1.12, 1.12), is(1<<20, 1<<20), is(0.45, 0.45))); len(apart) != 1 || apart[0].Work != "  part" {
		t.Errorf("medians of 10 and 11.1 and of 0.50 and 0.45 are near, those of 1 and 1.12 are not; apart: %q", apart)
	}
	if _, apart := Compare(one, one); len(apart) != 0 {
		t.Errorf("a run does not agree with itself: %q", apart)
	}
}

func TestBetween(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want, err string }{
		{"a\n<b>\nold\n</b>\nz\n", "a\n<b>\nnew\n</b>\nz\n", ""},
		{"a\n<b>\n</b>\n", "a\n<b>\nnew\n</b>\n", ""},
		{"a\n</b>\n", "", `it has no line "<b>"`},
		{"</b>\n<b>\n", "", `it has no line "</b>" after "<b>"`},
	} {
		got, err := Between(c.text, "<b>\n", "</b>", "new\n")
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%q: %q, %v; want %q, %s", c.text, got, err, c.want, c.err)
		}
	}
}

// The Value of a Stat lies between its Min and Max, even if the quantile of each single round lies on one side of it.
func TestValueIsInItsSpread(t *testing.T) {
	t.Parallel()
	theirs := []Samples{{"x": {2, 2, 2}}, {"x": {20}}}
	ours := []Samples{{"x": {1}}, {"x": {10, 10, 10}}}
	lines := Fill([]Row{{Title: "x", Sample: "x"}}, map[string][]Samples{"a": theirs, "b": ours}, "a", "b")
	if r := *lines[0].Ratio; r != (Stat{Value: 5, Min: 0.5, Max: 5, N: 2}) {
		t.Errorf("ratio %+v", r)
	}
	if s, _ := Of([][]float64{{0, 100}, {0, 100}}, 0.99); s.Value != 100 || s.Max < s.Value {
		t.Errorf("p99 of two rounds: %+v", s)
	}
}

// Compare compares rows of the same title only if the last heading above both rows is the same, even if one of the two runs lacks a row.
func TestCompareBelowHeadings(t *testing.T) {
	t.Parallel()
	line := func(work string, v float64) Line {
		return Line{Work: work, Unit: Seconds, Arms: map[string]Stat{"a": {Value: v, Min: v, Max: v, N: 1}}}
	}
	one := []Line{line("start", 1), line("  shims", 10), line("stop", 2), line("  shims", 20)}
	other := []Line{line("start", 1), line("stop", 2), line("  shims", 20)}
	if cells, apart := Compare(one, other); cells != 3 || len(apart) != 0 {
		t.Errorf("%d cells, apart: %q", cells, apart)
	}
}
