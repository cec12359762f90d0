package table

import (
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
	samples := map[string]map[string][]float64{
		"upstream": {"start": {0.5, 0.6, 0.4}, "rss": {80 << 20}},
		"wherry":   {"start": {0.2, 0.3, 0.25}},
		"bare":     {"start": {0.1}},
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
| start, ms | 100 | 500 (400-600) | 250 (200-300) | 0.50 | 0.60 |
| RSS, MiB |  | 80.0 |  |  |  |
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
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
