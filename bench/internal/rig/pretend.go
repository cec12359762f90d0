package rig

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PretendNode creates a Node object without an agent. It sets the Node to Ready, and renews its lease so that it stays Ready. leave stops
// the renewal and deletes the Node.
func (r *Rig) PretendNode(ctx context.Context, name string) (leave func(), err error) {
	now := metav1.Now()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{
		Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: Address()}},
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "KubeletReady"}},
	}}
	if _, err := r.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create node %s: %w", name, err)
	}
	leases := r.Client.CoordinationV1().Leases("kube-node-lease")
	seconds := int32(40)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}}}
	remove := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = leases.Delete(ctx, name, metav1.DeleteOptions{})
		_ = r.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	}
	if lease, err = leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		remove()
		return nil, fmt.Errorf("create the lease of %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
			}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			if next, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = next
			} else if ctx.Err() == nil {
				r.Log("  the lease of %s is not renewed: %v", name, err)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
		remove()
	}, nil
}
