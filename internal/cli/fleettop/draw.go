package fleettop

import (
	"fmt"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/cli/screen"
)

// List is what the lower part of the screen lists.
type List int

// These are the lists, in the order of their tabs.
const (
	ListNodes List = iota
	ListGroups
	ListFaults
	lists // how many there are
)

// View is what the screen shows.
type View struct {
	Mode screen.Mode
	Size screen.Size
	// Now is the newest answer of the fleet, and Past has what happened before.
	Now  *fleetctl.Watched
	Past *History
	// Every is the interval of the answers.
	Every  time.Duration
	List   List
	Scroll int // how many rows of the list are above those that are shown
	Paused bool
	// Lost says why the fleet does not answer, for the time Silent; "": it answers.
	Lost   string
	Silent time.Duration
}

// row is a line that is left out if the screen is too small: the lines with the largest rank first.
type row struct {
	rank int
	line screen.Line
}

// These are the ranks of lines.
const (
	needed = iota
	useful
	pictured
	detailed
	spare
	blank
)

// narrow is the width of a screen that is too narrow for anything but the fleet's name in its first line.
const narrow = 24

// leastList is how many lines the list gets before the lines above it get the rest: its tabs, the heads of its columns, and rows. On a low screen it
// gets a third.
const leastList = 6

// Draw returns the lines of the screen, at most as many as it has rows, and the number of rows of the list that are above those shown: v.Scroll, or
// less if the list ends before.
func Draw(v *View) (lines []screen.Line, scroll int) {
	if v.Size.Rows < 1 || v.Size.Columns < 1 {
		return nil, 0
	}
	top := v.top()
	heads, rows := v.list()
	room := v.Size.Rows - 1 // the last line has the keys
	fixed := 1 + len(heads) // of the list: its tabs and heads
	top = squeeze(top, max(1, room-min(leastList, room/3, fixed+len(rows))))
	for _, r := range top {
		lines = append(lines, r.line)
	}
	page := max(0, room-len(top)-fixed)
	scroll = max(0, min(v.Scroll, len(rows)-page))
	shown := rows[scroll:min(len(rows), scroll+page)]
	lines = append(lines, v.tabs(scroll, len(shown), len(rows)))
	lines = append(lines, heads...)
	lines = append(lines, shown...)
	lines = lines[:min(len(lines), room)]
	for len(lines) < room {
		lines = append(lines, nil)
	}
	if lines = append(lines, v.keys()); v.Size.Rows == 1 {
		lines = []screen.Line{top[0].line}
	}
	for i := range lines {
		lines[i] = v.Mode.Fit(lines[i], v.Size.Columns)
	}
	return lines, scroll
}

// squeeze leaves out lines until at most so many are left: those with the largest rank, and the last of them first.
func squeeze(rows []row, most int) []row {
	for len(rows) > most {
		worst := 0
		for i, r := range rows {
			if r.rank >= rows[worst].rank {
				worst = i
			}
		}
		rows = append(rows[:worst:worst], rows[worst+1:]...)
	}
	return rows
}

// top returns the lines above the list.
func (v *View) top() []row {
	s := &v.Now.State
	states, phases := v.nodeParts(), v.podParts()
	wanted := max(s.Wanted, s.Pods.Pending+s.Pods.Running+s.Pods.Succeeded+s.Pods.Failed)
	width := v.Size.Columns - 2
	out := []row{{needed, v.head()}}
	if v.Lost != "" {
		out = append(out, row{needed, screen.Of(screen.Bad, fmt.Sprintf(" no answer for %s, trying again: %s", long(v.Silent), v.Lost))})
	}
	out = append(out, row{blank, nil},
		row{needed, screen.Line{
			{Text: " nodes     ", Style: screen.Strong}, {Text: fmt.Sprintf("%s of %s Ready", count(s.Nodes.Ready), count(s.Nodes.Want))},
		}},
		row{pictured, indent(bar(v.Mode, width, s.Nodes.Want, states))},
		row{detailed, indent(legend(v.Mode, states))})
	for _, text := range v.underWay() {
		out = append(out, row{useful, screen.Of(screen.Busy, " "+text)})
	}
	if text := v.faulty(); text != "" {
		out = append(out, row{useful, screen.Of(screen.Warn, " "+text)})
	}
	out = append(out, row{blank, nil},
		row{needed, screen.Line{
			{Text: " pods      ", Style: screen.Strong}, {Text: fmt.Sprintf("%s of %s Running, %s Ready", count(s.Pods.Running), count(wanted), count(s.Pods.Ready))},
		}},
		row{pictured, indent(bar(v.Mode, width, wanted, phases))},
		row{detailed, indent(legend(v.Mode, phases))},
		row{blank, nil})
	out = append(out, v.rates()...)
	return append(out, row{blank, nil})
}

// indent returns the line with a space before it.
func indent(l screen.Line) screen.Line { return append(screen.Line{{Text: " "}}, l...) }

