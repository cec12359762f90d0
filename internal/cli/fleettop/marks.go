package fleettop

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/cli/screen"
)

// part is one part of a bar.
type part struct {
	name  string
	count int
	mark  mark
	style screen.Style
}

// mark is the character of a part, so that the parts differ without colours, too.
type mark struct{ unicode, ascii string }

// in returns the character for a terminal.
func (m mark) in(mode screen.Mode) string {
	if mode.ASCII {
		return m.ascii
	}
	return m.unicode
}

// These are the marks of the bars.
var (
	full     = mark{"█", "#"}
	medium   = mark{"▒", "+"}
	dark     = mark{"▓", "="}
	light    = mark{"░", "-"}
	crossed  = mark{"╳", "x"}
	slashed  = mark{"╱", "/"}
	checked  = mark{"▚", "F"}
	gap      = mark{"·", "."}
	between  = mark{"·", "-"}
	arrows   = mark{"←→", "<- ->"}
	vertical = mark{"↑↓", "up/down"}
)

// bar draws the parts in proportion to whole, in exactly size columns. A part that is not empty has at least one column if there are enough; what
// is missing to whole is drawn as a gap.
func bar(mode screen.Mode, size, whole int, parts []part) screen.Line {
	size = max(0, size)
	sum := 0.0 // no sum of counts overflows it
	for _, p := range parts {
		sum += float64(max(0, p.count))
	}
	all := max(float64(whole), sum)
	if all <= 0 {
		return screen.Of(screen.Faint, strings.Repeat(gap.in(mode), size))
	}
	cells := make([]int, len(parts))
	used, largest := 0, 0
	for i, p := range parts {
		if p.count > 0 {
			cells[i] = max(1, min(size, int(float64(size)*float64(p.count)/all)))
		}
		used += cells[i]
		if cells[i] > cells[largest] {
			largest = i
		}
	}
	if sum >= all && used < size {
		cells[largest] += size - used
		used = size
	}
	for used > size { // small parts were made larger: the large ones give
		most := 0
		for i := range cells {
			if cells[i] > cells[most] {
				most = i
			}
		}
		cells[most]--
		used--
	}
	var out screen.Line
	for i, p := range parts {
		if cells[i] > 0 {
			out = append(out, screen.Span{Text: strings.Repeat(p.mark.in(mode), cells[i]), Style: p.style})
		}
	}
	if used < size {
		out = append(out, screen.Span{Text: strings.Repeat(gap.in(mode), size-used), Style: screen.Faint})
	}
	return out
}

// legend says what the parts of a bar mean, without those that are empty.
func legend(mode screen.Mode, parts []part) screen.Line {
	var out screen.Line
	for _, p := range parts {
		if p.count > 0 {
			out = append(out, screen.Span{Text: p.mark.in(mode), Style: p.style}, screen.Span{Text: " " + count(p.count) + " " + p.name + "   "})
		}
	}
	return out
}

// spark draws values as a line of small bars in exactly size columns, the newest at the right. The highest bar is the largest value.
func spark(mode screen.Mode, size int, values []float64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	if mode.ASCII {
		levels = []rune("_.:-=+*#")
	}
	size = max(0, size)
	values = values[max(0, len(values)-size):]
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", size-len(values)))
	for _, v := range values {
		level := 0
		if most > 0 && v > 0 {
			level = max(1, min(len(levels)-1, int(v/most*float64(len(levels)-1)+0.5)))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}

// count returns a number with commas between its thousands.
func count(n int) string {
	s := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// perSecond returns a rate with as many digits as are useful.
func perSecond(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f /s", v)
	}
	return count(int(v+0.5)) + " /s"
}

// short returns a duration without needless digits.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return long(d)
}

// long returns a duration in whole seconds, or in larger units.
func long(d time.Duration) string {
	s := int(max(0, d).Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %ds", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%dh %dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd %dh", s/86400, s/3600%24)
}

// amount returns a number of bytes in a readable unit.
func amount(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
}
