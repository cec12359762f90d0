package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Pair contains the traces of a case on both agents.
type Pair struct{ Upstream, Wherry *Trace }

// line is one line of the printed traces: a request of an agent to the runtime, or a change that the API server saw.
type line struct {
	at     time.Duration
	wherry bool
	text   string
}

// column is the width of the column of one agent, in characters.
const column = 62

// Columns prints the traces of both agents side by side, ordered by time: the requests to the runtime, and the changes that the API
// server saw. Of the commands in containers it prints only hooks.
func (p *Pair) Columns(c *Case) string {
	all := append(p.Upstream.lines(c, false), p.Wherry.lines(c, true)...)
	slices.SortStableFunc(all, func(a, b line) int { return int(a.at - b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s| %s\n", column, "upstream", "wherry")
	for _, l := range all {
		text := fmt.Sprintf("%5.1fs %s", l.at.Seconds(), l.text)
		if len(text) > column-1 {
			text = text[:column-1]
		}
		if l.wherry {
			fmt.Fprintf(&b, "%-*s| %s\n", column, "", text)
		} else {
			fmt.Fprintf(&b, "%-*s|\n", column, text)
		}
	}
	return b.String()
}

func (t *Trace) lines(c *Case, wherry bool) (out []line) {
	add := func(at time.Time, text string) {
		out = append(out, line{at.Sub(t.Created), wherry, text})
	}
	for _, call := range t.Calls {
		text := call.Verb
		if call.Container != "" {
			text += fmt.Sprintf(" %s#%d", call.Container, call.Attempt)
		}
		switch {
		case call.Verb == "StopContainer":
			text += fmt.Sprintf(" timeout %d", call.Timeout)
		case call.Command == "preStop" || call.Command == "postStart":
			text += " " + call.Command
		case call.Verb == "ExecSync":
			continue
		}
		if call.Failed {
			text += " (fails)"
		}
		add(call.At, text)
	}
	spans := func(what string, all []span) {
		for _, s := range all {
			add(s.since, "  API: "+what+" "+s.value)
		}
	}
	for _, name := range c.containers() {
		spans(name, t.states(name))
		spans(name, t.readiness(name))
	}
	spans("phase", t.phases())
	spans("Ready", t.condition(v1.PodReady))
	add(t.Deleted, "is deleted")
	return out
}
