package proxyctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/wherry-node/wherry/internal/cli/plain"
)

// Get is the command `wherry cri proxy get`.
type Get struct {
	Client
	Output string // "": a table; json
}

// Run prints the state of a proxy.
func (g *Get) Run(ctx context.Context, out io.Writer) error {
	if g.Output != "" && g.Output != "json" {
		return fmt.Errorf("--output=%q: use json, or leave it out", g.Output)
	}
	s, err := g.State(ctx)
	if err != nil {
		return err
	}
	if g.Output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	return writeState(out, &s)
}

// writeState writes the state of a proxy as text.
func writeState(out io.Writer, s *State) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "proxy\t%s, running for %s\n", plain.Text(s.Listen), s.Running.Round(time.Second))
	fmt.Fprintf(t, "runtime\t%s: %s\n", plain.Text(s.Runtime), connection(s.Connection))
	fmt.Fprintf(t, "calls\t%d in flight\n", s.InFlight)
	fmt.Fprintf(t, "events\t%d lost\n", s.EventsLost)
	if s.RecordLost > 0 {
		fmt.Fprintf(t, "record\t%d lines lost\n", s.RecordLost)
	}
	if len(s.Faults) == 0 {
		fmt.Fprintln(t, "faults\tnone")
	}
	for i, f := range s.Faults {
		title := ""
		if i == 0 {
			title = "faults"
		}
		until := "until wherry cri proxy heal"
		if !f.Until.IsZero() {
			until = "for another " + max(0, time.Until(f.Until)).Round(time.Second).String()
		}
		fmt.Fprintf(t, "%s\t%s (%s; hits: %d)\n", title, plain.Text(f.Text), until, f.Hits)
	}
	if len(s.Methods) > 0 {
		fmt.Fprintln(t)
		fmt.Fprintln(t, "METHOD\tCALLS\tIN FLIGHT\tFAILED\tFAULTS\tMEAN\tLONGEST")
	}
	for i := range s.Methods {
		m := &s.Methods[i]
		mean, longest := "-", "-"
		if m.Calls > m.InFlight {
			mean, longest = short(m.Mean), short(m.Longest)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\n", plain.Text(m.Method), m.Calls, m.InFlight, m.Failed, m.Faulted, mean, longest)
	}
	return t.Flush()
}

// connection says in words what gRPC's name of a state of the connection to the runtime means.
func connection(state string) string {
	switch state {
	case "READY":
		return "connected"
	case "TRANSIENT_FAILURE":
		return "cannot be reached"
	}
	return "connects"
}

// short formats a duration without needless digits.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// Fault is the command `wherry cri proxy fault`.
type Fault struct {
	Client
	Injection
}

// Run makes a fault happen.
func (c *Fault) Run(ctx context.Context, out io.Writer) error {
	if err := c.check(); err != nil {
		return err
	}
	texts, err := c.Inject(ctx, c.Injection)
	return say(out, "fault: ", "", texts, err)
}

// Heal is the command `wherry cri proxy heal`.
type Heal struct {
	Client
	Method string // "": of all
}

// Run ends faults.
func (c *Heal) Run(ctx context.Context, out io.Writer) error {
	texts, err := c.Client.Heal(ctx, c.Method)
	return say(out, "healed: ", "there is no such fault", texts, err)
}

// say writes a line for each text, or the line none if there is no text. It returns err.
func say(out io.Writer, before, none string, texts []string, err error) error {
	if err != nil {
		return err
	}
	if len(texts) == 0 {
		fmt.Fprintln(out, none)
	}
	for _, text := range texts {
		fmt.Fprintln(out, before+plain.Text(text))
	}
	return nil
}

// Apply is the command `wherry cri proxy apply`.
type Apply struct{ Client }

// Run plays a scenario in a running proxy.
func (c *Apply) Run(ctx context.Context, out io.Writer, file string) error {
	text, err := readFile(file)
	if err != nil {
		return err
	}
	s, err := parseScenario(file, text)
	if err != nil {
		return err
	}
	if err := c.Play(ctx, file, text); err != nil {
		return err
	}
	fmt.Fprintf(out, "the scenario has begun: %d events\n", len(s.Events))
	return nil
}
