package fleettop

import (
	"fmt"
	"strings"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/screen"
)

// asked is how many nodes that need attention the view asks the fleet for.
const asked = 500

// tabs returns the line with the lists among which the user can choose. The list shows rows from first on, of all.
func (v *View) tabs(first, shown, all int) screen.Line {
	s := &v.Now.State
	out := screen.Line{{Text: " "}}
	for list, text := range []string{
		fmt.Sprintf("Nodes that need attention %s", count(v.Now.AttentionAll)),
		fmt.Sprintf("Groups %s", count(len(s.Groups))),
		fmt.Sprintf("Faults and scenarios %s", count(len(s.Faults)+len(s.Scenarios))),
	} {
		style := screen.Faint
		if List(list) == v.List {
			style = screen.Marked
		}
		out = append(out, screen.Span{Text: " " + text + " ", Style: style}, screen.Span{Text: " "})
	}
	if shown < all {
		out = append(out, screen.Span{Text: fmt.Sprintf("%s-%s of %s", count(first+1), count(first+shown), count(all)), Style: screen.Faint})
	}
	return out
}

// list returns the heads and the rows of the list that the user has chosen.
func (v *View) list() (heads, rows []screen.Line) {
	var t table
	none := ""
	switch v.List {
	case ListGroups:
		t = v.groups()
		none = "the fleet has no groups"
	case ListFaults:
		t = v.faults()
		none = "no fault is active and no scenario plays: wherry fleet fault partition --percent 10 --for 1m"
	case ListNodes:
		t = v.attention()
		none = "no node needs attention"
	}
	if len(t.rows) == 0 {
		return []screen.Line{screen.Of(screen.Faint, "  "+none)}, nil
	}
	return t.lines(v.Mode, v.Size.Columns)
}

// attention returns the table of the nodes that need attention.
func (v *View) attention() table {
	t := table{heads: []string{"NODE", "GROUP", "STATE", "PODS", "LEASE", "FAULTS"}, right: 1<<3 | 1<<4}
	for i := range v.Now.Attention {
		n := &v.Now.Attention[i]
		var why []string
		for _, kind := range n.Faults {
			why = append(why, string(kind))
		}
		text := strings.Join(why, ", ")
		if n.Reason != "" {
			text = strings.TrimPrefix(text+": "+n.Reason, ": ")
		}
		lease := ""
		if n.Overdue > 0 {
			lease = short(n.Overdue) + " late"
		}
		t.rows = append(t.rows, tableRow{[]string{n.Name, n.Group, n.State, fmt.Sprintf("%d/%d", n.Ready, n.Pods), lease, text}, styleOf(n)})
	}
	if more := v.Now.AttentionAll - len(t.rows); more > 0 {
		t.rows = append(t.rows, tableRow{[]string{fmt.Sprintf("and %s more", count(more)), "", "", "", "", ""}, screen.Faint})
	}
	return t
}

// styleOf returns how the row of a node looks.
func styleOf(n *fleet.NodeStatus) screen.Style {
	switch n.State {
	case "failed", "crashed":
		return screen.Bad
	case "partitioned", "notReady":
		return screen.Warn
	case "joining", "leaving":
		return screen.Busy
	}
	if n.Overdue > 0 {
		return screen.Warn
	}
	return screen.Plain
}

// groups returns the table of the groups.
func (v *View) groups() table {
	t := table{heads: []string{"GROUP", "NODES", "READY", "PODS", "STATES"}, right: 1<<1 | 1<<2 | 1<<3}
	for i := range v.Now.State.Groups {
		g := &v.Now.State.Groups[i]
		var others []string
		for _, o := range []struct {
			name  string
			count int
		}{
			{"joining", g.Joining}, {"leaving", g.Leaving}, {"not ready", g.NotReady()}, {"partitioned", g.Partitioned}, {"crashed", g.Crashed}, {"failed", g.Failed},
		} {
			if o.count > 0 {
				others = append(others, count(o.count)+" "+o.name)
			}
		}
		style := screen.Plain
		switch {
		case g.Failed+g.Crashed > 0:
			style = screen.Bad
		case g.Partitioned+g.NotReady() > 0:
			style = screen.Warn
		case g.Ready != g.Want:
			style = screen.Busy
		}
		t.rows = append(t.rows, tableRow{[]string{g.Name, count(g.Want), count(g.Ready), count(g.Pods), strings.Join(others, ", ")}, style})
	}
	return t
}

// faults returns the table of the faults that are active and of the scenarios.
func (v *View) faults() table {
	t := table{heads: []string{"FAULT", "NODES", "SINCE", "ENDS", "WHAT"}, right: 1 << 1}
	now := v.now()
	for i := range v.Now.State.Faults {
		f := &v.Now.State.Faults[i]
		ends := "by heal"
		if !f.Until.IsZero() {
			ends = "in " + long(f.Until.Sub(now))
		}
		t.rows = append(t.rows, tableRow{[]string{string(f.Kind), count(f.Nodes), long(now.Sub(f.Since)) + " ago", ends, f.Text}, screen.Warn})
	}
	for i := range v.Now.State.Scenarios {
		p := &v.Now.State.Scenarios[i]
		text := fmt.Sprintf("%s: %s of %s faults", p.Name, count(p.Happened+p.Failed), count(p.Faults))
		if p.Failed > 0 {
			text += fmt.Sprintf(", %s did not happen", count(p.Failed))
		}
		ends, style := "goes on", screen.Busy
		switch {
		case p.Ended:
			ends, style = "has ended", screen.Faint
		case p.Next != "":
			ends = "next in " + long(p.NextAt.Sub(now))
			text += ", next: " + p.Next
		}
		t.rows = append(t.rows, tableRow{[]string{"scenario", "", long(now.Sub(p.Began)) + " ago", ends, text}, style})
	}
	return t
}

// table is a list with columns.
type table struct {
	heads []string
	right uint // a bit for each column whose texts are at the right
	rows  []tableRow
}

type tableRow struct {
	cells []string
	style screen.Style
}

// widest bounds the width of each column but the last, so that no text takes the place of all others.
const widest = 40

// lines returns the lines of the table. The last column has the room that the others leave.
func (t *table) lines(mode screen.Mode, columns int) (heads, rows []screen.Line) {
	last := len(t.heads) - 1
	most := max(8, min(widest, columns/3))
	sizes := make([]int, last)
	for i := range sizes {
		sizes[i] = screen.Width(t.heads[i])
		for _, r := range t.rows {
			sizes[i] = max(sizes[i], min(most, screen.Width(mode.Text(r.cells[i]))))
		}
	}
	line := func(cells []string, style screen.Style) screen.Line {
		var b strings.Builder
		b.WriteString("  ")
		for i, size := range sizes {
			if t.right>>i&1 == 1 {
				b.WriteString(mode.Right(cells[i], size))
			} else {
				b.WriteString(mode.Cell(cells[i], size))
			}
			b.WriteString("  ")
		}
		b.WriteString(mode.Text(cells[last]))
		return screen.Of(style, strings.TrimRight(b.String(), " "))
	}
	for _, r := range t.rows {
		rows = append(rows, line(r.cells, r.style))
	}
	return []screen.Line{line(t.heads, screen.Faint)}, rows
}
