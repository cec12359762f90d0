package simulated

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wherry-node/wherry/internal/core/crimethod"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Fault makes calls to a node's runtime fail, hang or take longer.
type Fault struct {
	// Method is the CRI method ("PullImage"); "": every method. With LoseEvents it has no meaning.
	Method string
	// Hang makes calls hang until the caller gives up. Delay makes calls take longer. Error makes calls fail with this
	// message, after Delay if both are set. LoseEvents drops the events of containers. LoseAnswer lets the runtime perform
	// calls, and then makes them fail with Error, after Delay; without Error they hang until the caller gives up. Set one of
	// Hang, Error, LoseEvents and LoseAnswer, or LoseAnswer with Error, or only Delay.
	Hang       bool
	Delay      time.Duration
	Error      string
	LoseEvents bool
	LoseAnswer bool
	// Code is the gRPC code of Error, such as "Unavailable" or "NOT_FOUND"; "": Unknown.
	Code string
	// Chance is the probability for each call; 0: every call.
	Chance float64
}

// maxError bounds Fault.Error in bytes: a call returns it in its trailers.
const maxError = 4096

// CheckMethod returns an error if method is neither "" nor a method of CRI. A fault or a latency of such a method would do nothing.
func CheckMethod(method string) error {
	if method == "" {
		return nil
	}
	return crimethod.Check(method)
}

// Check returns an error if the fault is not valid, a *FieldError if a single field is wrong. It does not check Method, because the fault may be for a
// real runtime, which has methods of its own: for a simulated runtime see CheckMethod.
func (f *Fault) Check() error {
	kinds := 0
	for _, is := range []bool{f.Hang, f.Error != "" && !f.LoseAnswer, f.LoseEvents, f.LoseAnswer} {
		if is {
			kinds++
		}
	}
	_, known := codeOf(f.Code)
	switch {
	case kinds > 1:
		return errors.New("a fault of the runtime hangs, fails, loses answers or loses events: choose one")
	case kinds == 0 && f.Delay <= 0:
		return errors.New("a fault of the runtime needs a delay, an error, a hang, lost answers or lost events")
	case f.Code != "" && f.Error == "":
		return wrong("code", "it is the code of an error: set the error too")
	case !known:
		return wrong("code", fmt.Sprintf("%.100q is no code of an error of gRPC: use for example Unavailable or NotFound", f.Code))
	case f.Delay < 0:
		return wrong("delay", "a call cannot end before it began")
	case len(f.Error) > maxError:
		return wrong("error", fmt.Sprintf("use at most %d bytes", maxError))
	case !(f.Chance >= 0 && f.Chance <= 1): // NaN is no chance either
		return wrong("chance", "use a number from 0 to 1")
	}
	return nil
}

// Err returns the gRPC error with which the fault makes calls fail; nil: it has none.
func (f *Fault) Err() error {
	if f.Error == "" {
		return nil
	}
	code, _ := codeOf(f.Code)
	return status.Error(code, f.Error)
}

// codeOf returns the gRPC code with this name, in any of its spellings: NotFound, NOT_FOUND. OK is no code of an error.
func codeOf(name string) (c codes.Code, known bool) {
	name = strings.ReplaceAll(name, "_", "")
	if name == "" {
		return codes.Unknown, true
	}
	if strings.EqualFold(name, "cancelled") {
		return codes.Canceled, true
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if strings.EqualFold(c.String(), name) {
			return c, true
		}
	}
	return codes.Unknown, false
}

// Inject makes the runtime misbehave until remove is called. remove may be called more than once.
func (n *Node) Inject(f Fault) (remove func(), err error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if err := CheckMethod(f.Method); err != nil && !f.LoseEvents {
		return nil, err
	}
	fault := simcri.Fault{Method: f.Method, Effect: simcri.Slow, Delay: f.Delay, Chance: f.Chance}
	switch {
	case f.Hang:
		fault.Effect = simcri.Hang
	case f.LoseEvents:
		fault.Method = simcri.MethodEvent
	case f.LoseAnswer:
		fault.Effect, fault.Err = simcri.Lost, f.Err()
		if f.Error == "" {
			fault.Delay = -1 // until the caller gives up
		}
	case f.Error != "":
		fault.Effect, fault.Err = simcri.Refuse, f.Err()
	}
	return n.runtime.Inject(fault), nil
}
