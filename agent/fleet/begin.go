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

// notRunning returns an error if another process runs the fleet: if one of the first three of these nodes renewed its lease recently. If the time in a
// lease says nothing because the clock of the node may have been wrong (FaultClock), notRunning looks whether the lease is renewed again.
func (f *Fleet) notRunning(ctx context.Context, nodes []string) error {
	var unsure []*coordinationv1.Lease
	for _, name := range nodes[:min(3, len(nodes))] {
		l, err := f.api.Leases(v1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil || l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(f.cfg.ServerBegan) {
			continue // without a renewed lease the node does not run
		}
		age := time.Since(l.Spec.RenewTime.Time)
		switch {
		case age < -time.Second: // the clock was ahead
			unsure = append(unsure, l)
		case age < fresh:
			return f.runsAlready(name, age)
		default:
			found, err := f.api.Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, Limit: 1})
			if err != nil {
				return fmt.Errorf("read node %s of the fleet: %w", name, err)
			}
			if len(found.Items) > 0 && countsAsRunning(&found.Items[0]) { // the clock may be behind
				unsure = append(unsure, l)
			}
		}
	}
	return f.noneRenewed(ctx, unsure)
}

// runsAlready returns the error that another process runs the fleet, whose node renewed its lease this time ago.
func (f *Fleet) runsAlready(node string, age time.Duration) error {
	return fmt.Errorf("the fleet %s runs already: node %s renewed its lease %s ago: choose another name, or wait %s if that process was killed",
		f.cfg.Name, node, age.Round(time.Second), fresh)
}

// noneRenewed returns an error if somebody renews one of the leases within the time in which a node that runs does.
func (f *Fleet) noneRenewed(ctx context.Context, leases []*coordinationv1.Lease) error {
	within := time.Duration(0)
	for _, l := range leases {
		within = max(within, renewsWithin(l))
	}
	if within > 0 {
		f.cfg.Log.Warn("another process may run this fleet; looking whether the nodes renew their leases before any joins", "fleet", f.cfg.Name, "within", within)
	}
	for end := time.Now().Add(within); time.Now().Before(end); {
		if !pause(ctx, time.Second) {
			return ctx.Err()
		}
		for _, l := range leases {
			now, err := f.api.Leases(v1.NamespaceNodeLease).Get(ctx, l.Name, metav1.GetOptions{})
			if err == nil && !now.Spec.RenewTime.Equal(l.Spec.RenewTime) {
				return f.runsAlready(l.Name, 0)
			}
		}
	}
	return nil
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