// head returns the first line: which fleet this is.
func (v *View) head() screen.Line {
	s := &v.Now.State
	dot := " " + between.in(v.Mode) + " "
	right, style := "every "+v.Every.String(), screen.Faint
	switch {
	case v.Paused:
		right, style = "PAUSED", screen.Warn
	case v.Lost != "":
		right, style = "LOST", screen.Bad
	}
	right = " " + right + " "
	left := " fleet " + v.Mode.Text(s.Name)
	more := dot + "running for " + long(s.Running) + dot + v.Mode.Text(s.Server)
	room := v.Size.Columns - screen.Width(right)
	if room < narrow {
		right, room = "", v.Size.Columns
	}
	left = v.Mode.Cut(left, room)
	return screen.Line{
		{Text: left, Style: screen.Strong}, {Text: v.Mode.Cell(more, room-screen.Width(left))}, {Text: right, Style: style},
	}
}

// nodeParts returns the nodes by state.
func (v *View) nodeParts() []part {
	n := &v.Now.State.Nodes
	return []part{
		{"ready", n.Up, full, screen.Good}, {"joining", n.Joining, medium, screen.Busy}, {"leaving", n.Leaving, light, screen.Faint},
		{"not ready", n.NotReady(), dark, screen.Warn}, {"partitioned", n.Partitioned, slashed, screen.Warn},
		{"crashed", n.Crashed, crossed, screen.Bad}, {"failed", n.Failed, checked, screen.Bad},
	}
}

// podParts returns the pods by phase.
func (v *View) podParts() []part {
	p := &v.Now.State.Pods
	return []part{
		{"running", p.Running, full, screen.Good}, {"pending", p.Pending, medium, screen.Busy}, {"succeeded", p.Succeeded, dark, screen.Faint},
		{"failed", p.Failed, crossed, screen.Bad},
	}
}

// underWay returns a line about each thing that goes on: nodes that join or leave, pods that are still to start, scenarios.
func (v *View) underWay() []string {
	s := &v.Now.State
	var out []string
	joins := v.Past.rate(judged, func(s *sample) float64 { return s.joins })
	absent := max(0, s.Nodes.Want-(s.Nodes.Present-s.Nodes.Leaving)) // nodes that have not begun to join
	if missing := absent + s.Nodes.Joining; missing > 0 {
		text := fmt.Sprintf("joining: %s to go, at most %d at once", count(missing), s.JoinWindow)
		if joins > 0 {
			text += fmt.Sprintf("; %s, %s left", perSecond(joins), long(time.Duration(float64(missing)/joins*float64(time.Second))))
		}
		if part, ok := v.Past.share(); ok {
			text += fmt.Sprintf("; %.0f %% of a join waits for the API server", 100*part)
		}
		out = append(out, text)
	}
	if s.Nodes.Leaving > 0 {
		text := fmt.Sprintf("leaving: %s to go", count(s.Nodes.Leaving))
		if left := v.Past.rate(judged, func(s *sample) float64 { return s.left }); left > 0 {
			text += ", " + perSecond(left)
		}
		out = append(out, text)
	}
	starts := v.Past.rate(judged, func(s *sample) float64 { return s.starts })
	if missing := s.Wanted - s.Pods.Running - s.Pods.Succeeded - s.Pods.Failed; missing > 0 && starts > 0 {
		out = append(out, fmt.Sprintf("starting: %s pods to go; %s, %s left", count(missing), perSecond(starts), long(time.Duration(float64(missing)/starts*float64(time.Second)))))
	}
	for i := range s.Scenarios {
		if p := &s.Scenarios[i]; !p.Ended {
			text := fmt.Sprintf("scenario %s: %s of %s faults", v.Mode.Cut(p.Name, 40), count(p.Happened+p.Failed), count(p.Faults))
			if p.Next != "" {
				text += fmt.Sprintf("; next: %s in %s", v.Mode.Cut(p.Next, 30), long(p.NextAt.Sub(v.now())))
			}
			out = append(out, text)
		}
	}
	return out
}

// faulty returns a line about the faults that are active now; "": none is.
func (v *View) faulty() string {
	const most = 4
	all := v.Now.State.Faults
	var out []string
	for i := range all[:min(len(all), most)] {
		f := &all[i]
		text := fmt.Sprintf("%s on %s", v.Mode.Cut(string(f.Kind), 20), nodes(f.Nodes))
		if !f.Until.IsZero() {
			text += " for another " + long(f.Until.Sub(v.now()))
		}
		out = append(out, text)
	}
	if len(all) > most {
		out = append(out, fmt.Sprintf("and %d more", len(all)-most))
	}
	if out == nil {
		return ""
	}
	return "faults: " + strings.Join(out, ", ")
}

// nodes returns a number of nodes as a text.
func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return count(n) + " nodes"
}

// now returns the time of the newest answer.
func (v *View) now() time.Time { return v.Now.State.Began.Add(v.Now.State.Running) }

// labelled is a number with its name, and with its history if the screen has the room.
type labelled struct {
	rank        int
	name, value string
	series      []float64
	style       screen.Style
}

// These are the sizes of the parts of a labelled number, in columns.
const (
	nameSize, valueSize = 11, 13
	leastSpark          = 8
	mostSpark           = 60
)

