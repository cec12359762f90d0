package agent

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// ownNode follows the node's own object, so that a status need not begin with a request: one watch instead of a GET each 10 s.
// The Node authorizer lets a node watch itself.
type ownNode struct {
	nodes *kubeclient.Resource[*v1.Node, *v1.NodeList]
	only  string
	last  atomic.Pointer[v1.Node]
}

func newOwnNode(c *kubeclient.Client, name string) *ownNode {
	return &ownNode{nodes: c.Nodes(), only: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// Run follows until ctx ends.
func (o *ownNode) Run(ctx context.Context) error {
	kubeclient.Follow(ctx, o, 30*time.Second)
	return nil
}

// Last is the Node as the watch last showed it; nil before the first, after a watch that failed, and when there is no Node:
// whoever asks then asks the API server. It may be old: a watch can lag, and one that the server ended is begun anew a moment
// later. What must not follow from an old Node asks the API server itself (heartbeat.Heartbeat.NodeSince).
func (o *ownNode) Last() *v1.Node { return o.last.Load() }

// List reads the node.
func (o *ownNode) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector = o.only
	return o.nodes.List(ctx, opts)
}

// Watch follows it.
func (o *ownNode) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = o.only
	return o.nodes.Watch(ctx, opts)
}

// Replace takes in what was listed.
func (o *ownNode) Replace(items []runtime.Object) (done bool) {
	o.last.Store(nil)
	for _, item := range items {
		o.Apply(watch.Added, item)
	}
	return false
}

// Apply takes in what the watch says.
func (o *ownNode) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	node, ok := obj.(*v1.Node)
	switch {
	case !ok:
	case event == watch.Deleted:
		o.last.Store(nil)
	default:
		node.ManagedFields = nil // a third of its bytes
		o.last.Store(node)
	}
	return false
}

// Failed forgets what may be old now.
func (o *ownNode) Failed(error) { o.last.Store(nil) }
