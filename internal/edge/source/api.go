package source

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// retryMax is the longest back-off between tries to reach the API server. After a long outage, a node learns of a
// deletion within about 15 s.
const retryMax = 10 * time.Second

// Target receives the pods of a source. A source makes one call at a time.
type Target interface {
	// Replace sets the complete state of the source.
	Replace(src pod.Source, pods []*v1.Pod)
	Upsert(src pod.Source, p *v1.Pod)
	Delete(src pod.Source, p *v1.Pod)
}

// Pods lists and watches the pods of all namespaces. API makes one call at a time.
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
	// Observe, if set, also gets each object (the status writer needs the newest one).
	Observe func(*v1.Pod)
	// Follow, if set, lists and watches instead of Pods.
	Follow func(ctx context.Context, f kubeclient.Followed) (join func())
	// Contact, if set, is called with nil after each successful list or watch request to the API server, and with the error after each
	// request that failed. It is not called if Follow is set.
	Contact func(err error)
	// Log gets errors about objects that cannot be pods, and about failed tries.
	Log *slog.Logger
}

// Begin lists and watches the pods in the background until ctx ends. It returns at once; join waits until the work has ended. If the
// API server is unreachable, Begin retries with back-off, and the Target keeps the pods that it got before.
func (a *API) Begin(ctx context.Context) (join func()) {
	f := &follower{API: a, only: fields.OneTermEqualSelector("spec.nodeName", a.NodeName).String()}
	if a.Follow != nil {
		return a.Follow(ctx, f)
	}
	var watching sync.WaitGroup
	watching.Go(func() { kubeclient.Follow(ctx, f, retryMax) })
	return watching.Wait
}

// Run lists and watches the pods until ctx ends, and then returns. Begin does the same in the background.
func (a *API) Run(ctx context.Context) error { return rounds.Until(ctx, a.Begin) }

// follower passes the listed and watched pods on to the Target, and stores none of them.
type follower struct {
	*API
	only string
	said string // the error of the last try, as logged; "": the last try succeeded
}

var _ kubeclient.Followed = (*follower)(nil)

// List reads the pods of the node. It requests no pages: API servers answer a list without pages from their cache. Older API servers
// read each page from storage, where they search the pods of all nodes.
func (f *follower) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector = f.only
	return f.Pods.List(ctx, opts)
}

// Watch watches the pods of the node.
func (f *follower) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = f.only
	w, err := f.Pods.Watch(ctx, opts)
	if err == nil && f.Contact != nil {
		f.Contact(nil)
	}
	return w, err
}

// Replace passes a complete list of pods on to the Target.
func (f *follower) Replace(items []runtime.Object) (done bool) {
	pods := make([]*v1.Pod, 0, len(items))
	for _, item := range items {
		if p := f.take(item); p != nil {
			pods = append(pods, p)
		}
	}
	f.said = ""
	f.Target.Replace(pod.SourceAPI, pods)
	if f.Contact != nil {
		f.Contact(nil)
	}
	return false
}

// Apply passes one change of a pod on to the Target.
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

// Failed logs why the node cannot read its pods, once for each reason.
func (f *follower) Failed(err error) {
	if f.Contact != nil {
		f.Contact(err)
	}
	if why := err.Error(); why != f.said {
		f.said = why
		f.Log.Warn("cannot watch the pods of this node, will try again", "err", err)
	}
}

// take drops the managed fields, which no node needs and which are half of a small pod's bytes. It returns nil for an
// object without a plausible identity, because names and UIDs become parts of paths on disk.
func (f *follower) take(obj runtime.Object) *v1.Pod {
	p, ok := obj.(*v1.Pod)
	if !ok {
		f.Log.Error("ignoring an object of the API that is not a pod", "type", fmt.Sprintf("%T", obj))
		return nil
	}
	if ref := pod.RefOf(p); !ref.Plausible() || p.Name == "" || p.Namespace == "" {
		f.Log.Error("ignoring a pod of the API with an impossible name or UID", "namespace", p.Namespace, "name", p.Name, "uid", p.UID)
		return nil
	}
	if p.ManagedFields != nil { // do not write to an object that was passed on before, because others read it
		p.ManagedFields = nil
	}
	if f.Observe != nil {
		f.Observe(p)
	}
	return p
}
