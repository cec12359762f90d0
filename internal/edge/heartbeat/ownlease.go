package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// renewLease renews the lease until ctx ends.
func (h *Heartbeat) renewLease(ctx context.Context) {
	// A new lease names the Node's UID as owner, so the loop waits for the Node. It waits only for a moment, because during a
	// slow registration the lease of an earlier agent must not expire.
	if !sleep(ctx, backOffMax, h.seen) {
		return
	}
	every := h.leaseInterval()
	lease := &Lease{
		API: h.cfg.Lease, Node: h.cfg.NodeName, Duration: h.cfg.LeaseDuration, Owner: h.owner, Timeout: every, OnRepeatedFailure: h.cfg.OnRepeatedFailure,
		CreateFirst: h.created.Load(), Clock: h.cfg.Clock,
	}
	said := sayer{log: h.cfg.Log}
	interval := func() time.Duration { return every + time.Duration(h.cfg.Rand()*leaseJitter*float64(every)) }
	beat := func(ctx context.Context) error { return h.beat(ctx, lease, &said) }
	_ = Pace(ctx, interval, beat, func(error, time.Duration) error { return nil }) // beat has logged the error
}

// beat renews the lease once and logs a failure. It returns an error if the caller should wait a back-off before the next call. If the
// lease is known or waits for its Node, beat returns nil, and the next renewal comes after the usual interval.
func (h *Heartbeat) beat(ctx context.Context, lease *Lease, said *sayer) error {
	err := lease.Renew(ctx)
	switch {
	case err == nil:
		said.well()
		h.renewed.Store(time.Now().UnixNano())
		return nil
	case ctx.Err() != nil:
		return err
	case errors.Is(err, errNoOwner):
		said.warn(fmt.Sprintf("the lease of node %s waits: %v", h.cfg.NodeName, err))
		return nil
	}
	why := h.explain(err)
	if apierrors.IsNotFound(err) { // the lease or its namespace is missing, not the Node
		why = err.Error() + ". Trying again"
	}
	said.warn("keep the lease of node " + h.cfg.NodeName + ": " + why)
	if lease.known() {
		return nil
	}
	return err
}

// owner returns the UID of the Node, which it reads if the status loop has not seen the Node yet, or if the Node was deleted: the garbage
// collector deletes a lease whose owner does not exist.
func (h *Heartbeat) owner(ctx context.Context) (types.UID, error) {
	if uid := h.uid(); uid != "" && !h.gone.Load() {
		return uid, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StatusFrequency)
	defer cancel()
	node, err := h.cfg.Nodes.Get(ctx, h.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get node %s to own its lease: %w", h.cfg.NodeName, err)
	}
	return node.UID, nil
}

func (h *Heartbeat) leaseInterval() time.Duration {
	return time.Duration(float64(h.cfg.LeaseDuration) * leaseFraction)
}
