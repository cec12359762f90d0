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

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/edge/heartbeat"
)

// Nodes accesses the Nodes of a cluster.
type Nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// LeaseRenewal renews another node's lease by hand.
type LeaseRenewal struct {
	Nodes  Nodes
	Leases heartbeat.LeaseAPI // the leases of the namespace kube-node-lease
	Node   string
	// Ready makes Run also write the conditions of a healthy node if the node's conditions differ. Without this, a node that
	// the control plane has marked Unknown stays Unknown, even with a new lease.
	Ready bool
	// Once renews once and returns.
	Once bool
	// Interval is the time between two renewals; 0: 10 s. Duration is how long a lease that Run creates is valid; 0: 40 s.
	Interval, Duration time.Duration
	Out                io.Writer

	uid  types.UID // the UID of the Node when it was last read
	last time.Time // the time of our last renewal; if the lease has a later time, another client has renewed it
}

// ErrUnknown means that a node is marked Unknown and that its lease alone does not change that.
var ErrUnknown = errors.New("the lease alone does not bring it back: add --ready to write its conditions too")

// Run renews the lease until ctx ends, or once if Once is set. It returns an error if the node does not exist, if the node is Unknown and
// Ready is not set, or if the API server refuses. After a temporary error it tries again.
func (l *LeaseRenewal) Run(ctx context.Context) error {
	if l.Interval <= 0 {
		l.Interval = 10 * time.Second
	}
	if l.Duration <= 0 {
		l.Duration = 40 * time.Second
	}
	lease := &heartbeat.Lease{
		API: l.Leases, Node: l.Node, Duration: l.Duration, ReadFirst: true, Found: l.notice,
		Owner: func(context.Context) (types.UID, error) { return l.uid, nil },
	}
	step := func(ctx context.Context) error { return l.step(ctx, lease) }
	if l.Once {
		return step(ctx)
	}
	return heartbeat.Pace(ctx, func() time.Duration { return l.Interval }, step, func(err error, pause time.Duration) error {
		if final(err) {
			return err
		}
		fmt.Fprintf(l.Out, "%s, trying again in %s\n", err, pause)
		return nil
	})
}

// final reports whether an error is permanent.
func final(err error) bool {
	return errors.Is(err, ErrUnknown) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err)
}

// step reads the node, renews its lease and, with Ready, writes its conditions.
func (l *LeaseRenewal) step(ctx context.Context, lease *heartbeat.Lease) error {
	node, err := l.Nodes.Get(ctx, l.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no node %s: kubectl get nodes: %w", l.Node, err)
	}
	if err != nil {
		return fmt.Errorf("get node %s: %w", l.Node, err)
	}
	ready := condition(node, v1.NodeReady)
	if ready.Status == v1.ConditionUnknown && !l.Ready {
		return fmt.Errorf("node %s is Unknown since %s (%s): %w", l.Node, ready.LastTransitionTime.UTC().Format(time.RFC3339), ready.Reason, ErrUnknown)
	}
	l.uid = node.UID
	if err := lease.Renew(ctx); err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", v1.NamespaceNodeLease, l.Node, err)
	}
	l.last = time.Now()
	fmt.Fprintf(l.Out, "%s lease of %s renewed for %s; Ready is %s\n", l.last.UTC().Format(time.RFC3339), l.Node, l.Duration, plain.Text(string(orNone(ready.Status))))
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

// notice prints a line if another client has renewed the lease since our last renewal.
func (l *LeaseRenewal) notice(lease *coordination.Lease) {
	if seen := lease.Spec.RenewTime; !l.last.IsZero() && seen != nil && seen.Time.After(l.last) {
		fmt.Fprintf(l.Out, "Somebody else renews the lease of %s too (at %s): its own agent may be back\n", l.Node, seen.UTC().Format(time.RFC3339))
	}
}

// healthy are the conditions that mend writes: those of a healthy node.
var healthy = []v1.NodeCondition{
	{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "written by wherry lease renew --ready, not measured"},
	{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "written by wherry lease renew --ready, not measured"},
	{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "written by wherry lease renew --ready, not measured"},
	{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "written by wherry lease renew --ready, not measured"},
}

// mend patches those conditions of a node that differ from healthy. It does not change a condition that other components
// write (NetworkUnavailable).
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
	// With the UID, the patch fails if the node has been replaced by a new node of the same name.
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
