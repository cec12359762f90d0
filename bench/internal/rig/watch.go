package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	tools "k8s.io/client-go/tools/watch"
)

// Watch watches the API and records when it saw each change. All arms of the benchmark (see Rig) are measured with a Watch.
type Watch struct {
	mu     sync.Mutex
	pods   map[string]*podSeen
	nodes  map[string][]nodeSeen
	events int           // number of changes of pods
	moved  chan struct{} // closed and replaced at every change; any number of goroutines may wait for it
	err    error         // why no further changes come; nil: the watch works
	closed bool
	stop   []watch.Interface
	wg     sync.WaitGroup
}

type podSeen struct {
	ready, gone time.Time
	ids         []string // IDs of the first container's instances, in the order in which they were seen running
	ended       map[string]time.Time
	pod         *v1.Pod
}

type nodeSeen struct {
	at, beat time.Time
	ready    bool
}

func (r *Rig) makeNamespace(ctx context.Context) error {
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := r.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for i := range ConfigMaps {
		cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMap(i)}, Data: map[string]string{"key": "value", "file": "text\n"}}
		if _, err := r.Client.CoreV1().ConfigMaps(Namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	for {
		if _, err := r.Client.CoreV1().ServiceAccounts(Namespace).Get(ctx, "default", metav1.GetOptions{}); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the namespace %s got no service account: %w", Namespace, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Watch starts to watch pods and nodes. Close ends the watch. If a connection breaks, the watch continues from the last resource version.
func (r *Rig) Watch(ctx context.Context) (*Watch, error) {
	w := &Watch{pods: map[string]*podSeen{}, nodes: map[string][]nodeSeen{}, moved: make(chan struct{})}
	pods, err := r.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	for _, from := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){
		r.Client.CoreV1().Pods(Namespace).Watch, r.Client.CoreV1().Nodes().Watch,
	} {
		s, err := tools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: from})
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("watch: %w", err)
		}
		w.stop = append(w.stop, s)
		w.wg.Go(func() { w.follow(ctx, s.ResultChan()) })
	}
	return w, nil
}

// errEnded says that a watch ended although nobody closed it, for example because the API server no longer has the resource version from
// which the watch would continue.
var errEnded = errors.New("the watch ended")

// follow records changes until the watch is closed. If the watch ends for another reason, every call that waits for a change returns an
// error.
func (w *Watch) follow(ctx context.Context, changes <-chan watch.Event) {
	for e := range changes {
		w.take(e, time.Now())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || ctx.Err() != nil || w.err != nil {
		return
	}
	w.err = errEnded
	close(w.moved)
	w.moved = make(chan struct{})
}

// Close ends the watch.
func (w *Watch) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	for _, s := range w.stop {
		s.Stop()
	}
	w.wg.Wait()
}

func (w *Watch) take(e watch.Event, at time.Time) {
	w.mu.Lock()
	switch o := e.Object.(type) {
	case *v1.Pod:
		w.events++
		w.takePod(e.Type, o, at)
	case *v1.Node:
		for _, c := range o.Status.Conditions {
			if c.Type == v1.NodeReady {
				w.nodes[o.Name] = append(w.nodes[o.Name], nodeSeen{at, c.LastHeartbeatTime.Time, c.Status == v1.ConditionTrue})
			}
		}
	}
	close(w.moved)
	w.moved = make(chan struct{})
	w.mu.Unlock()
}

func (w *Watch) takePod(t watch.EventType, p *v1.Pod, at time.Time) {
	s := w.pods[p.Name]
	if s == nil {
		s = &podSeen{ended: map[string]time.Time{}}
		w.pods[p.Name] = s
	}
	s.pod = p
	if t == watch.Deleted {
		s.gone = at
		return
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue && s.ready.IsZero() {
			s.ready = at
		}
	}
	if len(p.Status.ContainerStatuses) == 0 {
		return
	}
	c := &p.Status.ContainerStatuses[0]
	if c.State.Running != nil && (len(s.ids) == 0 || s.ids[len(s.ids)-1] != c.ContainerID) {
		s.ids = append(s.ids, c.ContainerID)
	}
	for _, id := range s.ids {
		if _, known := s.ended[id]; !known && (c.ContainerID != id || c.State.Running == nil) {
			s.ended[id] = at
		}
	}
}

// await calls f, with w.mu held, now and after every change, until f returns true. It returns an error if no further changes can come, or
// if ctx ends.
func (w *Watch) await(ctx context.Context, f func() bool) error {
	for {
		w.mu.Lock()
		ok, moved, err := f(), w.moved, w.err
		w.mu.Unlock()
		if ok {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// Ready waits until all named pods have been Ready, and returns when each became Ready for the first time.
func (w *Watch) Ready(ctx context.Context, names []string) (map[string]time.Time, error) {
	return w.times(ctx, "Ready", names, func(s *podSeen) time.Time { return s.ready })
}

// Gone waits until the API has none of the named pods, and returns when each one disappeared.
func (w *Watch) Gone(ctx context.Context, names []string) (map[string]time.Time, error) {
	return w.times(ctx, "gone", names, func(s *podSeen) time.Time { return s.gone })
}

func (w *Watch) times(ctx context.Context, what string, names []string, at func(*podSeen) time.Time) (map[string]time.Time, error) {
	out, missing := map[string]time.Time{}, ""
	err := w.await(ctx, func() bool {
		for _, n := range names {
			if _, ok := out[n]; ok {
				continue
			}
			s := w.pods[n]
			if s == nil || at(s).IsZero() {
				missing = n
				return false
			}
			out[n] = at(s)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("%d of %d pods are %s; pod %s is not: %w", len(out), len(names), what, missing, err)
	}
	return out, nil
}

// ContainerEnded waits until the API shows that the container with this ID has ended, and returns when. The watch must have seen the
// container running.
func (w *Watch) ContainerEnded(ctx context.Context, name, id string) (time.Time, error) {
	var at time.Time
	err := w.await(ctx, func() bool {
		at = w.pods[name].ended[id]
		return !at.IsZero()
	})
	return at, err
}

// ContainerReplaced waits until the API shows, as the pod's first container, a running instance with another ID.
func (w *Watch) ContainerReplaced(ctx context.Context, name, id string) error {
	return w.await(ctx, func() bool {
		s := w.pods[name]
		return s != nil && len(s.ids) > 0 && s.ids[len(s.ids)-1] != id
	})
}

// ContainerID returns the ID of the newest running instance of the pod's first container that the watch has seen; "": none.
func (w *Watch) ContainerID(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[name]; s != nil && len(s.ids) > 0 {
		return s.ids[len(s.ids)-1]
	}
	return ""
}

// PodEvents returns the number of changes of pods that the watch has seen.
func (w *Watch) PodEvents() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

// NodeReady returns when the watch first saw a Ready condition that the node sent after the time since. ok is false if the watch has seen
// none. An error means that the watch has ended. The timestamps in a status are whole seconds, so an agent must not start in the same
// second in which the previous agent may have sent a status.
func (w *Watch) NodeReady(node string, since time.Time) (at time.Time, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes[node] {
		if n.ready && n.at.After(since) && !n.beat.Before(since.Truncate(time.Second)) {
			return n.at, true, nil
		}
	}
	return time.Time{}, false, w.err
}
