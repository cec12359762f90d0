package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
)

const (
	// joinPatience is how long a joining node may take to become Ready. After that it no longer counts as joining, so other nodes can join.
	joinPatience = 2 * time.Minute
	// cleanTimeout bounds the removal of the fleet at the end.
	cleanTimeout = 5 * time.Minute
	// followRetry is the longest wait before a watch is tried again.
	followRetry = 10 * time.Second
	// leavers is how many nodes are removed at the same time.
	leavers = 16
	// pollPace is the interval at which manage decides whether more nodes may join, while nodes join.
	pollPace = 50 * time.Millisecond
)

// Fleet is a number of simulated nodes.
type Fleet struct {
	cfg   Config
	api   *kubeclient.Client // sends requests as the user of Config.Client
	host  string             // the API server's address
	next  http.RoundTripper  // the transport that all nodes share
	count *requests          // next: it counts what it sends
	wheel *wheel
	pods  *podWatch
	hub   *hub     // nil with Config.OwnWatches
	told  *changes // nil without Config.Changed
	wake  chan struct{}
	// serving is set by Run before any node starts; nil: the nodes have no HTTPS API.
	serving *serving

	mu      sync.Mutex
	nodes   map[string]*node
	want    []int // the number of nodes of each group
	pace    *pace
	joining map[*node]bool
	began   time.Time // when Run began
	leaving sync.WaitGroup
	// injected counts the calls of Inject; the count is the number of the last fault.
	injected int
}

// New checks the configuration and returns a fleet for Run. It does no IO and starts nothing.
func New(cfg Config) (*Fleet, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if _, err := cfg.names(); err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, wake: make(chan struct{}, 1), nodes: map[string]*node{}, pace: newPace(), joining: map[*node]bool{}}
	for i := range cfg.Groups {
		f.want = append(f.want, cfg.Groups[i].Count)
	}
	own := rest.CopyConfig(cfg.Client)
	own.UserAgent = "" // each client sets its own
	server, _, err := rest.DefaultServerUrlFor(own)
	if err == nil {
		f.host = server.String()
		f.next, err = rest.TransportFor(own)
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: Config.Client: %w", err)
	}
	f.count = &requests{next: f.next}
	f.next = f.count
	if f.api, err = newClient(cfg.Client, nil); err != nil {
		return nil, err
	}
	leases, err := newClient(&rest.Config{Host: f.host, Transport: byNode{f.next}}, nil)
	if err != nil {
		return nil, err
	}
	f.wheel = &wheel{api: leases.Leases(v1.NamespaceNodeLease), log: cfg.Log}
	if !cfg.OwnWatches {
		mine, err := namesOf(cfg.Groups)
		if err != nil {
			return nil, fmt.Errorf("fleet: names of the nodes: %w", err)
		}
		f.hub = newHub(f.api, mine)
	}
	f.pods = &podWatch{f: f, pods: map[types.UID]podState{}}
	f.told = newChanges(cfg.Changed, f.age)
	return f, nil
}

// Run lets the nodes join the cluster and runs them until ctx ends. Then it ends all agents and, without Config.Keep, removes the Nodes and
// the pods on them. It returns an error before the first node joins if the cluster has a Node of the same name that is not of this fleet,
// if the fleet already runs, or if Config.Client may not impersonate the nodes.
func (f *Fleet) Run(ctx context.Context) error {
	err := f.preflight(ctx)
	if err == nil {
		err = f.openServing(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	parts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { kubeclient.Follow(parts, nodeWatch{f}, followRetry) })
	group.Go(func() { kubeclient.Follow(parts, f.pods, followRetry) })
	group.Go(func() { f.wheel.run(parts) })
	if f.hub != nil {
		group.Go(func() { f.hub.run(parts) })
	}
	if f.serving != nil {
		group.Go(func() { f.serving.run(parts, f) })
	}
	f.mu.Lock()
	f.began = time.Now()
	f.mu.Unlock()
	f.manage(ctx)
	f.endAll()
	cancel()
	group.Wait()
	if f.cfg.Keep {
		return nil
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	done, err := clean(final, f.api, f.selector(), nil)
	f.cfg.Log.Info("the fleet is removed from the cluster", "nodes", done.Nodes, "pods", done.Pods)
	return err
}

// age returns the time since Run began; 0 before.
func (f *Fleet) age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		return 0
	}
	return time.Since(f.began)
}

