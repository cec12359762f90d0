package nodeshutdown

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// Bus is logind. Calls may be concurrent. After an error it is closed and another one is opened.
type Bus interface {
	// Shutdowns says that a shutdown begins (true) or is cancelled; it is closed when the connection ends.
	Shutdowns() <-chan bool
	// Preparing reports whether a shutdown has begun before.
	Preparing(ctx context.Context) (bool, error)
	// MaxDelay is how long a shutdown can be delayed; Delay makes it at least d.
	MaxDelay(ctx context.Context) (time.Duration, error)
	Delay(ctx context.Context, d time.Duration) error
	// Inhibit delays a shutdown until what it returns is closed.
	Inhibit(ctx context.Context) (io.Closer, error)
	Close() error
}

// Pods are the node's pods. Calls may be concurrent; none blocks.
type Pods interface {
	// Active are the pods that have not ended, static ones too.
	Active() []*v1.Pod
	// End begins the end of a pod. A pod that ends already gets the shorter grace period of the two.
	End(uid types.UID, why *decide.Stop)
	// Ended reports that nothing of the pod runs and nothing of it is mounted.
	Ended(uid types.UID) bool
	// Told reports that the API has the pod's end.
	Told(uid types.UID) bool
}

// Config configures a Watch.
type Config struct {
	Policy shutdown.Policy
	Open   func(context.Context) (Bus, error)
	Pods   Pods
	// Changed is called when Down has changed: the node's status is another one.
	Changed func()
	// Event records an event of the node.
	Event func(message string)
	Log   *slog.Logger
}

// Watch waits for shutdowns of the machine.
type Watch struct {
	cfg  Config
	down atomic.Bool
}

// New returns a Watch; it starts nothing.
func New(cfg Config) *Watch { return &Watch{cfg: cfg} }

// Down reports whether the machine is going down.
func (w *Watch) Down() bool { return w.down.Load() }

// longestWait bounds how long Run waits before it opens another bus.
const longestWait = time.Minute

// Run waits for shutdowns until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	for wait, last := time.Second, ""; ; wait = min(2*wait, longestWait) {
		began := time.Now()
		err := w.watch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != last {
			w.cfg.Log.Warn("the machine's shutdown does not wait for pods; trying again", "err", err)
		}
		if last = err.Error(); time.Since(began) > longestWait {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// callBound is how long all calls together may take that prepare for a shutdown.
const callBound = 30 * time.Second

// watch works on one bus, until it or ctx ends.
func (w *Watch) watch(ctx context.Context) (err error) {
	bus, err := w.cfg.Open(ctx)
	if err != nil {
		return err
	}
	s := &session{w: w, bus: bus}
	defer func() { err = errors.Join(err, s.close(), bus.Close()) }()
	underWay, err := s.prepare(ctx)
	if err != nil {
		return err
	}
	if underWay {
		s.begin(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ended:
			s.ended = nil
			w.cfg.Log.Info("the machine may go down: its pods have ended, or their time is over")
			if err := s.release(); err != nil {
				return err
			}
		case begins, ok := <-bus.Shutdowns():
			switch {
			case !ok:
				return errors.New("the connection to logind has ended")
			case begins:
				s.begin(ctx)
			default:
				if err := s.cancelled(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// set changes whether the machine goes down, and tells the node's status and events of it.
func (w *Watch) set(down bool, message string) {
	if w.down.Swap(down) == down {
		return
	}
	w.cfg.Log.Info(message)
	w.cfg.Event(message)
	w.cfg.Changed()
}
