package source

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// retryMax is the longest wait between tries to reach the API server: after a long outage a node knows of a deletion within
// 15 s or so.
const retryMax = 10 * time.Second

// Target receives the pods of a source. Calls of one source come one at a time.
type Target interface {
	// Replace puts the whole state of the source.
	Replace(src pod.Source, pods []*v1.Pod)
	Upsert(src pod.Source, p *v1.Pod)
	Delete(src pod.Source, p *v1.Pod)
}

// Pods are those of all namespaces. Calls come one at a time.
type Pods interface {
	List(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// API watches the pods that are bound to a node: "spec.nodeName" is the field selector, and the Node authorizer
// lets a node's identity watch no others.
type API struct {
	Pods     Pods
	NodeName string
	Target   Target
	// Observe, when set, sees each object too (the status writer takes it as a newer base).
	Observe func(*v1.Pod)
	// Log is told of objects that cannot be pods.
	Log *slog.Logger
}

// Run lists and watches until ctx ends; an unreachable server is tried again with back-off, and what was seen
// stays.
func (a *API) Run(ctx context.Context) error {
	kubeclient.Follow(ctx, &follower{API: a, only: fields.OneTermEqualSelector("spec.nodeName", a.NodeName).String()}, retryMax)
	return nil
}

// follower hands on what is listed and watched; it keeps nothing itself.
type follower struct {
	*API
	only string
	said string // how the last try failed; "": it did not
}

var _ kubeclient.Followed = (*follower)(nil)

// List reads the pods of the node. It asks for no pages: API servers find the pods of one node in their cache, and older ones
// read a page from storage, where they look through the pods of all nodes.
func (f *follower) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector = f.only
	return f.Pods.List(ctx, opts)
}

// Watch follows them.
func (f *follower) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = f.only
	return f.Pods.Watch(ctx, opts)
}

// Replace puts the whole list.
func (f *follower) Replace(items []runtime.Object) (done bool) {
	pods := make([]*v1.Pod, 0, len(items))
	for _, item := range items {
		if p := f.take(item); p != nil {
			pods = append(pods, p)
		}
	}
	f.said = ""
	f.Target.Replace(pod.SourceAPI, pods)
	return false
}

// Apply takes in one change.
func (f *follower) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	f.said = ""
	if event == watch.Deleted {
		if p, ok := obj.(*v1.Pod); ok {
			f.Target.Delete(pod.SourceAPI, p)
		}
		return false
	}
	if p := f.take(obj); p != nil {
		f.Target.Upsert(pod.SourceAPI, p)
	}
	return false
}

// Failed says what keeps the node from its pods, once for each reason.
func (f *follower) Failed(err error) {
	if why := err.Error(); why != f.said {
		f.said = why
		f.Log.Warn("cannot follow the pods of this node, trying again", "err", err)
	}
}

// take drops what no node needs: managed fields are half of a small pod's bytes. It returns nil for an object without
// the identity of a pod: names and UIDs become paths.
func (f *follower) take(obj runtime.Object) *v1.Pod {
	p, ok := obj.(*v1.Pod)
	if !ok {
		f.Log.Error("the API shows something else among the pods; it is ignored", "type", fmt.Sprintf("%T", obj))
		return nil
	}
	if ref := pod.RefOf(p); !ref.Plausible() || p.Name == "" || p.Namespace == "" {
		f.Log.Error("the API names a pod that cannot be one; it is ignored", "namespace", p.Namespace, "name", p.Name, "uid", p.UID)
		return nil
	}
	p.ManagedFields = nil
	if f.Observe != nil {
		f.Observe(p)
	}
	return p
}
