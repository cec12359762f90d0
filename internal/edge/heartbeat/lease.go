package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// keptLease is the loop that keeps the node's Lease fresh: "The kubelet updates the Lease object every 10 seconds (by default).
// Lease updates occur independently from updates to the Node's status. If the Lease update fails, the kubelet retries, using
// exponential backoff that starts at 200 milliseconds and is capped at 7 seconds."
type keptLease struct {
	h    *Heartbeat
	last *coordinationv1.Lease // as the API last answered; nil: not known
	said sayer
}

// errNoOwner: there is neither a lease nor a Node that a new one could belong to.
var errNoOwner = errors.New("the Node is not there yet")

// renewLease keeps the lease fresh until ctx ends.
func (h *Heartbeat) renewLease(ctx context.Context) {
	// A new lease belongs to the Node, by UID. A registration that takes longer must not let the lease of an earlier agent
	// expire.
	if !h.wait(ctx, backOffMax, h.seen) {
		return
	}
	k := &keptLease{h: h, said: sayer{log: h.cfg.Log}}
	interval := h.leaseInterval()
	for {
		k.beat(ctx)
		if !h.wait(ctx, interval+time.Duration(h.cfg.Rand()*leaseJitter*float64(interval)), nil) {
			return
		}
	}
}

func (h *Heartbeat) leaseInterval() time.Duration {
	return time.Duration(float64(h.cfg.LeaseDuration) * leaseFraction)
}

// wait returns true after d or when early is closed, and false when ctx has ended.
func (h *Heartbeat) wait(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
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

// beat renews the lease: five tries from what is known of it, else it is read or made anew first.
func (k *keptLease) beat(ctx context.Context) {
	if k.last != nil && k.update(ctx) {
		return
	}
	if made, ok := k.ensure(ctx); ok && !made {
		k.update(ctx)
	}
}

// ensure reads the lease, or makes it (made: it is fresh), for as long as that takes. Ok is false when ctx ended and when a lease
// cannot be made yet, for want of the Node.
func (k *keptLease) ensure(ctx context.Context) (made, ok bool) {
	for pause := backOffFirst; ; pause = min(2*pause, backOffMax) {
		made, err := k.readOrMake(ctx)
		switch {
		case err == nil:
			return made, true
		case errors.Is(err, errNoOwner):
			k.said.warn(fmt.Sprintf("the lease of node %s waits: %v", k.h.cfg.NodeName, err))
			return false, false
		case ctx.Err() != nil:
			return false, false
		}
		k.complain(err)
		if !k.h.wait(ctx, pause, nil) {
			return false, false
		}
	}
}

func (k *keptLease) readOrMake(ctx context.Context) (made bool, err error) {
	reqCtx, cancel := k.bounded(ctx)
	lease, err := k.h.cfg.Lease.Get(reqCtx, k.h.cfg.NodeName, metav1.GetOptions{})
	cancel()
	if err == nil {
		k.last = lease
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	lease = nodestatus.NewLease(k.h.cfg.NodeName)
	if err := k.fill(ctx, lease); err != nil {
		return false, fmt.Errorf("%w (%w)", errNoOwner, err)
	}
	reqCtx, cancel = k.bounded(ctx)
	defer cancel()
	if lease, err = k.h.cfg.Lease.Create(reqCtx, lease, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	k.last = lease
	return true, nil
}

// update writes the time into the lease, in at most five tries. A lease that another changed or deleted is read again or made
// anew. Repeated failure closes the connections: they may lead to a server that is gone.
func (k *keptLease) update(ctx context.Context) bool {
	var err error
	for try := range tries {
		next := k.last.DeepCopy()
		// An old lease is renewed also where its Node is not there.
		_ = k.fill(ctx, next)
		reqCtx, cancel := k.bounded(ctx)
		var lease *coordinationv1.Lease
		lease, err = k.h.cfg.Lease.Update(reqCtx, next, metav1.UpdateOptions{})
		cancel()
		if err == nil {
			k.last = lease
			k.said.well()
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			if made, ok := k.ensure(ctx); !ok || made {
				return ok
			}
			continue
		}
		if try > 0 {
			k.h.cfg.OnRepeatedFailure()
		}
	}
	k.complain(err)
	return false
}

// fill says in a lease who holds it, since when and for how long, and makes it go with its Node. It fails where the Node is
// not known; the rest is filled then too.
func (k *keptLease) fill(ctx context.Context, lease *coordinationv1.Lease) error {
	h := k.h
	uid := h.uid()
	now := time.Now()
	nodestatus.RenewLease(lease, h.cfg.NodeName, uid, h.cfg.LeaseDuration, now)
	if len(lease.OwnerReferences) == 0 {
		ctx, cancel := context.WithTimeout(ctx, h.cfg.StatusFrequency)
		defer cancel()
		node, err := h.cfg.Nodes.Get(ctx, h.cfg.NodeName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get node %s to own its lease: %w", h.cfg.NodeName, err)
		}
		nodestatus.RenewLease(lease, h.cfg.NodeName, node.UID, h.cfg.LeaseDuration, now)
	}
	return nil
}

func (k *keptLease) complain(err error) {
	why := k.h.explain(err)
	if apierrors.IsNotFound(err) { // of the lease or its namespace, not of the Node
		why = err.Error() + ". Trying again"
	}
	k.said.warn("keep the lease of node " + k.h.cfg.NodeName + ": " + why)
}

// bounded gives a request a deadline: one lost packet must not cost more than one lease.
func (k *keptLease) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.h.leaseInterval())
}
