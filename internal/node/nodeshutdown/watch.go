package nodeshutdown

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// Bus is a connection to logind. Calls may be concurrent. After an error the Watch closes it and opens another one.
type Bus interface {
	// Shutdowns returns a channel that gets a value when a shutdown has begun or was cancelled; Preparing says which. The channel is
	// closed when the connection ends.
	Shutdowns() <-chan struct{}
	// Preparing reports whether a shutdown is under way.
	Preparing(ctx context.Context) (bool, error)
	// MaxDelay returns how long logind lets programs delay a shutdown. Delay raises this limit to at least d.
	MaxDelay(ctx context.Context) (time.Duration, error)
	Delay(ctx context.Context, d time.Duration) error
	// Inhibit delays a shutdown until the returned Closer is closed.
	Inhibit(ctx context.Context) (io.Closer, error)
	Close() error
}

// Pods are the node's pods. Calls may be concurrent; none blocks.
type Pods interface {
	// Known reports whether every source has said which pods there are. An agent that has just started may not know them yet.
	Known() bool
	// Active returns the pods that have not ended, static pods too.
	Active() []*v1.Pod
	// End begins the end of a pod. A pod that is already ending gets the shorter grace period of the two.
	End(uid types.UID, why *decide.Stop)
	// Ended reports whether the pod has ended: nothing of it runs, and nothing of it is mounted.
	Ended(uid types.UID) bool
	// Reported reports whether the API server has the pod's last status.
	Reported(uid types.UID) bool
}

// Config configures a Watch.
type Config struct {
	Policy shutdown.Policy
	Open   func(context.Context) (Bus, error)
	Pods   Pods
	// Changed is called when Down has changed, so that the node's status is written.
	Changed func()
	// Event records an event of the node.
	Event func(message string)
	// File keeps the times of the last shutdown for the agent that starts after it, in the format of upstream's kubelet; "": nothing keeps them.
	File string
	Log  *slog.Logger
}

// Watch ends the node's pods when the machine shuts down.
type Watch struct {
	cfg  Config
	down atomic.Bool

	// These are the times of the last shutdown, in nanoseconds since the epoch; 0: there was none.
	began, finished atomic.Int64
}

// New returns a Watch; it starts nothing.
func New(cfg Config) *Watch { return &Watch{cfg: cfg} }

// Down reports whether the machine is going down.
func (w *Watch) Down() bool { return w.down.Load() }

// longestWait is the longest time that Run waits before it opens another connection.
const longestWait = time.Minute

// Run waits for shutdowns until ctx ends. If the connection ends during a shutdown, the machine still waits for the pods, and
// they continue to end.
func (w *Watch) Run(ctx context.Context) error {
	w.load()
	s := &session{w: w}
	defer s.close()
	for wait, last := time.Second, ""; ; wait = min(2*wait, longestWait) {
		began := time.Now()
		err := s.watch(ctx)
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

// set records whether the machine is going down, records an event, and calls Changed.
func (w *Watch) set(down bool, message string) {
	if w.down.Swap(down) == down {
		return
	}
	if down {
		w.began.Store(time.Now().UnixNano())
		w.finished.Store(0)
	}
	w.cfg.Log.Info(message)
	w.cfg.Event(message)
	w.cfg.Changed()
}
