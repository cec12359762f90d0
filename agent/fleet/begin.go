package fleet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// begin does what must succeed before the first node joins.
func (f *Fleet) begin(ctx context.Context) error {
	left, err := f.preflight(ctx)
	switch {
	case err != nil:
		return err
	case f.shard != nil:
		err = f.shard.join(ctx, left)
	default:
		err = f.notRunning(ctx, left)
	}
	if err != nil {
		return err
	}
	if f.access != nil {
		err = f.access.open(ctx)
	}
	if err == nil {
		err = f.openStorage(ctx)
	}
	if err == nil {
		err = f.openServing(ctx)
	}
	if err != nil && f.shard != nil {
		f.shard.leave(context.WithoutCancel(ctx)) // also if ctx has ended: otherwise a process of this name has to wait until the lease has run out
	}
	return err
}

// preflight returns an error if the fleet cannot join the cluster: a Node of another owner has one of its names, or the nodes cannot be
// impersonated. left are the Nodes of the fleet that the cluster has.
func (f *Fleet) preflight(ctx context.Context) (left []string, err error) {
	f.mu.Lock()
	names := f.roster.names
	f.mu.Unlock()
	err = eachPage(func(opts metav1.ListOptions) (string, error) {
		list, err := f.api.Nodes().List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the nodes of the cluster: %w", err)
		}
		for i := range list.Items {
			n := &list.Items[i]
			switch own := n.Labels[LabelFleet] == f.cfg.Name; {
			case own:
				left = append(left, n.Name)
			case names[n.Name]:
				return "", fmt.Errorf("the cluster has a node %s that is not of this fleet: choose another name for the fleet, or another nodeName", n.Name)
			}
		}
		return list.Continue, nil
	})
	if err == nil && f.cfg.Identity == Impersonate {
		err = f.mayImpersonate(ctx)
	}
	return left, err
}

// fresh is the maximum age of a lease renewal that shows that the node runs.
const fresh = 15 * time.Second

// notRunning returns an error if another process runs the fleet: if one of the first three of these nodes renewed its lease recently.
func (f *Fleet) notRunning(ctx context.Context, nodes []string) error {
	for _, name := range nodes[:min(3, len(nodes))] {
		l, err := f.api.Leases(v1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil || l.Spec.RenewTime == nil {
			continue // without a renewed lease the node does not run
		}
		age := time.Since(l.Spec.RenewTime.Time)
		if age < -time.Second { // the clock of the node was ahead (FaultClock), so the time says nothing
			again, err := f.renewsAgain(ctx, l)
			if err != nil {
				return err
			}
			if !again {
				continue
			}
			age = 0
		}
		if age < fresh {
			return fmt.Errorf("the fleet %s runs already: node %s renewed its lease %s ago: choose another name, or wait %s if that process was killed",
				f.cfg.Name, name, age.Round(time.Second), fresh)
		}
	}
	return nil
}

// renewsAgain reports whether somebody renews a lease within the time in which a node that runs does.
func (f *Fleet) renewsAgain(ctx context.Context, l *coordinationv1.Lease) (bool, error) {
	for end := time.Now().Add(renewsWithin(l)); time.Now().Before(end); {
		if !pause(ctx, time.Second) {
			return false, ctx.Err()
		}
		now, err := f.api.Leases(v1.NamespaceNodeLease).Get(ctx, l.Name, metav1.GetOptions{})
		if err == nil && !now.Spec.RenewTime.Equal(l.Spec.RenewTime) {
			return true, nil
		}
	}
	return false, nil
}

// mayImpersonate returns an error if the user of the fleet may not impersonate its nodes.
func (f *Fleet) mayImpersonate(ctx context.Context) error {
	g := &f.cfg.Groups[0]
	probe := f.newLink(g.nodeName(f.cfg.Name, 1), nil)
	c, err := newClient(&rest.Config{Host: f.host, Transport: probe}, nil)
	if err != nil {
		return err
	}
	opts := metav1.ListOptions{FieldSelector: "metadata.name=" + g.nodeName(f.cfg.Name, 1), Limit: 1}
	if _, err := c.Nodes().List(ctx, opts); err != nil {
		return fmt.Errorf("act as a node: %w: this user needs the right to impersonate users and groups; or let all nodes act as this user (--identity shared)", err)
	}
	return nil
}
