package heartbeat

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// renewLease keeps the node's Lease fresh until ctx ends, with the field's own controller: renewal every quarter of
// the duration with a jitter of 4 %, five tries, back-off from 200 ms to 7 s.
func (h *Heartbeat) renewLease(ctx context.Context) {
	// The lease needs the Node's UID, and a try that fails for want of it costs a whole interval. A registration that
	// takes longer must not let the lease of an earlier agent expire.
	select {
	case <-ctx.Done():
		return
	case <-h.seen:
	case <-time.After(backOffMax):
	}
	interval := time.Duration(float64(h.cfg.LeaseDuration) * leaseFraction)
	controller := lease.NewController(
		clock.RealClock{}, boundedClient{h.cfg.Client, h.cfg.LeaseDuration}, h.cfg.NodeName, int32(h.cfg.LeaseDuration/time.Second),
		h.cfg.OnRepeatedFailure, interval, h.cfg.NodeName, v1.NamespaceNodeLease,
		func(l *coordinationv1.Lease) error { return h.setOwner(ctx, l) },
	)
	// The controller logs to the logger of its context: the agent's own, not the process's.
	controller.Run(klog.NewContext(ctx, logr.FromSlogHandler(h.cfg.Log.Handler())))
}

// setOwner makes the Lease go with its Node. Until the Node is there a new lease waits, and an old one is renewed
// without.
func (h *Heartbeat) setOwner(ctx context.Context, l *coordinationv1.Lease) error {
	if len(l.OwnerReferences) > 0 {
		return nil
	}
	uid := h.uid()
	if uid == "" {
		ctx, cancel := context.WithTimeout(ctx, h.cfg.StatusFrequency)
		defer cancel()
		node, err := h.cfg.Client.CoreV1().Nodes().Get(ctx, h.cfg.NodeName, metav1.GetOptions{})
		switch {
		case err != nil && l.ResourceVersion != "":
			return nil
		case err != nil:
			return fmt.Errorf("get node %s to own its lease: %w", h.cfg.NodeName, err)
		}
		uid = node.UID
	}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: h.cfg.NodeName, UID: uid}}
	return nil
}

// boundedClient gives each request on a lease a deadline: one lost packet must not cost more than one lease.
type boundedClient struct {
	kubernetes.Interface
	within time.Duration
}

func (c boundedClient) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return boundedGroup{c.Interface.CoordinationV1(), c.within / 4}
}

type boundedGroup struct {
	coordinationclient.CoordinationV1Interface
	within time.Duration
}

func (g boundedGroup) Leases(namespace string) coordinationclient.LeaseInterface {
	return boundedLeases{g.CoordinationV1Interface.Leases(namespace), g.within}
}

type boundedLeases struct {
	coordinationclient.LeaseInterface
	within time.Duration
}

func (b boundedLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	return b.LeaseInterface.Get(ctx, name, o)
}

func (b boundedLeases) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	return b.LeaseInterface.Create(ctx, l, o)
}

func (b boundedLeases) Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	return b.LeaseInterface.Update(ctx, l, o)
}