// rates returns the lines about what happens in a second, about the leases and the process.
func (v *View) rates() []row {
	s, h := &v.Now.State, v.Past
	mean := func(of func(*sample) float64) string { return perSecond(h.rate(smooth, of)) }
	starts := func(s *sample) float64 { return s.starts }
	deletions := func(s *sample) float64 { return s.deletions }
	requests := func(s *sample) float64 { return s.requests }
	cpu := func(s *sample) float64 { return s.cpu }
	late, slow := screen.Plain, screen.Plain
	if lateness(&s.Leases) > 2*time.Second {
		late = screen.Warn
	}
	if lateness(&s.Leases) > 10*time.Second {
		late = screen.Bad
	}
	if h.wait() > time.Second {
		slow = screen.Warn
	}
	var waits, lates []float64
	for _, one := range h.newest(mostSpark) {
		lates = append(lates, one.p99.Seconds())
		waits = append(waits, one.waited.Seconds()/max(1, one.requests))
	}
	out := v.pair(
		labelled{useful, "starts", mean(starts), h.series(mostSpark, starts), screen.Plain},
		labelled{useful, "deletions", mean(deletions), h.series(mostSpark, deletions), screen.Plain})
	out = append(out, v.pair(
		labelled{useful, "API calls", mean(requests), h.series(mostSpark, requests), screen.Plain},
		labelled{detailed, "API wait", short(h.wait()), waits, slow})...)
	out = append(out, row{spare, v.requests()})
	out = append(out, v.pair(
		labelled{useful, "lease lag", short(s.Leases.P99), lates, late},
		labelled{detailed, "CPU", fmt.Sprintf("%.2f cores", h.rate(smooth, cpu)), h.series(mostSpark, cpu), screen.Plain})...)
	return append(out,
		row{detailed, screen.Line{
			{Text: " " + v.Mode.Cell("leases", nameSize-1)},
			{Text: fmt.Sprintf("p50 %s   p99 %s   overdue %s   %s failed", short(s.Leases.P50), short(s.Leases.P99), short(s.Leases.Overdue), count(s.Leases.Failed)), Style: late},
		}},
		row{detailed, screen.Of(screen.Plain, " "+v.Mode.Cell("process", nameSize-1)+
			fmt.Sprintf("%s, %s a node   %s goroutines, %.1f a node", amount(s.Memory), amount(s.MemoryPerNode), count(s.Goroutines), s.GoroutinesPerNode))})
}

// pair returns two labelled numbers: in one line if it is wide enough, otherwise in two.
func (v *View) pair(a, b labelled) []row {
	half := v.Size.Columns / 2
	if half < nameSize+valueSize+leastSpark+2 {
		return []row{{a.rank, v.label(a, v.Size.Columns)}, {b.rank + 1, v.label(b, v.Size.Columns)}}
	}
	return []row{{a.rank, append(v.label(a, half), v.label(b, v.Size.Columns-half)...)}}
}

// label returns a labelled number in exactly so many columns.
func (v *View) label(l labelled, size int) screen.Line {
	out := screen.Line{{Text: " " + v.Mode.Cell(l.name, nameSize-1)}, {Text: v.Mode.Cell(l.value, valueSize), Style: l.style}}
	rest := size - nameSize - valueSize
	if room := min(rest-2, mostSpark); room >= leastSpark {
		return append(out, screen.Span{Text: spark(v.Mode, room, l.series), Style: screen.Busy}, screen.Span{Text: strings.Repeat(" ", rest-room)})
	}
	return append(out, screen.Span{Text: strings.Repeat(" ", max(0, rest))})
}

// requests returns the line with the requests by verb.
func (v *View) requests() screen.Line {
	s, h := &v.Now.State, v.Past
	out := screen.Line{{Text: " " + v.Mode.Cell("by verb", nameSize-1)}}
	for i, verb := range verbs {
		rate := h.rate(smooth, func(s *sample) float64 { return s.byVerb[i] })
		out = append(out, screen.Span{Text: verb + " ", Style: screen.Faint}, screen.Span{Text: strings.TrimSuffix(perSecond(rate), " /s") + "  "})
	}
	failed := screen.Span{Text: fmt.Sprintf("failed %.1f /s, %s in all", h.rate(smooth, func(s *sample) float64 { return s.failed }), count(int(min(s.Requests.Failed, 1<<53))))}
	if h.rate(smooth, func(s *sample) float64 { return s.failed }) > 0 {
		failed.Style = screen.Bad
	}
	return append(out, failed)
}

// keys returns the last line: what the keys do.
func (v *View) keys() screen.Line {
	pause := "pauses"
	if v.Paused {
		pause = "goes on"
	}
	var out screen.Line
	for _, k := range []struct{ key, does string }{
		{"q", "ends"}, {"p", pause}, {"tab " + arrows.in(v.Mode), "chooses the list"}, {vertical.in(v.Mode), "scrolls"},
	} {
		out = append(out, screen.Span{Text: " " + k.key, Style: screen.Strong}, screen.Span{Text: " " + k.does + " ", Style: screen.Faint})
	}
	return out
}