func (f *Fleet) selector() string { return selectorOf(f.cfg.Name) }

// preflight returns an error if the fleet cannot join the cluster: a Node of another owner has one of its names, another process runs the
// fleet, or the nodes cannot be impersonated.
func (f *Fleet) preflight(ctx context.Context) error {
	names, err := f.cfg.names()
	if err != nil {
		return err
	}
	var left []string
	err = eachPage(func(opts metav1.ListOptions) (string, error) {
		list, err := f.api.Nodes().List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the nodes of the cluster: %w", err)
		}
		for i := range list.Items {
			n := &list.Items[i]
			switch own := n.Labels[LabelFleet] == f.cfg.Name; {
			case own:
				left = append(left, n.Name)
			case names[n.Name]:
				return "", fmt.Errorf("the cluster has a node %s that is not of this fleet: choose another name for the fleet, or another nodeName", n.Name)
			}
		}
		return list.Continue, nil
	})
	if err != nil {
		return err
	}
	if err := f.notRunning(ctx, left); err != nil {
		return err
	}
	if f.cfg.Identity == Impersonate {
		return f.mayImpersonate(ctx)
	}
	return nil
}

// fresh is the maximum age of a lease renewal that shows that the node runs.
const fresh = 15 * time.Second

// notRunning returns an error if another process runs the fleet: if one of the first three of these nodes renewed its lease recently.
func (f *Fleet) notRunning(ctx context.Context, nodes []string) error {
	for _, name := range nodes[:min(3, len(nodes))] {
		l, err := f.api.Leases(v1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil || l.Spec.RenewTime == nil {
			continue // without a renewed lease the node does not run
		}
		if age := time.Since(l.Spec.RenewTime.Time); age < fresh {
			return fmt.Errorf("the fleet %s runs already: node %s renewed its lease %s ago: choose another name, or wait %s if that process was killed",
				f.cfg.Name, name, age.Round(time.Second), fresh)
		}
	}
	return nil
}

// mayImpersonate returns an error if the user of the fleet may not impersonate its nodes.
func (f *Fleet) mayImpersonate(ctx context.Context) error {
	g := &f.cfg.Groups[0]
	probe := f.newLink(g.nodeName(f.cfg.Name, 1))
	c, err := newClient(&rest.Config{Host: f.host, Transport: probe}, nil)
	if err != nil {
		return err
	}
	opts := metav1.ListOptions{FieldSelector: "metadata.name=" + g.nodeName(f.cfg.Name, 1), Limit: 1}
	if _, err := c.Nodes().List(ctx, opts); err != nil {
		return fmt.Errorf("act as a node: %w: this user needs the right to impersonate users and groups; or let all nodes act as this user (--identity shared)", err)
	}
	return nil
}

func (f *Fleet) newLink(node string) *link {
	l := &link{next: f.next}
	if f.cfg.Identity == Impersonate {
		l.user = "system:node:" + node
	}
	return l
}

// manage starts and removes nodes until ctx ends.
func (f *Fleet) manage(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-t.C:
		}
		if f.step() {
			t.Reset(pollPace)
		}
	}
}

// step starts the nodes that may join now, and removes surplus nodes. It reports whether manage should call it again after pollPace.
func (f *Fleet) step() (again bool) {
	late := f.wheel.lateness().Overdue
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.joining {
		if time.Since(n.began) > joinPatience {
			f.cfg.Log.Warn("a node is not Ready; the others no longer wait for it", "node", n.name, "after", joinPatience)
			f.endJoin(n)
		}
	}
	f.removeExtra() // first, because surplus nodes must be removed even if other nodes cannot join
	for i := range f.cfg.Groups {
		g := &f.cfg.Groups[i]
		for index := 1; index <= f.want[i]; index++ {
			name := g.nodeName(f.cfg.Name, index)
			if f.nodes[name] != nil {
				continue
			}
			if !f.pace.allows(len(f.joining), late) {
				return true
			}
			f.start(g, name, index)
		}
	}
	return len(f.joining) > 0
}

// start creates the node and lets it join the cluster in the background. The caller holds the lock.
func (f *Fleet) start(g *Group, name string, index int) {
	ctx, end := context.WithCancel(context.Background())
	n := &node{
		fleet: f, group: g, index: index, name: name, link: f.newLink(name), end: end, ended: make(chan struct{}), began: time.Now(), wake: make(chan struct{}, 1),
		disk: &checkpoint.InMemory{},
	}
	f.nodes[name] = n
	f.joining[n] = true
	go n.run(ctx)
}

