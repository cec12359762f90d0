package fleetctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

// readScenario reads a scenario from a file.
func readScenario(name string) (*fleet.Scenario, error) {
	data, err := scenarioText(name)
	if err != nil {
		return nil, err
	}
	return fleet.ParseScenario(name, data)
}

// scenarioText returns the text of a scenario's file. If it cannot be read, the error says what kind of file to give.
func scenarioText(name string) ([]byte, error) {
	data, err := readBounded(name, fleet.MaxTemplate)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w: give a file of the kind %s, as docs/fleet.md describes it", err, fleet.ScenarioKind)
	}
	return data, nil
}

// maxPlays bounds the scenarios that play at the same time.
const maxPlays = 16

// plays has the scenarios (plans of faults) that play in a fleet. All of them end when ctx ends.
type plays struct {
	ctx   context.Context
	fleet *fleet.Fleet
	said  *progress

	mu      sync.Mutex
	playing int
	group   sync.WaitGroup
}

// begin begins to play a scenario. It returns at once.
func (p *plays) begin(name string, s *fleet.Scenario) error {
	if err := p.fleet.Check(s); err != nil {
		return err // it names the file and the lines
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return errors.New("the fleet ends")
	case p.playing >= maxPlays:
		return fmt.Errorf("%d scenarios play already: wait for the end of one of them", maxPlays)
	}
	p.playing++
	p.group.Go(func() {
		all, n := 0, 0
		for i := range s.Events {
			all += s.Events[i].Times
		}
		err := p.fleet.Play(p.ctx, s, func(h fleet.Happening) {
			n++
			p.said.line("%s (%d of %d)", happened(&h), n, all)
		})
		if err == nil {
			p.said.line("all events of %s have happened", name)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.playing--
	})
	return nil
}

// wait waits until no scenario plays any more. It is called after ctx has ended.
func (p *plays) wait() {
	p.mu.Lock() // wait for a running call of begin; later calls return an error, because ctx has ended
	//lint:ignore SA2001 a barrier, not a critical section
	p.mu.Unlock()
	p.group.Wait()
}

// happened returns a line about an event of a scenario: the fault and the affected nodes, or the error.
func happened(h *fleet.Happening) string {
	if h.Err != "" {
		return plain.Text(fmt.Sprintf("%s: %s did not happen: %s", h.Event, h.Fault, h.Err))
	}
	return plain.Text(fmt.Sprintf("%s: %s: ", h.Event, h.Fault)) + affected(&h.Injected)
}

// affected returns a text with the nodes or containers that a fault has affected, and how many nodes were left out.
func affected(in *fleet.Injected) string {
	text := listed(in.On)
	if in.LeftOut > 0 {
		text += plain.Text(fmt.Sprintf("; %d left out (%s)", in.LeftOut, in.Why))
	}
	return text
}

// listed returns a text with at most ten of the names, and the number of the others.
func listed(names []string) string {
	const most = 10
	text := plain.Text(strings.Join(names[:min(most, len(names))], " "))
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > most:
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// Apply is the command `wherry fleet apply`.
type Apply struct{ Client }

// Run plays a scenario in a running fleet.
func (c *Apply) Run(ctx context.Context, out io.Writer, file string) error {
	data, err := scenarioText(file)
	if err != nil {
		return err
	}
	s, err := fleet.ParseScenario(file, data)
	if err != nil {
		return err
	}
	if err := c.Client.Play(ctx, file, data); err != nil {
		return err
	}
	fmt.Fprintf(out, "the scenario has begun: %d events\n", len(s.Events))
	return nil
}
