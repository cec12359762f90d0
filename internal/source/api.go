package source

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/wherry-node/wherry/internal/pod"
)

// The waits between tries to reach the API server, and by chance up to half as long again. After a long outage a node knows of
// a deletion within 15 s or so; with the default of client-go it would be a minute.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
)

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
	selector := fields.OneTermEqualSelector("spec.nodeName", a.NodeName).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return a.Pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return a.Pods.Watch(ctx, o)
		},
	}
	r := cache.NewReflectorWithOptions(lw, &v1.Pod{}, &sink{a}, cache.ReflectorOptions{
		Name: "pods of " + a.NodeName, MinWatchTimeout: 5 * time.Minute, Backoff: &wait.Backoff{
			Duration: retryMin, Factor: 2, Cap: retryMax, Steps: math.MaxInt, Jitter: 0.5}})
	r.RunWithContext(ctx)
	return nil
}

// sink is the store that a reflector fills: it keeps nothing itself.
type sink struct{ a *API }

var _ cache.ReflectorStore = (*sink)(nil)

func (s *sink) Add(obj any) error { return s.Update(obj) }

func (s *sink) Update(obj any) error {
	p, err := s.take(obj)
	if err != nil || p == nil {
		return err
	}
	s.a.Target.Upsert(pod.SourceAPI, p)
	return nil
}

func (s *sink) Delete(obj any) error {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return fmt.Errorf("delete pod of the API source: unexpected %T", obj)
	}
	s.a.Target.Delete(pod.SourceAPI, p)
	return nil
}

func (s *sink) Replace(objs []any, _ string) error {
	pods := make([]*v1.Pod, 0, len(objs))
	for _, o := range objs {
		p, err := s.take(o)
		if err != nil {
			return err
		}
		if p != nil {
			pods = append(pods, p)
		}
	}
	s.a.Target.Replace(pod.SourceAPI, pods)
	return nil
}

func (s *sink) Resync() error { return nil }

// take drops what no node needs: managed fields are half of a small pod's bytes. It returns nil for an object without
// the identity of a pod: names and UIDs become paths.
func (s *sink) take(obj any) (*v1.Pod, error) {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("read pod of the API source: unexpected %T", obj)
	}
	if ref := pod.RefOf(p); !ref.Plausible() || p.Name == "" || p.Namespace == "" {
		s.a.Log.Error("the API names a pod that cannot be one; it is ignored", "namespace", p.Namespace, "name", p.Name, "uid", p.UID)
		return nil, nil
	}
	p.ManagedFields = nil
	if s.a.Observe != nil {
		s.a.Observe(p)
	}
	return p, nil
}
