package fleets

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	tools "k8s.io/client-go/tools/watch"
)

// Namespace is the namespace of the pods.
const Namespace = "default"

// renewEvery is how often a kubelet renews its lease with the default leaseDurationSeconds of 40.
const renewEvery = 10 * time.Second

// Cluster follows the nodes, pods and leases of a cluster. Its methods may be called concurrently.
type Cluster struct {
	Client kubernetes.Interface

	stop []interface{ Stop() }
	wg   sync.WaitGroup

	mu      sync.Mutex
	nodes   map[string]bool // whether each node is Ready
	pods    map[string]bool // whether each pod is Running and Ready
	renewed map[string]time.Time
	moved   time.Time // when a node or pod last changed to the other value, came or went
	lost    int       // how often a node that was Ready was no longer
	ended   bool      // a watch has ended, so nothing is known any more
	late    []time.Duration
}

// Follow starts to follow a cluster that has no nodes and no pods in Namespace. Close ends that.
func Follow(ctx context.Context, client kubernetes.Interface) (*Cluster, error) {
	c := &Cluster{Client: client, nodes: map[string]bool{}, pods: map[string]bool{}, renewed: map[string]time.Time{}}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	leases := client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	for _, from := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){client.CoreV1().Nodes().Watch, client.CoreV1().Pods(Namespace).Watch, leases.Watch} {
		w, err := tools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: from})
		if err != nil {
			c.Close()
			return nil, err
		}
		c.stop = append(c.stop, w)
		c.wg.Go(func() {
			for e := range w.ResultChan() {
				c.take(e.Type, e.Object, time.Now())
			}
			c.end()
		})
	}
	return c, nil
}

// Close ends the watches.
func (c *Cluster) Close() {
	for _, s := range c.stop {
		s.Stop()
	}
	c.wg.Wait()
}

func (c *Cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

func (c *Cluster) take(event watch.EventType, obj runtime.Object, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := obj.(type) {
	case *v1.Node:
		if c.nodes[o.Name] && (event == watch.Deleted || !nodeReady(o)) {
			c.lost++
		}
		c.set(c.nodes, o.Name, event, nodeReady(o), now)
	case *v1.Pod:
		c.set(c.pods, o.Name, event, podReady(o), now)
	case *coordinationv1.Lease:
		c.renew(event, o, now)
	}
}

func (c *Cluster) set(in map[string]bool, name string, event watch.EventType, value bool, now time.Time) {
	if event == watch.Deleted {
		delete(in, name)
		c.moved = now
		return
	}
	if was, known := in[name]; !known || was != value {
		in[name], c.moved = value, now
	}
}

// renew notes how late a lease was renewed: the time since the renewal before it, less renewEvery.
func (c *Cluster) renew(event watch.EventType, l *coordinationv1.Lease, now time.Time) {
	if event == watch.Deleted {
		delete(c.renewed, l.Name)
		return
	}
	if l.Spec.RenewTime == nil {
		return
	}
	if was, known := c.renewed[l.Name]; known && l.Spec.RenewTime.After(was) {
		c.late = append(c.late, max(0, now.Sub(was)-renewEvery))
	}
	c.renewed[l.Name] = l.Spec.RenewTime.Time
}

// TakeLate returns how late the leases were renewed since the last call, in ascending order, and how often a node was no longer Ready.
func (c *Cluster) TakeLate() (late []time.Duration, lost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late, lost = c.late, c.lost
	c.late, c.lost = nil, 0
	slices.Sort(late)
	return late, lost
}

// Nodes waits until the cluster has n nodes and all of them are Ready. It returns when the last of them became so.
func (c *Cluster) Nodes(ctx context.Context, n int) (time.Time, error) {
	return c.await(ctx, "nodes Ready", c.nodes, n)
}

// Has returns an error if the cluster lacks one of the n nodes that name names: the pods of such a node would never run.
func (c *Cluster) Has(n int, name func(i int) string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		if _, ok := c.nodes[name(i)]; !ok {
			return fmt.Errorf("the cluster has no node %s", name(i))
		}
	}
	return nil
}

// Pods waits until Namespace has n pods and all of them are Running and Ready. It returns when the last of them became so.
func (c *Cluster) Pods(ctx context.Context, n int) (time.Time, error) {
	return c.await(ctx, "pods Ready", c.pods, n)
}

func (c *Cluster) await(ctx context.Context, what string, in map[string]bool, n int) (time.Time, error) {
	for {
		c.mu.Lock()
		all, ready, at, ended := len(in), 0, c.moved, c.ended
		for _, is := range in {
			if is {
				ready++
			}
		}
		c.mu.Unlock()
		if all == n && ready == n {
			return at, nil
		}
		if ended {
			return time.Time{}, fmt.Errorf("%d of %d %s, %d exist: a watch has ended", ready, n, what, all)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d %s, %d exist: %w", ready, n, what, all, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func nodeReady(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

func podReady(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodRunning &&
		slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

// Requests returns how many requests the API server has answered since its start.
func (c *Cluster) Requests(ctx context.Context) (float64, error) {
	text, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	return sumOf(string(text), "apiserver_request_total"), nil
}

// sumOf adds up the values of a metric, over all labels, in a text for Prometheus.
func sumOf(text, metric string) (sum float64) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, metric)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64); err == nil {
			sum += v
		}
	}
	return sum
}
