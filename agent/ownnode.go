package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// ownNode watches the node's own Node object, so that the agent does not need a GET every 10 s to report its status. The Node authorizer
// allows a node to watch its own Node.
type ownNode struct {
	nodes *kubeclient.Resource[*v1.Node, *v1.NodeList]
	only  string
	// volumes is called when the Node's volumesInUse or volumesAttached have changed. It may be nil.
	volumes func()
	last    atomic.Pointer[v1.Node]
	// follow gets the Node from a shared Feed, instead of the agent's own watch; nil: the agent watches.
	follow func(context.Context, kubeclient.Followed) (join func())
}

func newOwnNode(c *kubeclient.Client, name string, volumes func()) *ownNode {
	return &ownNode{nodes: c.Nodes(), only: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), volumes: volumes}
}

// Begin begins to watch until ctx ends. It returns at once; join waits for the end.
func (o *ownNode) Begin(ctx context.Context) (join func()) {
	if o.follow != nil {
		return o.follow(ctx, o)
	}
	var watching sync.WaitGroup
	watching.Go(func() { kubeclient.Follow(ctx, o, 30*time.Second) })
	return watching.Wait
}

// Last returns the newest Node that the watch has received. It returns nil before the first event, after a watch has failed,
// and if there is no Node; callers then ask the API server. The Node may be old: a watch can lag, and the next watch begins
// a moment after the server has ended one. A decision that must not use an old Node asks the API server itself
// (heartbeat.Heartbeat.NodeSince).
func (o *ownNode) Last() *v1.Node { return o.last.Load() }

// List lists the node's own Node, as the only object.
func (o *ownNode) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector = o.only
	return o.nodes.List(ctx, opts)
}

// Watch watches the node's own Node.
func (o *ownNode) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = o.only
	return o.nodes.Watch(ctx, opts)
}

// Replace stores the listed Node.
func (o *ownNode) Replace(items []runtime.Object) (done bool) {
	o.last.Store(nil)
	for _, item := range items {
		o.Apply(watch.Added, item)
	}
	return false
}

// Apply stores the Node of a watch event.
func (o *ownNode) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	node, ok := obj.(*v1.Node)
	switch {
	case !ok:
	case event == watch.Deleted:
		o.last.Store(nil)
	default:
		// Without ManagedFields the Node is a third smaller. If they are nil already, do not write: other agents may read this Node.
		if node.ManagedFields != nil {
			node.ManagedFields = nil
		}
		before := o.last.Swap(node)
		if o.volumes != nil && (before == nil || !sameVolumes(&before.Status, &node.Status)) {
			o.volumes()
		}
	}
	return false
}

// Failed drops the Node, because it may be old now.
func (o *ownNode) Failed(error) { o.last.Store(nil) }

// sameVolumes reports whether two statuses name the same volumes as in use and as attached.
func sameVolumes(a, b *v1.NodeStatus) bool {
	return slices.Equal(a.VolumesInUse, b.VolumesInUse) && slices.Equal(a.VolumesAttached, b.VolumesAttached)
}
