package ownnode

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

// Nodes reads the Nodes of the API. One goroutine makes the calls, one after the other.
type Nodes interface {
	List(ctx context.Context, opts metav1.ListOptions) (*v1.NodeList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Config configures a Follower.
type Config struct {
	Nodes Nodes
	// Name is the name of the Node.
	Name string
	// Volumes is called when the Node's volumesInUse or volumesAttached have changed. It must not block. May be nil.
	Volumes func()
	// Follow passes the Node from a watch that several agents share; nil: the Follower watches Nodes. It returns at once; join waits until
	// there are no further calls.
	Follow func(context.Context, kubeclient.Followed) (join func())
}

// Follower watches the node's own Node object. Create it with New, then call Begin once.
type Follower struct {
	cfg  Config
	only string // the field selector of the Node
	last atomic.Pointer[v1.Node]
}

var _ kubeclient.Followed = (*Follower)(nil)

// New returns a Follower; it starts nothing.
func New(cfg Config) *Follower {
	return &Follower{cfg: cfg, only: fields.OneTermEqualSelector(metav1.ObjectNameField, cfg.Name).String()}
}

// Begin begins to watch until ctx ends. It returns at once; join waits for the end.
func (f *Follower) Begin(ctx context.Context) (join func()) {
	if f.cfg.Follow != nil {
		return f.cfg.Follow(ctx, f)
	}
	var watching sync.WaitGroup
	watching.Go(func() { kubeclient.Follow(ctx, f, 30*time.Second) })
	return watching.Wait
}

// Last returns the newest Node that the watch has received; nil: there is none, or it may be old (see the invariants of the package).
func (f *Follower) Last() *v1.Node { return f.last.Load() }

// List lists the node's own Node, as the only object.
func (f *Follower) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector = f.only
	return f.cfg.Nodes.List(ctx, opts)
}

// Watch watches the node's own Node.
func (f *Follower) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = f.only
	return f.cfg.Nodes.Watch(ctx, opts)
}

// Replace stores the listed Node.
func (f *Follower) Replace(items []runtime.Object) (done bool) {
	f.last.Store(nil)
	for _, item := range items {
		f.Apply(watch.Added, item)
	}
	return false
}

// Apply stores the Node of a watch event.
func (f *Follower) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	node, ok := obj.(*v1.Node)
	switch {
	case !ok:
	case event == watch.Deleted:
		f.last.Store(nil)
	default:
		// Without ManagedFields the Node is a third smaller. If they are nil already, do not write: other agents may read this Node.
		if node.ManagedFields != nil {
			node.ManagedFields = nil
		}
		before := f.last.Swap(node)
		if f.cfg.Volumes != nil && (before == nil || !sameVolumes(&before.Status, &node.Status)) {
			f.cfg.Volumes()
		}
	}
	return false
}

// Failed drops the Node, because it may be old now.
func (f *Follower) Failed(error) { f.last.Store(nil) }

// sameVolumes reports whether two statuses name the same volumes as in use and as attached.
func sameVolumes(a, b *v1.NodeStatus) bool {
	return slices.Equal(a.VolumesInUse, b.VolumesInUse) && slices.Equal(a.VolumesAttached, b.VolumesAttached)
}
