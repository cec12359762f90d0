package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// CheckEnded returns an error if a fleet runs: Clean must not remove Nodes and pods while their agents run. name is the fleet's name; "": all
// fleets. A fleet runs if one of its nodes renews its lease. If a lease was renewed or a node joined a moment ago, or if the control plane counts a node
// as one that runs, CheckEnded looks for as long as the next renewal may take: 15 s, or longer if the nodes renew their leases less often. It calls waits
// before, if that is not nil.
func CheckEnded(ctx context.Context, client *rest.Config, name string, waits func(atMost time.Duration)) error {
	api, err := newClient(client, nil)
	if err != nil {
		return err
	}
	fleets, counted := map[string]string{}, map[string]bool{} // of the nodes
	first, until := map[string]time.Time{}, time.Now()
	lookFor := func(since time.Time, within time.Duration) {
		if end := time.Now().Add(min(within, within-time.Since(since))); end.After(until) { // the clock of the other process may be ahead
			until = end
		}
	}
	err = eachPage(func(opts metav1.ListOptions) (string, error) {
		opts.LabelSelector = selectorOf(name)
		list, err := api.Nodes().List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the nodes of the fleet: %w", err)
		}
		for i := range list.Items {
			n := &list.Items[i]
			fleets[n.Name] = n.Labels[LabelFleet]
			lookFor(lastSeen(n), fresh)
			counted[n.Name] = countsAsRunning(n)
		}
		return list.Continue, nil
	})
	if err != nil || len(fleets) == 0 {
		return err
	}
	err = eachRenewal(ctx, api, fleets, func(node string, renewed time.Time, within time.Duration) error {
		first[node] = renewed
		if counted[node] {
			renewed = time.Now()
		}
		lookFor(renewed, within)
		return nil
	})
	if wait := time.Until(until); err == nil && wait > 0 && waits != nil {
		waits(wait)
	}
	for err == nil && time.Now().Before(until) {
		if !pause(ctx, min(time.Second, time.Until(until))) {
			return ctx.Err()
		}
		err = eachRenewal(ctx, api, fleets, func(node string, renewed time.Time, _ time.Duration) error {
			if renewed.Equal(first[node]) {
				return nil
			}
			return fmt.Errorf("the fleet %s runs: node %s has just renewed its lease: end the fleet first, with wherry fleet stop --name %s on the machine where it runs, or with Ctrl-C",
				fleets[node], node, fleets[node])
		})
	}
	return err
}

// countsAsRunning reports whether the control plane has not noticed, about 50 s after the last renewal of its lease, that the node of a Node has ended.
// Only that is sure while the node's clock is behind (FaultClock), because all other times in the Node and in its lease come from the node. A Node
// without the condition Ready has not joined.
func countsAsRunning(n *v1.Node) bool {
	i := slices.IndexFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady })
	return i >= 0 && n.Status.Conditions[i].Status != v1.ConditionUnknown
}

// lastSeen returns when a Node was created, or said that it is Ready. A node that joins does this before it renews its lease.
func lastSeen(n *v1.Node) time.Time {
	last := n.CreationTimestamp.Time
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady && c.LastHeartbeatTime.After(last) {
			last = c.LastHeartbeatTime.Time
		}
	}
	return last
}

// eachRenewal calls look for the lease of each of the nodes: when it was renewed, and within which time after that a node that runs renews it again.
// It ends with the first error of look.
func eachRenewal(ctx context.Context, api *kubeclient.Client, nodes map[string]string, look func(node string, renewed time.Time, within time.Duration) error) error {
	return eachPage(func(opts metav1.ListOptions) (string, error) {
		list, err := api.Leases(v1.NamespaceNodeLease).List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the leases of the nodes: %w", err)
		}
		for i := range list.Items {
			l := &list.Items[i]
			if _, of := nodes[l.Name]; !of || l.Spec.RenewTime == nil {
				continue
			}
			if err := look(l.Name, l.Spec.RenewTime.Time, renewsWithin(l)); err != nil {
				return "", err
			}
		}
		return list.Continue, nil
	})
}

// renewsWithin returns the time after a renewal within which a node that runs renews its lease again: half as much more than the usual interval.
func renewsWithin(l *coordinationv1.Lease) time.Duration {
	var duration time.Duration
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		duration = min(longestDuration, time.Duration(*s)*time.Second)
	}
	return max(fresh, time.Duration(1.5*renewFraction*float64(duration)))
}
