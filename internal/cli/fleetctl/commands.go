package fleetctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

// Get is the command `wherry fleet get`.
type Get struct {
	Client
	Nodes  bool   // print each node too
	Output string // "": a table; json
}

// Run prints the state of a fleet.
func (g *Get) Run(ctx context.Context, out io.Writer) error {
	if err := checkOutput(g.Output); err != nil {
		return err
	}
	s, err := g.State(ctx)
	if err != nil {
		return err
	}
	var nodes []fleet.NodeStatus
	if g.Nodes {
		if nodes, err = g.Client.Nodes(ctx); err != nil {
			return err
		}
	}
	if g.Output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			State
			Each []fleet.NodeStatus `json:"each,omitempty"`
		}{s, nodes})
	}
	writeState(out, &s)
	if g.Nodes {
		fmt.Fprintln(out)
		t := table(out)
		fmt.Fprintln(t, "NAME\tGROUP\tSTATE\tPODS\tREASON")
		for _, n := range nodes {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", plain.Text(n.Name), plain.Text(n.Group), plain.Text(n.State), n.Pods, plain.Text(n.Reason))
		}
		return t.Flush()
	}
	return nil
}

func table(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 3, ' ', 0) }

// writeState writes the state of a fleet as text.
func writeState(out io.Writer, s *State) {
	t := table(out)
	fmt.Fprintf(t, "fleet\t%s, running for %s\n", plain.Text(s.Name), s.Running.Round(time.Second))
	fmt.Fprintf(t, "cluster\t%s\n", plain.Text(s.Server))
	if s.Kubeconfig != "" {
		fmt.Fprintf(t, "use it\texport KUBECONFIG=%s\n", plain.Text(s.Kubeconfig))
	}
	if s.Shard != nil {
		writeShards(t, s.Shard)
	}
	n := &s.Nodes
	fmt.Fprintf(t, "nodes\t%d of %d Ready%s\n", n.Ready, n.Want, others(n))
	if len(s.Groups) > 1 {
		for i := range s.Groups {
			g := &s.Groups[i]
			fmt.Fprintf(t, "  %s\t%d of %d Ready%s\n", plain.Text(g.Name), g.Ready, g.Want, others(&g.Nodes))
		}
	}
	p := &s.Pods
	fmt.Fprintf(t, "pods\t%d Running (%d Ready), %d Pending, %d Succeeded, %d Failed; %.1f starts a second\n",
		p.Running, p.Ready, p.Pending, p.Succeeded, p.Failed, p.StartsPerSecond)
	l := &s.Leases
	fmt.Fprintf(t, "leases\trenewed %s late (p99 %s), %d failed\n", short(max(l.P50, l.Overdue)), short(max(l.P99, l.Overdue)), l.Failed)
	fmt.Fprintf(t, "API\t%d requests of the nodes, %d failed, answered in %s on average%s\n", s.Requests.Total, s.Requests.Failed, short(mean(&s.Requests)), waitingEvents(&s.Requests))
	fmt.Fprintf(t, "process\t%.0f MiB, %.0f KiB a node; %d goroutines; %.1f s of CPU\n",
		float64(s.Memory)/(1<<20), float64(s.MemoryPerNode)/(1<<10), s.Goroutines, s.CPUSeconds)
	for i := range s.Scenarios {
		fmt.Fprintf(t, "faults\t%s\n", howFar(&s.Scenarios[i]))
	}
	_ = t.Flush() // an error means that the reader is gone
}

// howFar returns a text about the progress of a scenario.
func howFar(p *fleet.ScenarioStatus) string {
	text := fmt.Sprintf("%s: %d of %d happened", plain.Text(p.Name), p.Happened, p.Faults)
	if p.Failed > 0 {
		text += fmt.Sprintf(", %d could not", p.Failed)
	}
	switch {
	case p.Ended:
	case p.Next != "":
		text += "; next: " + plain.Text(p.Next)
	default:
		text += "; it waits for its conditions"
	}
	return text
}

// others returns a text with the number of nodes in each state except Ready.
func others(n *fleet.Nodes) string {
	var out []string
	for _, o := range []struct {
		count int
		state string
	}{{n.Joining, "joining"}, {n.Leaving, "leaving"}, {n.Crashed, "crashed"}, {n.Partitioned, "partitioned"}, {n.Failed, "failed"}} {
		if o.count > 0 {
			out = append(out, fmt.Sprintf("%d %s", o.count, o.state))
		}
	}
	if out == nil {
		return ""
	}
	return ": " + strings.Join(out, ", ")
}

// short formats a duration without needless digits.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// Top prints the state of a fleet again and again. It is what `wherry fleet top` does where it has no terminal to draw on: see package fleettop.
type Top struct {
	Client
	Every time.Duration
	Count int // how many times the state is printed; 0: no limit, until the user ends the command or the fleet ends
}

// Check returns an error if an option is not valid.
func (o *Top) Check() error {
	if o.Every < 100*time.Millisecond {
		return fmt.Errorf("--interval=%s: use 100ms or more", o.Every)
	}
	return nil
}

