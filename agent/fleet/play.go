package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// conditionPace is the interval at which a condition of a scenario is checked.
const conditionPace = 250 * time.Millisecond

// betweenInstants is when, after a full millisecond of virtual time, the events of a scenario look at the fleet. What happens at a millisecond may
// take a few nanoseconds (see Instants), and is over by then.
const betweenInstants = 500 * time.Microsecond

// Happening is one fault of a scenario that has begun.
type Happening struct {
	At    time.Duration `json:"at"` // since the scenario began
	Event string        `json:"event"`
	Fault FaultKind     `json:"fault"`
	Injected
	// Err says why the fault did not happen; "": it happened.
	Err string `json:"error,omitempty"`
}

// Play injects the faults of a scenario's events at their times. It returns when all faults have begun, or when ctx ends. It calls report
// for each fault, one call at a time; report may be nil. An event without a condition waits until all nodes have joined, so a scenario can play
// from the start of the fleet. If Check finds something wrong, Play returns its error and injects nothing. Several scenarios may play at the
// same time.
func (f *Fleet) Play(ctx context.Context, s *Scenario, report func(Happening)) error {
	if err := f.Check(s); err != nil {
		return err
	}
	p := f.begins(s)
	defer f.ends(p)
	var mu sync.Mutex
	say := func(h Happening) {
		mu.Lock()
		defer mu.Unlock()
		h.At = time.Since(p.Began)
		f.happens(p, &h)
		if report != nil {
			report(h)
		}
	}
	var group sync.WaitGroup
	for i := range s.Events {
		group.Go(func() {
			// In virtual time no two events are due at the same moment, so their order is the same in each run.
			if f.cfg.Settle != nil && !pause(ctx, betweenInstants+time.Duration(i)) {
				return
			}
			f.playEvent(ctx, p, &s.Events[i], rand.New(rand.NewPCG(s.Seed, uint64(i))), say)
		})
	}
	group.Wait()
	return ctx.Err()
}

// playEvent waits until the condition of an event is true, and then injects the event's fault as often as the event says.
func (f *Fleet) playEvent(ctx context.Context, p *playing, e *Event, random *rand.Rand, say func(Happening)) {
	defer f.plans(p, e, time.Time{})
	for {
		f.settle()
		if f.holds(e.When) {
			break
		}
		if !pause(ctx, conditionPace) {
			return
		}
	}
	wait := e.After
	for range e.Times {
		if e.Jitter > 0 {
			wait = max(0, wait+time.Duration(random.Int64N(2*int64(e.Jitter)+1))-e.Jitter).Truncate(time.Millisecond)
		}
		nodes := e.Nodes
		nodes.Seed = random.Uint64()
		f.plans(p, e, time.Now().Add(wait))
		if !pause(ctx, wait) {
			return
		}
		f.settle()
		h := Happening{Event: e.Name, Fault: e.Fault.Kind}
		in, err := f.InjectEach(nodes, e.Fault)
		if h.Injected = in; err != nil {
			h.Err = err.Error()
		}
		say(h)
		wait = e.Every
	}
}

func (f *Fleet) settle() {
	if f.cfg.Settle != nil {
		f.cfg.Settle()
	}
}

// holds reports whether a condition is true now. The zero Condition is true when all nodes have joined.
func (f *Fleet) holds(c Condition) bool {
	if c == (Condition{}) {
		return f.haveJoined()
	}
	s := f.Status()
	return s.Nodes.Ready >= c.NodesReady && s.Pods.Running >= c.PodsRunning
}
