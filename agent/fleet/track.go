package fleet

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// nodeWatch follows the Nodes of the fleet.
type nodeWatch struct{ f *Fleet }

var _ kubeclient.Followed = nodeWatch{}

// List reads one page of the fleet's Nodes from the API.
func (w nodeWatch) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.LabelSelector, opts.Limit = w.f.selector(), kubeclient.PageSize
	return w.f.api.Nodes().List(ctx, opts)
}

// Watch watches the fleet's Nodes in the API.
func (w nodeWatch) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.LabelSelector = w.f.selector()
	return w.f.api.Nodes().Watch(ctx, opts)
}

// Replace stores which Nodes are Ready.
func (w nodeWatch) Replace(items []runtime.Object) bool {
	ready := map[string]bool{}
	for _, item := range items {
		if n, ok := item.(*v1.Node); ok {
			ready[n.Name] = isReady(n)
			w.f.slices.see(n)
			w.f.told.node(n.Name, ready[n.Name], true)
		}
	}
	w.f.told.keepNodes(ready)
	w.f.readiness(ready)
	if h := w.f.hub; h != nil {
		h.setNodes(items)
	}
	return false
}

// Apply stores one change of a Node.
func (w nodeWatch) Apply(event watch.EventType, obj runtime.Object) bool {
	if n, ok := obj.(*v1.Node); ok {
		here := event != watch.Deleted
		w.f.told.node(n.Name, here && isReady(n), here)
		w.f.changed(n.Name, isReady(n), !here)
		if here {
			w.f.slices.see(n)
		} else {
			w.f.slices.gone(n.Name)
		}
	}
	if h := w.f.hub; h != nil {
		h.applyNode(event, obj)
	}
	return false
}

// Failed logs that the Nodes cannot be watched.
func (w nodeWatch) Failed(err error) {
	w.f.cfg.Log.Warn("the nodes of the fleet cannot be watched; trying again", "err", err)
	if h := w.f.hub; h != nil {
		h.failed(&h.nodes, err)
	}
}

func isReady(n *v1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// podWatch watches all pods that are bound to a node, and keeps the state of the pods on nodes of the fleet.
type podWatch struct {
	f *Fleet

	mu      sync.Mutex
	started int // how many pods were first seen Running
	deleted int // how many pods of nodes that ran here were seen to go
	pods    map[types.UID]podState
	starts  []time.Time // when the newest pods were first seen Running, oldest first
}

// podState has the fields of a pod that a podWatch keeps.
type podState struct {
	node  string
	phase v1.PodPhase
	ready bool
}

var _ kubeclient.Followed = (*podWatch)(nil)

// bound is the field selector of pods that are bound to a node.
const bound = "spec.nodeName!="

// List reads one page of all pods that are bound to a node.
func (w *podWatch) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector, opts.Limit = bound, kubeclient.PageSize
	return w.f.api.Pods(metav1.NamespaceAll).List(ctx, opts)
}

// Watch watches all pods that are bound to a node.
func (w *podWatch) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = bound
	return w.f.api.Pods(metav1.NamespaceAll).Watch(ctx, opts)
}

// Replace stores the states of all pods.
func (w *podWatch) Replace(items []runtime.Object) bool {
	w.mu.Lock()
	old := w.pods
	w.pods = make(map[types.UID]podState, len(items))
	maps.Copy(w.pods, old) // the method note compares each pod with its old state
	w.mu.Unlock()
	seen := make(map[types.UID]bool, len(items))
	for _, item := range items {
		if p, ok := item.(*v1.Pod); ok {
			seen[p.UID] = true
			w.note(p)
		}
	}
	here := w.f.here()
	w.mu.Lock()
	maps.DeleteFunc(w.pods, func(uid types.UID, s podState) bool {
		if !seen[uid] && (here == nil || here[s.node]) {
			w.deleted++
		}
		return !seen[uid]
	})
	w.mu.Unlock()
	w.f.told.keepPods(seen)
	if h := w.f.hub; h != nil {
		h.setPods(items)
	}
	return false
}

// Apply stores one change of a pod.
func (w *podWatch) Apply(event watch.EventType, obj runtime.Object) bool {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return false
	}
	if event == watch.Deleted {
		here, _ := w.f.has(p.Spec.NodeName)
		w.mu.Lock()
		if _, ok := w.pods[p.UID]; ok {
			delete(w.pods, p.UID)
			if here || w.f.shard == nil {
				w.deleted++
			}
		}
		w.mu.Unlock()
		w.f.told.podGone(p.UID)
	} else {
		w.note(p)
	}
	if h := w.f.hub; h != nil {
		h.applyPod(event, obj)
	}
	return false
}

// Failed logs that the pods cannot be watched.
func (w *podWatch) Failed(err error) {
	w.f.cfg.Log.Warn("the pods of the fleet cannot be watched; trying again", "err", err)
	if h := w.f.hub; h != nil {
		h.failed(&h.pods, err)
	}
}

// rateWindow is the time over which StartsPerSecond is averaged. maxStarts is the maximum number of start times that are kept for it; the
// oldest are dropped.
const (
	rateWindow = 10 * time.Second
	maxStarts  = 20_000
)

func (w *podWatch) note(p *v1.Pod) {
	here, member := w.f.has(p.Spec.NodeName)
	if !member {
		return
	}
	s := podState{node: p.Spec.NodeName, phase: p.Status.Phase}
	if s.phase == "" {
		s.phase = v1.PodPending
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			s.ready = c.Status == v1.ConditionTrue
		}
	}
	w.f.told.pod(p, &s)
	w.mu.Lock()
	defer w.mu.Unlock()
	if here && s.phase == v1.PodRunning && w.pods[p.UID].phase != v1.PodRunning {
		w.started++
		w.starts = append(w.starts, time.Now())
		if len(w.starts) > maxStarts {
			w.starts = w.starts[1:]
		}
	}
	w.pods[p.UID] = s
}

// Pods counts the pods on the nodes of a fleet.
type Pods struct {
	Pending   int `json:"pending"`
	Running   int `json:"running"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Ready     int `json:"ready"`
	// StartsPerSecond is how many pods per second became Running, in the last ten seconds.
	StartsPerSecond float64 `json:"startsPerSecond"`
	// Starts is how many pods were first seen Running since the start.
	Starts int `json:"starts"`
	// Deletions is how many pods have gone from the API since the start.
	Deletions int `json:"deletions"`
}

// nodePods counts the pods of one node.
type nodePods struct{ all, ready int }

// count returns the numbers of pods, of all nodes and by node.
func (w *podWatch) count() (all Pods, byNode map[string]nodePods) {
	here := w.f.here()
	w.mu.Lock()
	defer w.mu.Unlock()
	byNode = map[string]nodePods{}
	for _, s := range w.pods {
		if here != nil && !here[s.node] {
			continue
		}
		of := byNode[s.node]
		of.all++
		if s.ready {
			of.ready++
		}
		byNode[s.node] = of
		switch s.phase {
		case v1.PodRunning:
			all.Running++
		case v1.PodSucceeded:
			all.Succeeded++
		case v1.PodFailed:
			all.Failed++
		case v1.PodPending, v1.PodUnknown:
			all.Pending++
		}
		if s.ready {
			all.Ready++
		}
	}
	since := time.Now().Add(-rateWindow)
	for len(w.starts) > 0 && w.starts[0].Before(since) {
		w.starts = w.starts[1:]
	}
	all.Starts, all.Deletions = w.started, w.deleted
	all.StartsPerSecond = float64(len(w.starts)) / rateWindow.Seconds()
	return all, byNode
}
