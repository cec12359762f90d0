package proxyctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/edge/criproxy"
)

// readScenario reads a scenario from a file.
func readScenario(name string) (*fleet.Scenario, error) {
	text, err := readFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	return parseScenario(name, text)
}

// parseScenario reads a scenario for the runtime of one node.
func parseScenario(name string, text []byte) (*fleet.Scenario, error) {
	return fleet.ParseRuntimeScenario(name, text, criproxy.CheckMethod)
}

// readFile reads a file of a scenario. The text of a file that is too large has one byte too many, which the parser refuses.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, fleet.MaxTemplate+1))
}

// maxPlays bounds the scenarios that play at the same time.
const maxPlays = 16

// conditionPace is the interval at which a condition of a scenario is checked. Each check is a call to the runtime.
const conditionPace = time.Second

// plays has the scenarios that play in a proxy. All of them end when ctx ends.
type plays struct {
	ctx   context.Context
	proxy *criproxy.Proxy
	log   *slog.Logger

	mu      sync.Mutex
	playing int
	group   sync.WaitGroup
}

// begin begins to play a scenario. It returns at once.
func (p *plays) begin(name string, s *fleet.Scenario) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return errors.New("the proxy ends")
	case p.playing >= maxPlays:
		return fmt.Errorf("%d scenarios play already: wait for the end of one of them", maxPlays)
	}
	p.playing++
	p.group.Go(func() {
		var events sync.WaitGroup
		for i := range s.Events {
			events.Go(func() { p.play(&s.Events[i], rand.New(rand.NewPCG(s.Seed, uint64(i)))) })
		}
		events.Wait()
		if p.ctx.Err() == nil {
			p.log.Info("all events of a scenario have happened", "scenario", name)
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

// play waits until the condition of an event is true, and then injects the event's fault as often as the event says.
func (p *plays) play(e *fleet.Event, random *rand.Rand) {
	for !p.holds(e.When) {
		if !pause(p.ctx, conditionPace) {
			return
		}
	}
	wait := e.After
	for range e.Times {
		if e.Jitter > 0 {
			wait = max(0, wait+time.Duration(random.Int64N(2*int64(e.Jitter)+1))-e.Jitter)
		}
		in := Injection{Fault: e.Fault.Runtime, Seed: random.Uint64(), For: e.Fault.For}
		if !pause(p.ctx, wait) {
			return
		}
		f, err := in.fault()
		if err == nil {
			_, err = p.proxy.Inject(f)
		}
		if err != nil {
			p.log.Warn("an event of a scenario did not happen", "event", e.Name, "err", err)
		}
		wait = e.Every
	}
}

// holds reports whether a condition is true now. While the runtime does not answer, none is.
func (p *plays) holds(c fleet.Condition) bool {
	if c.PodsRunning == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	pods, err := p.proxy.RunningPods(ctx)
	return err == nil && pods >= c.PodsRunning
}

// pause waits for d; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
