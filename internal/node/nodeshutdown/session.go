package nodeshutdown

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// session is the work on one bus. It belongs to the goroutine of watch.
type session struct {
	w   *Watch
	bus Bus
	// hold delays the machine's shutdown; nil: nothing does.
	hold io.Closer
	// ended is closed when the pods have ended, or their time is over; nil: they do not end. stop ends the goroutine that ends them.
	ended chan struct{}
	stop  context.CancelFunc
}

// prepare delays the next shutdown by as long as the policy says. It reports whether one is under way, which cannot be delayed any more.
func (s *session) prepare(ctx context.Context) (underWay bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	if underWay, err = s.bus.Preparing(ctx); err != nil || underWay {
		return underWay, err
	}
	s.w.set(false, shutdown.MessageCancelled) // where the connection ended in a shutdown
	whole := s.w.cfg.Policy.Whole()
	longest, err := s.bus.MaxDelay(ctx)
	if err != nil {
		return false, err
	}
	if longest < whole {
		if err := s.bus.Delay(ctx, whole); err != nil {
			return false, err
		}
	}
	if s.hold, err = s.bus.Inhibit(ctx); err != nil {
		return false, err
	}
	s.w.cfg.Log.Info("a shutdown of the machine waits for the node's pods", "longest", whole)
	return false, nil
}

// begin ends the pods in a goroutine of its own, once.
func (s *session) begin(ctx context.Context) {
	if s.ended != nil {
		return
	}
	s.w.set(true, shutdown.MessageBegan)
	ctx, s.stop = context.WithCancel(ctx)
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		s.w.end(ctx)
	}()
}

// cancelled ends no further pod, and delays the next shutdown.
func (s *session) cancelled(ctx context.Context) error {
	s.join()
	s.w.set(false, shutdown.MessageCancelled)
	if s.hold != nil {
		return nil // it holds for the next one too
	}
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	var err error
	s.hold, err = s.bus.Inhibit(ctx)
	return err
}

// join ends the goroutine that ends pods.
func (s *session) join() {
	if s.ended == nil {
		return
	}
	s.stop()
	<-s.ended
	s.ended = nil
}

func (s *session) release() error {
	if s.stop != nil {
		s.stop()
	}
	if s.hold == nil {
		return nil
	}
	hold := s.hold
	s.hold = nil
	if err := hold.Close(); err != nil {
		return fmt.Errorf("release the delay of the shutdown: %w", err)
	}
	return nil
}

func (s *session) close() error {
	s.join()
	return s.release()
}

// The last statuses of pods are waited for in what is left of the policy's time: at least so long, since the API server mostly answers within
// it, and at most so long, since it may be down.
const (
	leastForStatuses = time.Second
	mostForStatuses  = 10 * time.Second
)

// look is how often it is looked whether pods have ended.
const look = 50 * time.Millisecond
