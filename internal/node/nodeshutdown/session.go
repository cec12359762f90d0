package nodeshutdown

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// session is the state that is kept when a connection to logind breaks. Only the goroutine of Run uses it.
//
//	hold != nil: the next shutdown is delayed         ending != nil: a goroutine ends the pods, and has the Closer
//	      ──── logind says that a shutdown begins ──►
//	      ◄─── logind says that it is cancelled ─────  the pods have ended: the goroutine closes the Closer
type session struct {
	w *Watch
	// hold delays the machine's shutdown; nil: nothing delays it, or the goroutine that ends the pods has the Closer.
	hold   io.Closer
	ending *ending
}

// ending is the goroutine that ends the pods.
type ending struct {
	stop context.CancelFunc
	// done receives a value when the goroutine has ended: the Closer that still delays the machine if the goroutine was stopped,
	// otherwise nil.
	done chan io.Closer
}

// callBound is how long all calls to logind on a new connection may take together. askBound is how long the calls after one signal may
// take together.
const (
	callBound = 30 * time.Second
	askBound  = 5 * time.Second
)

// watch uses one connection to logind, until the connection or ctx ends.
func (s *session) watch(ctx context.Context) (err error) {
	bus, err := s.w.cfg.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	if err := s.prepare(ctx, bus); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case s.hold = <-s.done():
			s.ending = nil
		case _, ok := <-bus.Shutdowns():
			if !ok {
				return errors.New("the connection to logind has ended")
			}
			if err := s.follow(ctx, bus); err != nil {
				return err
			}
		}
	}
}

// done returns the channel that receives a value when the pods have ended, or their time is over.
func (s *session) done() <-chan io.Closer {
	if s.ending == nil {
		return nil
	}
	return s.ending.done
}

// prepare delays the next shutdown by as long as the policy says. A shutdown that has already begun cannot be delayed any more.
func (s *session) prepare(ctx context.Context, bus Bus) error {
	bounded, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	if underWay, err := s.ask(ctx, bounded, bus); err != nil || underWay {
		return err
	}
	whole := s.w.cfg.Policy.Whole()
	longest, err := bus.MaxDelay(bounded)
	if err != nil {
		return err
	}
	if longest < whole {
		if err := bus.Delay(bounded, whole); err != nil {
			return err
		}
	}
	if err := s.inhibit(bounded, bus); err != nil {
		return err
	}
	s.w.cfg.Log.Info("a shutdown of the machine waits for the node's pods", "longest", whole)
	return nil
}

// follow handles a signal from logind. It asks logind for the current state, because a signal may be late or may come from another
// program.
func (s *session) follow(ctx context.Context, bus Bus) error {
	bounded, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	if underWay, err := s.ask(ctx, bounded, bus); err != nil || underWay {
		return err
	}
	if s.hold != nil {
		return nil // the delay lock that the agent already holds also covers the next shutdown
	}
	return s.inhibit(bounded, bus)
}

// ask asks logind whether a shutdown is under way. If so, the pods begin to end; if not, no further pod is ended. bounded is for the
// call to logind, and ctx for the goroutine that ends the pods.
func (s *session) ask(ctx, bounded context.Context, bus Bus) (underWay bool, err error) {
	if underWay, err = bus.Preparing(bounded); err != nil {
		return false, err
	}
	if underWay {
		s.begin(ctx)
	} else {
		s.cancelled()
	}
	return underWay, nil
}

// inhibit delays the next shutdown, and then releases the delay of the earlier connection. In this order there is no moment without a
// delay.
func (s *session) inhibit(ctx context.Context, bus Bus) error {
	hold, err := bus.Inhibit(ctx)
	if err != nil {
		return err
	}
	s.w.release(s.hold)
	s.hold = hold
	return nil
}

// begin starts the goroutine that ends the pods and then lets the machine shut down. It starts at most one.
func (s *session) begin(ctx context.Context) {
	if s.ending != nil {
		return
	}
	s.w.set(true, shutdown.MessageBegan)
	ctx, stop := context.WithCancel(ctx)
	e, hold := &ending{stop: stop, done: make(chan io.Closer, 1)}, s.hold
	s.ending, s.hold = e, nil
	go func() {
		defer stop()
		kept := make(chan struct{})
		go func() { // beside the end of the pods, because they may keep the disk busy
			defer close(kept)
			s.w.keep()
		}()
		s.w.end(ctx)
		ended := ctx.Err() == nil
		if ended {
			s.w.finished.Store(time.Now().UnixNano())
			s.w.cfg.Log.Info("the machine may go down: its pods have ended, or their time is over")
			s.w.release(hold)
			hold = nil
		}
		if <-kept; ended { // the machine does not wait for the disk, but the end of the agent does
			s.w.keep()
		}
		e.done <- hold
	}()
}

// cancelled is called when logind says that no shutdown is under way. If the agent had begun to end pods for a shutdown, it ends no
// further pod. Otherwise nothing changes.
func (s *session) cancelled() {
	s.join()
	s.w.set(false, shutdown.MessageCancelled)
}

// join stops the goroutine that ends pods, and takes over the Closer that delays the machine.
func (s *session) join() {
	if s.ending == nil {
		return
	}
	s.ending.stop()
	s.hold = <-s.ending.done
	s.ending = nil
}

// close stops the goroutine that ends pods, and lets the machine shut down.
func (s *session) close() {
	s.join()
	s.w.release(s.hold)
	s.hold = nil
}

// release ends the delay of the machine's shutdown; nil: nothing delays it.
func (w *Watch) release(hold io.Closer) {
	if hold == nil {
		return
	}
	if err := hold.Close(); err != nil {
		w.cfg.Log.Warn("the delay of the machine's shutdown is not released", "err", err)
	}
}

// The shutdown waits for the last statuses of pods for the rest of the policy's time, but within these bounds. The shortest wait is
// enough for an API server that answers, and the longest limits the wait for one that is down.
const (
	leastForStatuses = time.Second
	mostForStatuses  = 10 * time.Second
)

// look is the period in which the Watch checks whether pods have ended.
const look = 50 * time.Millisecond