// removeExtra begins to remove the nodes whose index is larger than their group's number of nodes. The caller holds the lock.
func (f *Fleet) removeExtra() {
	var extra []*node
	for _, n := range f.nodes {
		if !n.leaves && n.index > f.want[slices.IndexFunc(f.cfg.Groups, func(g Group) bool { return g.Name == n.group.Name })] {
			n.leaves = true
			f.endJoin(n)
			extra = append(extra, n)
		}
	}
	if len(extra) > 0 {
		f.leaving.Go(func() { f.remove(extra) })
	}
}

// remove ends the agents and machines of nodes, and removes the nodes from the cluster.
func (f *Fleet) remove(nodes []*node) {
	names := map[string]bool{}
	limited(nodes, leavers, func(n *node) {
		n.end()
		<-n.ended
		n.close()
	})
	for _, n := range nodes {
		names[n.name] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
	defer cancel()
	if _, err := clean(ctx, f.api, f.selector(), names); err != nil {
		f.cfg.Log.Error("nodes that left the fleet are still in the cluster; they are removed at its end", "err", err)
	}
	f.mu.Lock()
	for name := range names {
		delete(f.nodes, name)
		if f.serving != nil {
			f.serving.forget(name)
		}
		if f.cfg.Dir != "" {
			_ = os.RemoveAll(f.cfg.logs(name)) // an error is ignored: whoever created Dir removes what is left
		}
	}
	f.mu.Unlock()
	f.look()
}

// endAll ends all nodes, and returns when their agents and machines have ended.
func (f *Fleet) endAll() {
	f.leaving.Wait()
	f.mu.Lock()
	var all []*node
	for _, n := range f.nodes {
		all = append(all, n)
		n.leaves = true
	}
	f.mu.Unlock()
	for _, n := range all {
		n.end()
	}
	for _, n := range all {
		<-n.ended
		n.close()
	}
}

// look wakes the goroutine of manage, so that it decides again which nodes to start and to remove. It does not block.
func (f *Fleet) look() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// readiness stores which Nodes are Ready in the API. If whole is true, ready contains all Nodes, so a node that is missing in it is not
// ready. Otherwise a node that is missing in it keeps its state.
func (f *Fleet) readiness(ready map[string]bool, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if whole {
		for name, n := range f.nodes {
			f.setReady(n, ready[name])
		}
	} else {
		for name, r := range ready {
			if n := f.nodes[name]; n != nil {
				f.setReady(n, r)
			}
		}
	}
	f.look()
}

// setReady stores whether a node is Ready, and ends its join when it first becomes Ready. The caller holds the lock.
func (f *Fleet) setReady(n *node, ready bool) {
	n.ready = ready
	if ready && f.joining[n] {
		n.joined = true
		f.pace.ended(time.Since(n.began))
		f.endJoin(n)
	}
}

// endJoin stops counting n as a node that joins, so that another node can join. The caller holds the lock.
func (f *Fleet) endJoin(n *node) { delete(f.joining, n) }

// has reports whether a node of this name is in the fleet.
func (f *Fleet) has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[name] != nil
}

// ErrNoGroup means that the fleet has no group of this name.
var ErrNoGroup = errors.New("no such group")

// Scale sets the number of nodes of a group. group may be "" if the fleet has only one group. If the number falls, the nodes with the
// largest indexes are removed, with the pods on them. Scale returns at once; nodes join and leave in the background.
func (f *Fleet) Scale(group string, count int) error {
	if count < 0 || count > MaxNodes {
		return fmt.Errorf("%d nodes: use 0 to %d", count, MaxNodes)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.cfg.Groups, func(g Group) bool { return g.Name == group || group == "" && len(f.cfg.Groups) == 1 })
	if i < 0 {
		var names []string
		for i := range f.cfg.Groups {
			names = append(names, f.cfg.Groups[i].Name)
		}
		return fmt.Errorf("group %q: %w: the fleet has %v", group, ErrNoGroup, names)
	}
	total := count
	for j, n := range f.want {
		if j != i {
			total += n
		}
	}
	if total > MaxNodes {
		return fmt.Errorf("the fleet would have %d nodes: at most %d", total, MaxNodes)
	}
	f.want[i] = count
	f.look()
	return nil
}
