package criproxy

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Effect is what a fault does to a call.
type Effect uint8

const (
	// Slow forwards the call after Fault.Delay.
	Slow Effect = iota
	// Refuse answers the call with Fault.Err, after Fault.Delay. The call does not reach the runtime.
	Refuse
	// Hang holds the call until the client gives up. If the fault ends before that, the call is forwarded.
	Hang
	// LoseAnswer forwards the call and drops its answer. The client gets Fault.Err after Fault.Delay. If Err is nil, the client gets nothing
	// until it gives up, or Unavailable when the fault ends. Of a stream, the first message counts as the answer.
	LoseAnswer
	// LoseEvents drops events of containers from the streams of GetContainerEvents, also from streams that are open already.
	LoseEvents
)

// Fault makes a runtime misbehave.
type Fault struct {
	// Method is the name of a CRI method ("PullImage"), SERVICE/METHOD, or "" for every method of CRI. LoseEvents does not use it.
	Method string
	Effect Effect
	Err    error
	Delay  time.Duration
	// Chance is the probability for each call, or for each event; 0: always. The same Seed gives the same calls.
	Chance float64
	Seed   uint64
	// For is how long the fault lasts; 0: until Heal.
	For time.Duration
}

const (
	// maxFaults bounds the faults that are active at the same time.
	maxFaults = 100
	// maxError bounds the text of an error in bytes: it is sent in the trailers of a call.
	maxError = 4096
)

// check returns an error if the fault is not valid.
func (f *Fault) check() error {
	switch {
	case f.Effect > LoseEvents:
		return fmt.Errorf("effect %d does not exist", f.Effect)
	case f.Effect == Refuse && f.Err == nil:
		return errors.New("a fault that refuses calls needs an error")
	case f.Err != nil && len(status.Convert(f.Err).Message()) > maxError:
		return fmt.Errorf("the error of a fault has at most %d bytes", maxError)
	case f.Delay < 0 || f.For < 0:
		return errors.New("the times of a fault must not be negative")
	case !(f.Chance >= 0 && f.Chance <= 1):
		return errors.New("the chance of a fault is a number from 0 to 1")
	}
	return CheckMethod(f.Method)
}

// String says what the fault does, for people.
func (f *Fault) String() string {
	what := f.Method
	if what == "" {
		what = "every call"
	}
	switch f.Effect {
	case Slow:
		what += " takes " + f.Delay.String() + " longer"
	case Refuse:
		what += " fails" + after(f.Delay) + ": " + cut(f.Err.Error())
	case Hang:
		what += " hangs"
	case LoseAnswer:
		what += " loses its answer"
		if f.Err != nil {
			what += after(f.Delay) + ": " + cut(f.Err.Error())
		}
	case LoseEvents:
		what = "events are lost"
	}
	if f.Chance > 0 {
		what += fmt.Sprintf(", with the chance %g", f.Chance)
	}
	return what
}

func after(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return " after " + d.String()
}

// cut bounds the text of an error for people.
func cut(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// active is a fault that is active now. The proxy's lock guards hits and met.
type active struct {
	Fault
	text         string
	since, until time.Time     // until is zero: until Heal
	ended        chan struct{} // closed when the fault ends
	healed       chan struct{} // closed when Heal ends the fault
	timer        *time.Timer   // ends the fault; nil: only Heal does
	hits         int           // how many calls or events it has affected
	met          map[string]uint64
}

// Inject makes a fault active. It returns a text about the fault.
func (p *Proxy) Inject(f Fault) (string, error) {
	if err := f.check(); err != nil {
		return "", err
	}
	f.Method, _ = nameOf(f.Method)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) >= maxFaults {
		return "", fmt.Errorf("%d faults are active already: heal some first", maxFaults)
	}
	a := &active{
		Fault: f, text: f.String(), since: time.Now(), ended: make(chan struct{}), healed: make(chan struct{}), met: map[string]uint64{},
	}
	if f.For > 0 {
		a.until = a.since.Add(f.For)
		a.timer = time.AfterFunc(f.For, func() { p.expire(a) })
	}
	p.faults = append(p.faults, a)
	p.cfg.Log.Info("a fault begins", "fault", a.text, "for", f.For)
	return a.text, nil
}

// expire ends a fault whose time is over.
func (p *Proxy) expire(a *active) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.faults, a); i >= 0 {
		p.end(i)
	}
}

// Heal ends the faults of a method, or all faults if method is "". It returns the texts about them. Calls that the faults hold go on at
// once.
func (p *Proxy) Heal(method string) ([]string, error) {
	if err := CheckMethod(method); err != nil {
		return nil, err
	}
	name, _ := nameOf(method)
	p.mu.Lock()
	defer p.mu.Unlock()
	var texts []string
	for i := 0; i < len(p.faults); {
		a := p.faults[i]
		if method != "" && a.Method != name {
			i++
			continue
		}
		close(a.healed)
		p.end(i)
		texts = append(texts, a.text)
	}
	return texts, nil
}

// end ends the active fault with index i. The caller holds the lock.
func (p *Proxy) end(i int) {
	a := p.faults[i]
	p.faults = slices.Delete(p.faults, i, i+1)
	close(a.ended)
	if a.timer != nil {
		a.timer.Stop()
	}
	p.cfg.Log.Info("a fault ends", "fault", a.text, "hits", a.hits)
}

// choose returns the fault that affects a call of a method; nil: none does. counted is the name under which the call is counted. The caller
// holds the lock.
func (p *Proxy) choose(method, counted string, ofCRI bool) *active {
	for _, a := range p.faults {
		if a.Effect == LoseEvents || a.Method != method && (a.Method != "" || !ofCRI) || !a.strikes(counted) {
			continue
		}
		a.hits++
		return a
	}
	return nil
}

// losesEvent reports whether a fault drops the next event of containers.
func (p *Proxy) losesEvent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.faults {
		if a.Effect == LoseEvents && a.strikes(methodEvents) {
			a.hits++
			p.eventsLost++
			return true
		}
	}
	return false
}

// strikes reports whether the chance of the fault hits the next call of a method. The caller holds the lock.
func (a *active) strikes(method string) bool {
	if a.Chance == 0 {
		return true
	}
	n := a.met[method]
	a.met[method]++
	return draw(a.Seed, method, n) < a.Chance
}

// draw returns a number from 0 to 1 for the call with number n of a method. The same arguments give the same number.
func draw(seed uint64, method string, n uint64) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(method))
	return rand.New(rand.NewPCG(seed^h.Sum64(), n)).Float64()
}

// hold makes a call wait as its fault says. healed: the fault has ended before the wait was over. The error is that of ctx.
func (a *active) hold(ctx context.Context) (healed bool, err error) {
	var over <-chan time.Time
	released := a.healed
	if a.Effect == Hang || a.Effect == LoseAnswer && a.Err == nil {
		released = a.ended
	} else {
		if a.Delay == 0 {
			return false, nil
		}
		t := time.NewTimer(a.Delay)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return false, nil
	case <-released:
		return true, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}

// lost returns the error that replaces an answer, after the wait of the fault.
func (a *active) lost(ctx context.Context) error {
	if _, err := a.hold(ctx); err != nil {
		return err
	}
	if a.Err != nil {
		return a.Err
	}
	return status.Error(codes.Unavailable, "the answer of the runtime was lost (injected fault)")
}