// Run prints the state again and again.
func (o *Top) Run(ctx context.Context, out io.Writer) error {
	if err := o.Check(); err != nil {
		return err
	}
	var cpu, at float64
	var asked uint64
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for i := 1; ; i++ {
		s, err := o.State(ctx)
		if err != nil {
			return err
		}
		var b strings.Builder
		writeState(&b, &s)
		if now := s.Running.Seconds(); i > 1 && now > at {
			fmt.Fprintf(&b, "CPU       %.2f cores now\n", (s.CPUSeconds-cpu)/(now-at))
			fmt.Fprintf(&b, "API       %.0f requests a second now\n", float64(s.Requests.Total-asked)/(now-at))
		}
		asked = s.Requests.Total
		cpu, at = s.CPUSeconds, s.Running.Seconds()
		b.WriteString(bars(&s))
		if _, err := io.WriteString(out, b.String()); err != nil {
			return err
		}
		if i == o.Count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		fmt.Fprintln(out)
	}
}

// barWidth is the width of a bar in characters.
const barWidth = 40

// bars draws how many of the nodes are Ready, and how many of the pods are Running.
func bars(s *State) string {
	pods := s.Pods.Running + s.Pods.Pending + s.Pods.Succeeded + s.Pods.Failed
	return bar("nodes", s.Nodes.Ready, s.Nodes.Want) + bar("pods", s.Pods.Running, max(pods, s.Wanted))
}

func bar(name string, part, whole int) string {
	if whole <= 0 {
		return ""
	}
	full := int(min(barWidth, max(0, barWidth*float64(part)/float64(whole))))
	return fmt.Sprintf("%-6s[%s%s] %d/%d\n", name, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), part, whole)
}

// Scale is the command `wherry fleet scale`.
type Scale struct {
	Client
	Group string
	Wait  time.Duration // how long to wait until the nodes have joined or left; 0: do not wait
}

// Run sets the number of nodes, and waits until they have joined or left. It writes progress to said.
func (c *Scale) Run(ctx context.Context, out, said io.Writer, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return fmt.Errorf("%q is no number of nodes", count)
	}
	s, err := c.Client.Scale(ctx, c.Group, n)
	if err != nil {
		return err
	}
	began, before, lines := time.Now(), s.Joins, progress{out: said, began: time.Now()}
	for last := began; c.Wait > 0 && !s.Settled(); {
		if time.Since(last) >= progressEvery {
			last = time.Now()
			lines.line("%d of %d nodes Ready%s%s", s.Nodes.Ready, s.Nodes.Want, others(&s.Nodes), joined(before, s.Joins, time.Since(began)))
		}
		if time.Since(began) > c.Wait {
			return fmt.Errorf("after %s (--wait) %d of %d nodes are Ready%s; the fleet goes on: wherry fleet get --nodes says what the others wait for",
				c.Wait, s.Nodes.Ready, s.Nodes.Want, others(&s.Nodes))
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
		if s, err = c.State(ctx); err != nil {
			return err
		}
	}
	if s.Shard != nil {
		fmt.Fprintf(out, "the whole fleet has %d nodes; of the shard %s ", s.Shard.Nodes, plain.Text(s.Shard.Name))
	}
	fmt.Fprintf(out, "%d of %d nodes Ready\n", s.Nodes.Ready, s.Nodes.Want)
	return nil
}

// joined returns a text about the joins since before: how many there were in a second, and for how much of their time the nodes waited for the
// API server. It is empty if no node has joined.
func joined(before, now fleet.Joins, elapsed time.Duration) string {
	n, took := now.Ended-before.Ended, now.Took-before.Took
	if n <= 0 || took <= 0 || elapsed <= 0 {
		return ""
	}
	return fmt.Sprintf(", %.1f a second; %.0f %% of a join waits for the API server", float64(n)/elapsed.Seconds(), 100*float64(now.Waited-before.Waited)/float64(took))
}

// Stop is the command `wherry fleet stop`.
type Stop struct{ Client }

// Run ends a fleet, and waits until it has removed what it created.
func (c *Stop) Run(ctx context.Context, out io.Writer) error {
	s, err := c.Client.Stop(ctx)
	if err != nil {
		return err
	}
	for c.Listens(ctx) {
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	switch {
	case s.Shard == nil:
		fmt.Fprintf(out, "the fleet %s has ended\n", plain.Text(s.Name))
	case len(s.Shard.Shards) > 1:
		fmt.Fprintf(out, "the shard %s of the fleet %s has ended; the others take its nodes\n", plain.Text(s.Shard.Name), plain.Text(s.Name))
	default:
		fmt.Fprintf(out, "the shard %s of the fleet %s has ended; its nodes stay in the cluster for another shard, or until wherry fleet clean removes them\n", plain.Text(s.Shard.Name), plain.Text(s.Name))
	}
	return nil
}

// Fault is the command `wherry fleet fault`.
type Fault struct {
	Client
	Nodes fleet.Selector
	Fault fleet.Fault
	Heal  bool
}

// Run makes a fault happen on the chosen nodes, or ends their faults. A group or labels alone mean all their nodes, as in a scenario.
func (c *Fault) Run(ctx context.Context, out io.Writer) error {
	if n := &c.Nodes; len(n.Names) == 0 && n.Count == 0 && n.Percent == 0 && !n.All {
		if n.Group == "" && n.Labels == "" {
			return errors.New("name the nodes, or choose them with --count, --percent, --group, --selector or --all")
		}
		n.All = true
	}
	err := nodeFlags.name(c.Nodes.Check())
	if err == nil && !c.Heal {
		err = faultFlags.name(c.Fault.Check())
	}
	if err != nil {
		return err
	}
	var done fleet.Injected
	what := "healed"
	if c.Heal {
		done.On, err = c.Client.Heal(ctx, c.Nodes)
	} else {
		what = string(c.Fault.Kind)
		done, err = c.Client.Inject(ctx, c.Nodes, c.Fault)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s\n", what, affected(&done))
	return nil
}

// sleep waits for d; false: ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
