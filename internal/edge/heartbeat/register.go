package heartbeat

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// register creates or adopts the Node, with a back-off of 200 ms doubling to 7 s. It returns false when ctx ended.
func (h *Heartbeat) register(ctx context.Context) bool {
	wait := backOffFirst
	for {
		err := h.tryRegister(ctx)
		if err == nil {
			h.said.well()
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		h.said.warn(h.explain(err))
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
		wait = min(2*wait, backOffMax)
	}
}

func (h *Heartbeat) tryRegister(ctx context.Context) error {
	res := h.cfg.Source.Initial(ctx)
	for _, p := range res.Problems {
		h.said.warn(p)
	}
	reqCtx, cancel := context.WithTimeout(ctx, h.cfg.StatusFrequency)
	defer cancel()
	nodes := h.cfg.Nodes
	h.cfg.reached(StageAttempt)
	node, err := nodes.Create(reqCtx, res.Node, metav1.CreateOptions{})
	if err == nil {
		h.cfg.reached(StageRegistered)
		h.created.Store(true) // before keep, which lets the renewal of the lease begin
		h.keep(node)
		h.record(res.Events)
		h.lastReport, h.reportDelay = time.Now(), h.spread()
		h.cfg.Log.Info("node registered")
		return nil
	}
	// If the agent may not create the Node, somebody else may have created it.
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("create node %s: %w", h.cfg.NodeName, err)
	}
	existing, getErr := nodes.Get(reqCtx, h.cfg.NodeName, metav1.GetOptions{})
	if getErr != nil {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("create node %s: %w", h.cfg.NodeName, err)
		}
		return fmt.Errorf("get node %s: %w", h.cfg.NodeName, getErr)
	}
	return h.adopt(reqCtx, res.Node, existing)
}

// adopt takes over an existing Node: it updates the fields that nodestatus.Reconcile changes, such as the default labels. If another
// machine has reported the Node, adopt logs a warning.
func (h *Heartbeat) adopt(ctx context.Context, wanted, existing *v1.Node) error {
	was, is := existing.Status.NodeInfo.MachineID, wanted.Status.NodeInfo.MachineID
	if was != "" && is != "" && was != is {
		h.cfg.Log.Warn("the Node was last reported by another machine: if that one still runs, two agents share one name and will undo each other's status; give one of them another name (--hostname-override)",
			"machineThen", was, "machineNow", is)
	}
	node, changed := nodestatus.Reconcile(wanted, existing, h.cfg.ZeroExtended)
	if !changed {
		h.keep(existing)
	} else if err := h.send(ctx, existing, nodestatus.Result{Node: node}); err != nil {
		return fmt.Errorf("adopt node %s: %w", h.cfg.NodeName, err)
	}
	h.lastReport = time.Time{} // the first round always reports
	h.cfg.Log.Info("node was registered before: adopted")
	return nil
}
