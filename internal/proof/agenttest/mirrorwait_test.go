package agenttest

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// deleteAndWait deletes a pod and waits for its end as kubectl delete does: until no object has the name, or the object with the name has
// another UID. It checks this after the deletion, and when an informer for the name has synced; after that it waits for the informer's
// Deleted event. The first watches of the informer fail (as many as breaks), so that it lists again.
func (w *World) deleteAndWait(ctx context.Context, name string, uid types.UID, breaks int) error {
	pods := w.Admin.CoreV1().Pods(Namespace)
	w.Delete(name, -1)
	p, err := pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case p.UID != uid:
		return nil
	}
	byName := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = "metadata.name=" + name
		return o
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, byName(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil) // makes the informer begin with a list
			}
			if breaks--; breaks >= 0 {
				return nil, apierrors.NewResourceExpired("too old resource version")
			}
			return pods.Watch(ctx, byName(o))
		},
	}
	synced := func(s cache.Store) (bool, error) {
		o, exists, err := s.Get(&metav1.ObjectMeta{Namespace: Namespace, Name: name})
		return err == nil && (!exists || o.(*v1.Pod).UID != uid), err
	}
	_, err = watchtools.UntilWithSync(ctx, lw, &v1.Pod{}, synced, func(e watch.Event) (bool, error) { return e.Type == watch.Deleted, nil })
	return err
}

// A client that deletes a mirror pod and waits for its end does not wait for ever, even if its watch breaks and it lists again. The
// containers keep running.
func TestDeletionOfAMirrorReturns(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1"))
	Run(t, cfg, func(w *World) {
		mirror := w.mirrorOf(webOnNode, nil)
		id := w.running(webOnNode)
		for i := range 10 {
			breaks := i % 2
			if breaks > 0 { // the agent's first deletion of the mirror fails, so that the informer sees the mirror before it is gone
				w.Kube.Inject(simkube.Fault{Verb: "delete", Resource: "pods", Agent: agentName, Times: 1,
					Err: apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, webOnNode, errors.New("the object has been modified"))})
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			began := time.Now()
			if err := w.deleteAndWait(ctx, webOnNode, mirror.UID, breaks); err != nil {
				t.Fatalf("deletion %d still waits after %v: %v", i, time.Since(began), err)
			}
			cancel()
			mirror = w.mirrorOf(webOnNode, mirror)
		}
		if w.running(webOnNode) != id || w.Witness.Starts() != 1 {
			t.Errorf("container %s became %s, %d starts", id, w.running(webOnNode), w.Witness.Starts())
		}
	})
}
