package simulated

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Fault makes calls to a node's runtime fail, hang or take longer.
type Fault struct {
	// Method is the CRI method ("PullImage"); "": every method. With LoseEvents it has no meaning.
	Method string
	// Hang makes calls hang until the caller gives up. Delay makes calls take longer. Error makes calls fail with this
	// message, after Delay if both are set. LoseEvents drops the events of containers. Set one of Hang, Error and
	// LoseEvents, or only Delay.
	Hang       bool
	Delay      time.Duration
	Error      string
	LoseEvents bool
	// Chance is the probability for each call; 0: every call.
	Chance float64
}

// Check returns an error if the fault is not valid.
func (f *Fault) Check() error {
	kinds := 0
	for _, is := range []bool{f.Hang, f.Error != "", f.LoseEvents} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return errors.New("a fault of the runtime hangs, fails or loses events: choose one")
	case kinds == 0 && f.Delay <= 0:
		return errors.New("a fault of the runtime needs a delay, an error, a hang or lost events")
	case f.Delay < 0:
		return errors.New("the delay of a fault must not be negative")
	case f.Chance < 0 || f.Chance > 1:
		return errors.New("the chance of a fault is a number from 0 to 1")
	}
	return nil
}

// Inject makes the runtime misbehave until remove is called. remove may be called more than once.
func (n *Node) Inject(f Fault) (remove func(), err error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	fault := simcri.Fault{Method: f.Method, Effect: simcri.Slow, Delay: f.Delay, Chance: f.Chance}
	switch {
	case f.Hang:
		fault.Effect = simcri.Hang
	case f.LoseEvents:
		fault.Method = simcri.MethodEvent
	case f.Error != "":
		fault.Effect, fault.Err = simcri.Refuse, status.Error(codes.Unknown, f.Error)
	}
	return n.runtime.Inject(fault), nil
}
