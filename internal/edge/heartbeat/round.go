package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// round computes the Node's status, and sends it if it has changed or a report is due. It makes at most 5 tries.
func (h *Heartbeat) round(ctx context.Context) {
	var err error
	for try := range tries {
		if err = h.try(ctx, try); err == nil || ctx.Err() != nil {
			h.said.well()
			return
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			h.gone.Store(apierrors.IsNotFound(err))
			break // the other tries would get the same answer
		}
		if try > 0 && !answered(err) {
			h.cfg.OnRepeatedFailure()
		}
	}
	h.said.warn(h.explain(err))
}

// answered reports whether an error is an answer of the API server, for example because a webhook refuses the request. Then the connection
// works, and to close it would only end the watches and requests of the whole node, in each round again. The answer Unauthorized does not
// count: the connection may have an old certificate of which there is a newer one on disk.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsUnauthorized(err)
}

func (h *Heartbeat) try(ctx context.Context, try int) error {
	base, err := h.base(ctx, try)
	if err != nil {
		return fmt.Errorf("get node %s: %w", h.cfg.NodeName, err)
	}
	cidrChanged := h.notice(ctx, base)
	due := time.Since(h.lastReport) >= h.cfg.ReportFrequency+h.reportDelay
	res := h.cfg.Source.Update(ctx, base, base == h.settled && !cidrChanged && !due)
	if err := ctx.Err(); err != nil {
		return err
	}
	if res.Node == nil { // nothing has changed
		h.cfg.Written(base)
		return nil
	}
	h.settled = nil
	for _, p := range res.Problems {
		h.said.warn(p)
	}
	changed := cidrChanged || nodestatus.Changed(&base.Status, &res.Node.Status) ||
		!equality.Semantic.DeepEqual(base.Labels, res.Node.Labels) || !equality.Semantic.DeepEqual(base.Annotations, res.Node.Annotations)
	if !changed && !due {
		if len(res.Problems) == 0 { // otherwise the next round must log them again
			h.settled = base
		}
		h.cfg.Written(base)
		return nil
	}
	// A random delay spreads the next reports, because nodes that changed or started at the same time would otherwise keep
	// reporting at the same time.
	delay := time.Duration(0)
	if changed || h.lastReport.IsZero() {
		delay = h.spread()
	}
	if err := h.send(ctx, base, res); err != nil {
		return err
	}
	h.reportDelay = delay
	return nil
}

// spread returns a random delay between minus and plus half a ReportFrequency.
func (h *Heartbeat) spread() time.Duration {
	return time.Duration(float64(h.cfg.ReportFrequency) * (h.cfg.Rand() - 0.5))
}

// base returns the Node to compute from. The first try takes it from a cache, unless NodeSince needs a fresh one; the
// others read it from etcd.
func (h *Heartbeat) base(ctx context.Context, try int) (*v1.Node, error) {
	options := metav1.GetOptions{}
	fresh := h.fresh.Swap(false)
	cached := try == 0 && !fresh
	justRead := h.justRead
	h.justRead = false
	if cached {
		if h.cfg.Cached != nil {
			if n := h.cfg.Cached(); n != nil {
				return h.known(n), nil
			}
		}
		if justRead {
			return h.Node(), nil
		}
		options.ResourceVersion = "0"
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StatusFrequency)
	defer cancel()
	began := time.Now()
	node, err := h.cfg.Nodes.Get(ctx, h.cfg.NodeName, options)
	if err != nil {
		if fresh {
			h.fresh.Store(true) // a fresh Node is still needed
		}
		return nil, err
	}
	if cached {
		return h.known(node), nil
	}
	h.keep(node)
	h.asked.Store(&began)
	return node, nil
}

// send sends the difference between base and res.Node to the API as a patch. If that succeeds, it records the events of the changes.
func (h *Heartbeat) send(ctx context.Context, base *v1.Node, res nodestatus.Result) error {
	patch, err := statusPatch(base, res.Node)
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", h.cfg.NodeName, err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.StatusFrequency)
	defer cancel()
	node, err := h.cfg.Nodes.Patch(ctx, h.cfg.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", h.cfg.NodeName, err)
	}
	h.lastReport = time.Now()
	h.keep(node)
	h.cfg.Written(node)
	h.record(res.Events)
	for _, e := range res.Events {
		h.cfg.Log.Info("node status changed", "event", e.Reason)
	}
	return nil
}
