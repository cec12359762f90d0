package simcri

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Effect is the effect of an injected fault on a call.
type Effect uint8

const (
	// Refuse returns Fault.Err after Delay and does nothing else.
	Refuse Effect = iota
	// Hang does nothing and returns when the caller's context ends.
	Hang
	// Slow performs the call after Delay.
	Slow
	// Lost performs the call, and then returns Err after Delay; a negative Delay waits for the end of the caller's context. The
	// caller cannot know whether the call was performed.
	Lost
	// KeepName makes a creation fail like Refuse, and keeps the name reserved for Delay (negative: for ever), like a runtime that is
	// still cleaning up.
	KeepName
)

// MethodEvent is the value of Fault.Method for faults that lose events. Whatever the Effect of such a fault, the event is not sent.
const MethodEvent = "Event"

// methodDial names connections to pods among the methods. They are no CRI calls, so faults and latencies for every method ("") do not
// affect them.
const methodDial = "Dial"

// Fault makes calls fail or delays them.
type Fault struct {
	// Method is the name of a CRI method, MethodEvent, or "" for every CRI method.
	Method string
	// Pod and Container, if set, limit the fault to the pod and the container with this name. For PullImage, Container is the
	// image.
	Pod, Container string
	Effect         Effect
	// Err is the error to return. Default: Unknown, "injected fault".
	Err   error
	Delay time.Duration
	// Times is how many calls the fault affects; 0: all.
	Times int
	// Chance is the probability for each call; 0: always.
	Chance float64
}

// Inject adds a fault. The returned function removes it.
func (r *Runtime) Inject(f Fault) (remove func()) {
	if f.Err == nil {
		f.Err = status.Error(codes.Unknown, "injected fault")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &f
	r.faults = append(r.faults, p)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.dropFault(p)
	}
}

func (r *Runtime) dropFault(p *Fault) {
	for i, f := range r.faults {
		if f == p {
			r.faults = append(r.faults[:i:i], r.faults[i+1:]...)
			return
		}
	}
}

// target is the pod and the container of a call.
type target struct{ pod, container string }

// of names a method's call for this target. Random numbers follow from it and from the time, and not from a count of calls: pods that start at the
// same instant of virtual time call in any order. The time is in milliseconds, because the agent itself moves single nanoseconds (see package pleg).
func (t target) of(method string) string { return method + "/" + t.pod + "/" + t.container }

// fault returns the fault for this call, or nil. The caller holds the lock.
func (r *Runtime) fault(method string, t target) *Fault {
	for _, f := range r.faults {
		if (f.Method != method && (f.Method != "" || method == MethodEvent || method == methodDial)) ||
			(f.Pod != "" && f.Pod != t.pod) || (f.Container != "" && f.Container != t.container) {
			continue
		}
		if f.Chance > 0 {
			if r.chance("fault", t.of(method), time.Now().UnixMilli()) >= f.Chance {
				continue
			}
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				r.dropFault(f)
			}
		}
		return f
	}
	return nil
}

// around returns a time between -most and +most, by a number between 0 and 1. It is a number of milliseconds: see target.of.
func around(most time.Duration, chance float64) time.Duration {
	return time.Duration((2*chance - 1) * float64(most)).Truncate(time.Millisecond)
}

// enter begins a call: it counts the call, waits for its latency and applies its fault. If the error is nil, the caller
// performs the call and passes the fault to leave.
func (r *Runtime) enter(ctx context.Context, method string, of func() target) (*Fault, error) {
	r.mu.Lock()
	r.calls[method]++
	l, ok := r.cfg.Latency[method]
	if !ok && method != methodDial {
		l = r.cfg.Latency[""]
	}
	var t target
	if of != nil && (len(r.faults) > 0 || l.Jitter > 0) {
		t = of()
	}
	f := r.fault(method, t)
	r.mu.Unlock()
	wait := l.Mean
	if l.Jitter > 0 {
		wait += around(l.Jitter, r.chance("latency", t.of(method), time.Now().UnixMilli()))
	}
	wait = max(wait, 0)
	if f != nil && f.Effect != Lost && f.Effect != KeepName {
		wait += f.Delay
	}
	if f != nil && f.Effect == Hang {
		wait = -1
	}
	if err := pause(ctx, wait); err != nil {
		return nil, err
	}
	if err := r.processors.spend(ctx, r.cfg.CPU[method]); err != nil {
		return nil, err
	}
	if f != nil && f.Effect == Refuse {
		return nil, f.Err
	}
	return f, nil
}

// leave ends a call that was performed. It returns the answer or, if the fault is Lost, the fault's error after its delay.
func leave[T any](ctx context.Context, f *Fault, answer T) (T, error) {
	var none T
	if f == nil || f.Effect != Lost {
		return answer, nil
	}
	if err := pause(ctx, f.Delay); err != nil {
		return none, err
	}
	return none, f.Err
}

// seconds converts a CRI timeout into a duration. A timeout that does not fit becomes the longest duration.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

// pause waits for d; a negative d waits for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	_, err := pauseUntil(ctx, d, nil)
	return err
}

// pauseUntil waits as pause does. It returns early, with cut set, if the channel is closed before that.
func pauseUntil(ctx context.Context, d time.Duration, ended <-chan struct{}) (cut bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, status.FromContextError(err).Err()
	}
	if d == 0 {
		return false, nil
	}
	began := time.Now()
	var fired <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		fired = timer.C
	}
	select {
	case <-fired:
		return false, nil
	case <-ended: // if the channel closes just when d has passed, the pause counts as complete, as in the case above
		return d < 0 || time.Since(began) < d, nil
	case <-ctx.Done():
		return false, status.FromContextError(ctx.Err()).Err()
	}
}
