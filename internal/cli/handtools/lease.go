package handtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// Nodes are the Nodes of a cluster.
type Nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// Leases are the Leases of one namespace.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordination.Lease, error)
	Create(ctx context.Context, l *coordination.Lease, opts metav1.CreateOptions) (*coordination.Lease, error)
	Update(ctx context.Context, l *coordination.Lease, opts metav1.UpdateOptions) (*coordination.Lease, error)
}

// LeaseRenewal is the renewal of another node's lease by hand.
type LeaseRenewal struct {
	Nodes  Nodes
	Leases Leases // of the namespace kube-node-lease
	Node   string
	// Ready also writes the node's conditions as a healthy node would, where they are not: the lease alone does not
	// bring back a node that the control plane has marked Unknown.
	Ready bool
	// Once renews once and returns.
	Once bool
	// Interval is the time between two renewals; 0: 10 s. Duration is what a lease made here claims; 0: 40 s.
	Interval, Duration time.Duration
	Out                io.Writer

	last time.Time // of our last renewal, to notice somebody else's
}

// ErrUnknown says that a node is marked Unknown and its lease alone will not change that.
var ErrUnknown = errors.New("the lease alone does not bring it back: add --ready to write its conditions too")

// Renewals that fail are tried again at once, then at growing distances, as a node does.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 7 * time.Second
)

// Run renews until ctx ends (or once). It returns an error where the node does not exist, where it is Unknown and Ready
// was not asked for, and where the API server refuses; what may pass is tried again.
func (l *LeaseRenewal) Run(ctx context.Context) error {
	if l.Interval <= 0 {
		l.Interval = 10 * time.Second
	}
	if l.Duration <= 0 {
		l.Duration = 40 * time.Second
	}
	pause := firstPause
	for {
		err := l.step(ctx)
		wait := l.Interval
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && l.Once:
			return nil
		case err == nil:
			pause = firstPause
		case l.Once || final(err):
			return err
		default:
			fmt.Fprintf(l.Out, "%s, trying again in %s\n", err, pause)
			wait, pause = pause, min(2*pause, mostPause)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// final reports whether trying again cannot help.
func final(err error) bool {
	return errors.Is(err, ErrUnknown) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err)
}

// step looks at the node, renews its lease and, where asked to, mends its conditions.
func (l *LeaseRenewal) step(ctx context.Context) error {
	node, err := l.Nodes.Get(ctx, l.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no node %s: kubectl get nodes: %w", l.Node, err)
	}
	if err != nil {
		return fmt.Errorf("look at node %s: %w", l.Node, err)
	}
	ready := condition(node, v1.NodeReady)
	if ready.Status == v1.ConditionUnknown && !l.Ready {
		return fmt.Errorf("node %s is Unknown since %s (%s): %w", l.Node, ready.LastTransitionTime.UTC().Format(time.RFC3339), ready.Reason, ErrUnknown)
	}
	if err := l.renew(ctx, node); err != nil {
		return err
	}
	fmt.Fprintf(l.Out, "%s lease of %s renewed for %s; Ready is %s\n", l.last.UTC().Format(time.RFC3339), l.Node, l.Duration, orNone(ready.Status))
	if !l.Ready {
		return nil
	}
	return l.mend(ctx, node)
}

func orNone(s v1.ConditionStatus) v1.ConditionStatus {
	if s == "" {
		return "not reported"
	}
	return s
}

func condition(n *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{Type: kind}
}

// renew writes the time into the node's lease, and makes the lease where there is none.
func (l *LeaseRenewal) renew(ctx context.Context, node *v1.Node) error {
	now := time.Now()
	lease, err := l.Leases.Get(ctx, l.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = nodestatus.NewLease(l.Node)
		nodestatus.RenewLease(lease, l.Node, node.UID, l.Duration, now)
		_, err = l.Leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		if seen := lease.Spec.RenewTime; !l.last.IsZero() && seen != nil && seen.Time.Sub(l.last) > time.Millisecond {
			fmt.Fprintf(l.Out, "Somebody else renews the lease of %s too (at %s): its own agent may be back\n", l.Node, seen.UTC().Format(time.RFC3339))
		}
		nodestatus.RenewLease(lease, l.Node, node.UID, l.Duration, now)
		_, err = l.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", v1.NamespaceNodeLease, l.Node, err)
	}
	l.last = now
	return nil
}

// healthy is what a healthy node says.
var healthy = []v1.NodeCondition{
	{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "written by wherry lease renew --ready, not measured"},
	{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "written by wherry lease renew --ready, not measured"},
	{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "written by wherry lease renew --ready, not measured"},
	{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "written by wherry lease renew --ready, not measured"},
}

// mend patches the conditions that are not a healthy node's. Conditions of others (NetworkUnavailable) stay as they are.
func (l *LeaseRenewal) mend(ctx context.Context, node *v1.Node) error {
	now := metav1.Now()
	var patch []v1.NodeCondition
	for _, want := range healthy {
		is := condition(node, want.Type)
		if is.Status == want.Status {
			continue
		}
		want.LastHeartbeatTime, want.LastTransitionTime = now, now
		patch = append(patch, want)
	}
	if len(patch) == 0 {
		return nil
	}
	// The UID makes sure that a node of the same name that came meanwhile is left alone.
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"status":   map[string]any{"conditions": patch},
	})
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	if _, err := l.Nodes.Patch(ctx, l.Node, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write conditions of node %s: %w", l.Node, err)
	}
	for _, c := range patch {
		fmt.Fprintf(l.Out, "%s of %s is %s now\n", c.Type, l.Node, c.Status)
	}
	return nil
}
