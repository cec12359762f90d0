package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// Lease renews the Lease of one node. One goroutine at a time may use it.
type Lease struct {
	API      LeaseAPI
	Node     string
	Duration time.Duration
	// Owner returns the UID of the Node, which becomes the owner of a lease without one.
	Owner func(context.Context) (types.UID, error)
	// Timeout bounds one request; 0: only the context bounds it.
	Timeout time.Duration
	// OnRepeatedFailure closes the client's connections, because they may lead to a server that is gone. Optional.
	OnRepeatedFailure func()
	// ReadFirst makes Renew read the lease before each renewal, because others may renew it, too. Without it, Renew
	// reads the lease only after a failure.
	ReadFirst bool
	// CreateFirst makes the first Renew create the lease without reading it, because the Node is new and so probably has no lease. If there
	// is one, Renew reads it then.
	CreateFirst bool
	// Found gets each lease that was read, before it is renewed. Optional.
	Found func(*coordinationv1.Lease)
	// Clock is the node's clock, for the times in the lease.
	Clock nodeclock.Clock

	last *coordinationv1.Lease // the newest answer of the API; nil: there is none
}

// errNoOwner means that the lease was not created, because the Node, which must own the lease, does not exist yet.
var errNoOwner = errors.New("the Node does not exist yet")

// Renew writes the time into the lease. If the lease is not known, or if another component changed or deleted it, Renew
// first reads or creates it.
func (l *Lease) Renew(ctx context.Context) error {
	if l.ReadFirst {
		l.last = nil
	}
	if l.last != nil && l.update(ctx) == nil {
		return nil
	}
	made, err := l.readOrMake(ctx)
	if made || err != nil {
		return err
	}
	return l.update(ctx)
}

// known reports whether l.last has the newest lease of the API. After a failed Renew, that means that the lease could be read.
func (l *Lease) known() bool { return l.last != nil }

// update writes the time into the lease, in at most five tries. If another component changed or deleted the lease,
// update reads or creates it again. If repeatedly no server answers, it closes the connections, because they may lead to a server that is gone.
func (l *Lease) update(ctx context.Context) error {
	var err error
	for try := range tries {
		if err = l.write(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			if made, err := l.readOrMake(ctx); made || err != nil {
				return err
			}
			continue
		}
		if try > 0 && !answered(err) && l.OnRepeatedFailure != nil {
			l.OnRepeatedFailure()
		}
	}
	return err
}

func (l *Lease) write(ctx context.Context) error {
	next := new(*l.last)  // fill writes only fields of next itself, and nothing that they refer to
	_ = l.fill(ctx, next) // an existing lease is renewed even if its Node is missing
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	lease, err := l.API.Update(ctx, next, metav1.UpdateOptions{})
	if err == nil {
		l.last = lease
	}
	return err
}

// readOrMake reads the lease, or creates it if it does not exist. made is true after a creation: the new lease then needs no renewal.
func (l *Lease) readOrMake(ctx context.Context) (made bool, err error) {
	l.last = nil
	if l.CreateFirst {
		if err := l.create(ctx); !apierrors.IsAlreadyExists(err) {
			return err == nil, err
		}
		l.CreateFirst = false
	}
	reqCtx, cancel := l.bounded(ctx)
	lease, err := l.API.Get(reqCtx, l.Node, metav1.GetOptions{})
	cancel()
	if err == nil {
		l.last = lease
		if l.Found != nil {
			l.Found(lease)
		}
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	err = l.create(ctx)
	return err == nil, err
}

// create creates the lease, which is its first renewal.
func (l *Lease) create(ctx context.Context) error {
	lease := nodestatus.NewLease(l.Node)
	if err := l.fill(ctx, lease); err != nil {
		return fmt.Errorf("%w (%w)", errNoOwner, err)
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	lease, err := l.API.Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	l.last, l.CreateFirst = lease, false
	return nil
}

// fill writes holder, time, duration and owner into a lease. If the Node is not known, it writes all but the owner and returns an
// error.
func (l *Lease) fill(ctx context.Context, lease *coordinationv1.Lease) (err error) {
	uid, now := types.UID(""), l.Clock.Shows(time.Now())
	if len(lease.OwnerReferences) == 0 {
		uid, err = l.Owner(ctx)
	}
	nodestatus.RenewLease(lease, l.Node, uid, l.Duration, now)
	return err
}

// bounded gives a request a deadline, so that one lost packet costs at most one renewal.
func (l *Lease) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, l.Timeout)
}

// Pace calls beat until ctx ends, and then returns nil. It calls beat once per interval, which is computed anew each time. After a
// failure of beat it waits a back-off, which starts at 200 ms and grows to 7 s. Before this wait it calls failed with the error and
// the length of the wait. If failed returns an error, Pace returns this error.
func Pace(ctx context.Context, interval func() time.Duration, beat func(context.Context) error, failed func(err error, pause time.Duration) error) error {
	for pause := backOffFirst; ; {
		err := beat(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var wait time.Duration
		if err == nil {
			wait, pause = interval(), backOffFirst
		} else {
			if err := failed(err, pause); err != nil {
				return err
			}
			wait, pause = pause, min(2*pause, backOffMax)
		}
		if !sleep(ctx, wait, nil) {
			return nil
		}
	}
}

// sleep returns true after d or when early is closed, and false if ctx has ended.
func sleep(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-early:
	case <-t.C:
	}
	return true
}
