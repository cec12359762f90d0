package agent

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// Feed follows objects of the API server for several agents of a process, so that each object is read once for all of them. It reads
// as one user, so the API server does not check whether each node may read them.
type Feed interface {
	// Follow passes the objects that q selects to f: first the complete list (Replace), then each change (Apply), until ctx ends or a
	// method of f returns true. Follow returns at once. It makes one call of f at a time; the first may come before Follow has returned.
	// The caller calls join after ctx has ended; f gets no call after join has returned. Several goroutines may call Follow at once, also
	// for the same objects.
	Follow(ctx context.Context, q Query, f Follower) (join func())
}

// Query selects objects of the API server.
type Query struct {
	// Resource is pods, nodes, services, configmaps or secrets.
	Resource string
	// Node is the node to which the selected pods are bound. It is only for the resource pods.
	Node string
	// Namespace and Name select one object; Namespace is empty for nodes. For pods and services both are empty: the query
	// selects all pods of Node, or all services.
	Namespace, Name string
}

// Follower gets the objects of a Feed. It does not change the objects, with one exception: it may set their ManagedFields to
// nil if the Feed has not done so. Its methods return quickly.
type Follower interface {
	// Replace receives the complete list of objects, Apply receives one change. If a method returns true, the Follower gets no further
	// calls.
	Replace(objects []runtime.Object) (done bool)
	Apply(event watch.EventType, object runtime.Object) (done bool)
	// Failed is called when the objects cannot be followed at the moment. The objects that the Follower has may be out of
	// date then.
	Failed(err error)
}

var _ Follower = kubeclient.Followed(nil)

// followBy returns a function that follows the objects of a query over Deps.Feed; nil if there is no Feed.
func (a *Agent) followBy(q Query) func(context.Context, kubeclient.Followed) (join func()) {
	if a.deps.Feed == nil {
		return nil
	}
	return func(ctx context.Context, f kubeclient.Followed) func() { return a.deps.Feed.Follow(ctx, q, f) }
}

// followObjects returns a function that follows ConfigMaps, Secrets and Services over Deps.Feed; nil if there is no Feed.
func (a *Agent) followObjects() func(ctx context.Context, resource, namespace, name string, f kubeclient.Followed) (join func()) {
	if a.deps.Feed == nil {
		return nil
	}
	return func(ctx context.Context, resource, namespace, name string, f kubeclient.Followed) func() {
		return a.deps.Feed.Follow(ctx, Query{Resource: resource, Namespace: namespace, Name: name}, f)
	}
}

// followOwnNode returns a function that follows the node's own Node object through Deps.Feed; nil if there is no Feed.
func (a *Agent) followOwnNode() func(context.Context, kubeclient.Followed) (join func()) {
	return a.followBy(Query{Resource: "nodes", Namespace: metav1.NamespaceNone, Name: a.cfg.NodeName})
}
