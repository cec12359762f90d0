package traces

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// This is the geometry of a waterfall, in pixels.
const (
	width              = 1000
	left, right        = 330, 20
	top, bottom        = 60, 20
	rowHeight, barHigh = 18, 12
	inner              = width - left - right
	indent             = 14
	widest             = 44 // letters of a label, at most
)

// colours are those of the services, in the order in which the waterfall meets them.
var colours = []string{"#00798c", "#edae49", "#6a4c93", "#888"}

// row is one line of a waterfall.
type row struct {
	span  Span
	depth int
	left  int // how many spans below this one are left out
}

// Waterfall draws the spans of a trace as an SVG: one line for each span, below the span that caused it, with a bar from its begin to its end.
// Spans of other services than that of the first span are left out if they are shorter than least; the picture says how many. The SVG has a
// white background and no script, so that any viewer can show it.
func Waterfall(title string, spans []Span, least time.Duration) string {
	rows := order(spans, least)
	var b strings.Builder
	height := top + bottom + rowHeight*len(rows)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="10" y="22" font-size="15">%s</text>`+"\n", escaped(title))
	if len(rows) == 0 {
		b.WriteString("</svg>\n")
		return b.String()
	}
	begin, end := rows[0].span.Begin, rows[0].span.End
	for _, r := range rows {
		if r.span.Begin.Before(begin) {
			begin = r.span.Begin
		}
		if r.span.End.After(end) {
			end = r.span.End
		}
	}
	whole := max(end.Sub(begin), time.Millisecond)
	x := func(t time.Time) float64 { return left + float64(t.Sub(begin))/float64(whole)*inner }
	step := niceStep(whole)
	for d := time.Duration(0); d <= whole; d += step {
		at := x(begin.Add(d))
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle" fill="#666">%v</text>`+"\n", at, top-8, height-bottom, at, top-14, d)
	}
	colour := map[string]string{}
	for i, r := range rows {
		if colour[r.span.Service] == "" {
			colour[r.span.Service] = colours[min(len(colour), len(colours)-1)]
			fmt.Fprintf(&b, `<text x="%d" y="22" text-anchor="end" fill="%s">%s</text>`+"\n", width-right-110*(len(colour)-1), colour[r.span.Service], escaped(r.span.Service))
		}
		b.WriteString(r.draw(top+rowHeight*i, x, colour[r.span.Service]))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw returns the elements of a line whose upper edge is at y.
func (r row) draw(y int, x func(time.Time) float64, colour string) string {
	s := r.span
	from, took := x(s.Begin), s.End.Sub(s.Begin)
	long := max(x(s.End)-from, 1)
	if s.Failed {
		colour = "#d1495b"
	}
	label := []rune(s.Name)
	if c := s.Attributes["k8s.container.name"]; c != "" {
		label = []rune(s.Name + " " + c)
	}
	if len(label) > widest {
		label = append(label[:widest-1], '…')
	}
	text := took.Round(100 * time.Microsecond).String()
	if r.left > 0 {
		text += fmt.Sprintf(" (shorter spans below are not shown: %d)", r.left)
	}
	at, anchor := from+long+5, "start"
	if at > width-right-float64(7*len(text)) {
		at, anchor = from-5, "end"
	}
	return fmt.Sprintf(`<text x="%d" y="%d">%s</text><rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/><text x="%.1f" y="%d" text-anchor="%s" fill="#444" font-size="11">%s</text>`+"\n",
		10+indent*r.depth, y+barHigh-1, escaped(string(label)), from, y, long, barHigh, colour, at, y+barHigh-2, anchor, escaped(text))
}

// escaped returns a text for an XML document. Characters that XML does not allow become U+FFFD.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder returns no error
	return b.String()
}

// order returns the lines: each span below its parent, spans with the same parent by their begin. Spans without a known parent come first.
// Spans whose parents form a ring are left out.
func order(spans []Span, least time.Duration) []row {
	known := map[string]bool{}
	for _, s := range spans {
		known[s.ID] = true
	}
	below := map[string][]Span{}
	for _, s := range spans {
		parent := s.Parent
		if !known[parent] || parent == s.ID {
			parent = ""
		}
		below[parent] = append(below[parent], s)
	}
	for _, list := range below {
		slices.SortStableFunc(list, func(a, b Span) int { return a.Begin.Compare(b.Begin) })
	}
	var rows []row
	var own string
	seen := map[string]bool{}
	var add func(parent string, depth int) (left int)
	add = func(parent string, depth int) (left int) {
		for _, s := range below[parent] {
			if seen[s.ID] {
				continue
			}
			seen[s.ID] = true
			if own == "" {
				own = s.Service
			}
			if s.Service != own && s.End.Sub(s.Begin) < least {
				left += 1 + count(below, s.ID, seen)
				continue
			}
			rows = append(rows, row{span: s, depth: depth})
			i := len(rows) - 1
			rows[i].left = add(s.ID, depth+1)
		}
		return left
	}
	add("", 0)
	return rows
}

// count returns how many spans are below a span, and marks them as seen.
func count(below map[string][]Span, id string, seen map[string]bool) (n int) {
	for _, s := range below[id] {
		if !seen[s.ID] {
			seen[s.ID] = true
			n += 1 + count(below, s.ID, seen)
		}
	}
	return n
}

// niceStep returns the distance between the lines of the time axis: 1, 2 or 5 times a power of ten, so that there are at most about ten.
func niceStep(whole time.Duration) time.Duration {
	power := math.Pow(10, math.Floor(math.Log10(float64(whole)/10)))
	for _, f := range []float64{1, 2, 5} {
		if 10*f*power >= float64(whole) {
			return time.Duration(f * power)
		}
	}
	return time.Duration(10 * power)
}
