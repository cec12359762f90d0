package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/sim/simstorage"
)

const (
	// joinPatience is how long a joining node may take to become Ready. After that it no longer counts as joining, so other nodes can join.
	joinPatience = 2 * time.Minute
	// followRetry is the longest wait before a watch is tried again.
	followRetry = 10 * time.Second
	// leavers is how many nodes are removed at the same time.
	leavers = 64
	// pollPace is the interval at which manage decides whether more nodes may join, while nodes join.
	pollPace = 50 * time.Millisecond
)

// Fleet is a number of simulated nodes.
type Fleet struct {
	cfg   Config
	api   *kubeclient.Client // sends requests as the user of Config.Client
	host  string             // the API server's address
	next  http.RoundTripper  // sends requests as the user of Config.Client; nodes with an identity of their own do not use it
	count *requests          // counts what the nodes send
	// access lets the nodes get certificates; nil unless Config.Identity is Certificate.
	access *access
	wheel  *wheel
	pods   *podWatch
	hub    *hub     // nil with Config.OwnWatches
	told   *changes // nil without Config.Changed
	wake   chan struct{}
	// serving is set by Run before any node starts; nil: the nodes have no HTTPS API.
	serving *serving

	// storage makes and attaches volumes; nil: nobody here does.
	storage *simstorage.Storage
	slices  *slicePublisher // nil: no group has devices of DRA drivers
	made    tally           // what CreatePods or CreateWorkloads has created

	// shard divides the nodes between several processes; nil: this process runs all nodes.
	shard *shard

	mu     sync.Mutex
	nodes  map[string]*node
	want   []int // the number of nodes of each group
	roster *roster
	held   []bool          // the slices whose nodes this process runs
	known  map[string]bool // the Nodes of the fleet in the API, and whether they are Ready
	// purge means that the API may have Nodes of the fleet that it should not have (see surplus). purging are those that are being removed.
	purge   bool
	purging map[string]bool
	pace    *pace
	joining map[*node]bool
	joined  bool // all nodes that the fleet should have had joined at least once
	joins   Joins
	began   time.Time // when Run began
	leaving sync.WaitGroup
	removal *removal // of the whole fleet, at the end of Run; nil before
	// injected counts the calls of Inject; the count is the number of the last fault.
	injected int
	// played has the scenarios that play and the last ones that have ended, the oldest first.
	played []*playing
}

// New checks the configuration and returns a fleet for Run. It does no IO and starts nothing.
func New(cfg Config) (*Fleet, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Fleet{
		cfg: cfg, wake: make(chan struct{}, 1), nodes: map[string]*node{}, known: map[string]bool{}, purging: map[string]bool{}, pace: newPace(), joining: map[*node]bool{},
	}
	if err := f.divide(); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(cfg.Client)
	own.UserAgent = "" // each client sets its own
	server, _, err := rest.DefaultServerUrlFor(own)
	if err == nil {
		f.host = server.String()
		f.next, err = rest.TransportFor(own)
	}
	if err != nil {
		return nil, wrongConfig("Client", "%w", err)
	}
	f.count = newRequests()
	f.next = f.count.over(f.next)
	if f.api, err = newClient(cfg.Client, nil); err != nil {
		return nil, err
	}
	if cfg.Identity == Certificate {
		if f.access, err = newAccess(f); err != nil {
			return nil, err
		}
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
	f.storage, f.slices = newStorage(f), newSlicePublisher(f)
	f.pods = &podWatch{f: f, pods: map[types.UID]podState{}}
	f.told = newChanges(cfg.Changed, f.age)
	if cfg.Shard.Name != "" {
		if f.shard, err = newShard(f, len(f.held)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// divide makes the roster: of one slice, which the fleet holds, or, if several processes share the nodes, of several, of which it holds none
// yet.
func (f *Fleet) divide() (err error) {
	total := 0
	for i := range f.cfg.Groups {
		f.want = append(f.want, f.cfg.Groups[i].Count)
		total += f.cfg.Groups[i].Count
	}
	f.held = []bool{true}
	if f.cfg.Shard.Name != "" {
		f.held = make([]bool, slicesOf(total))
	}
	f.roster, err = newRoster(f.cfg.Name, f.cfg.Groups, f.want, len(f.held))
	return err
}

// Run lets the nodes join the cluster and runs them until ctx ends. Then it ends all agents and, without Config.Keep, removes the Nodes and
// the pods on them. It returns an error before the first node joins if the cluster has a Node of the same name that is not of this fleet,
// if the fleet already runs, or if Config.Client may not impersonate the nodes or let them get certificates. Nodes that an earlier process of the
// fleet left in the cluster are adopted, and those that are too many are removed. If somebody else deletes a Node, the node registers it again.
//
// With Config.Shard it runs the nodes of the slices that it holds. It waits before the first node joins if a process of the same name was
// killed a moment ago. When ctx ends, it releases its slices and leaves the Nodes to the other processes. It returns ErrShape or
// ErrShardRuns if it cannot share the fleet with the other processes.
func (f *Fleet) Run(ctx context.Context) (err error) {
	if f.access != nil {
		defer func() { err = errors.Join(err, f.access.close(ctx)) }()
	}
	if err := f.begin(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	parts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	var shardErr error
	if f.shard != nil {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		group.Go(func() {
			shardErr = f.shard.run(parts)
			end()
		})
	}
	f.mu.Lock()
	f.began = time.Now()
	f.mu.Unlock()
	f.slices.open(parts)
	group.Go(func() { kubeclient.Follow(parts, nodeWatch{f}, followRetry) })
	group.Go(func() { kubeclient.Follow(parts, f.pods, followRetry) })
	group.Go(func() { f.wheel.run(parts) })
	if f.hub != nil {
		group.Go(func() { f.hub.run(parts) })
	}
	if f.serving != nil {
		group.Go(func() { f.serving.run(parts, f) })
	}
	if f.access != nil {
		group.Go(func() { f.access.run(parts) })
	}
	if f.storage != nil {
		group.Go(func() { f.storage.Run(parts) })
	}
	f.manage(ctx)
	f.endAll()
	cancel()
	group.Wait()
	f.slices.wait()
	if f.shard != nil {
		final, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		f.shard.leave(final)
		return shardErr
	}
	if f.cfg.Keep {
		return nil
	}
	return f.clear(context.WithoutCancel(ctx))
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

// newLink returns the link of a node, which works while p is valid; nil: always.
func (f *Fleet) newLink(node string, p *permit) *link {
	l := &link{permit: p}
	switch f.cfg.Identity {
	case Certificate: // node.certify sets the transport
	case Impersonate:
		l.next, l.user = f.next, "system:node:"+node
	default:
		l.next = f.next
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
		f.haveJoined() // it is true from the first moment on, also if nobody asks
	}
}

// step starts the nodes that may join now, and removes surplus nodes. It reports whether manage should call it again after pollPace.
func (f *Fleet) step() (again bool) {
	late := f.wheel.lateness().Overdue
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.joining {
		if time.Since(n.began) > joinPatience {
			f.cfg.Log.Warn("a node is not Ready; the others no longer wait for it", "node", n.name, "after", joinPatience, "reason", n.reason())
			f.endJoin(n)
		}
	}
	f.removeExtra() // first, because surplus nodes must be removed even if other nodes cannot join
	if f.shard != nil && !f.startAll(late, true) || !f.startAll(late, false) {
		return true
	}
	return len(f.joining) > 0
}

// startAll starts the nodes that do not run yet; if known is true, only those that have a Node in the API, which would soon be NotReady. It
// returns false if a node must wait. The caller holds the lock.
func (f *Fleet) startAll(late time.Duration, known bool) bool {
	for slice, held := range f.held {
		if !held {
			continue
		}
		for _, m := range f.roster.slices[slice] {
			if f.nodes[m.name] != nil || f.purging[m.name] { // a Node that is being removed must be gone before a node of its name starts
				continue
			}
			if _, is := f.known[m.name]; known && !is {
				continue
			}
			if !f.pace.allows(len(f.joining), late) {
				return false
			}
			f.start(m, slice)
		}
	}
	return true
}

// start creates the node and lets it join the cluster in the background. The caller holds the lock.
func (f *Fleet) start(m member, slice int) {
	n := &node{
		fleet: f, group: m.group, index: m.index, name: m.name, slice: slice, began: time.Now(), disk: &checkpoint.InMemory{},
	}
	_, known := f.known[m.name]
	n.isNew = !known
	if len(m.group.CSIDrivers) > 0 {
		n.volumes = &agent.VolumeFiles{}
	}
	var p *permit
	if f.shard != nil {
		p = f.shard.claims.permits[slice]
	}
	n.link = f.newLink(m.name, p)
	n.link.clock = &n.clock
	f.nodes[m.name] = n
	f.joining[n] = true
	n.begin()
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
		n.join()
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

// ErrNoGroup means that the fleet has no group of this name.
var ErrNoGroup = errors.New("no such group")

// noGroup returns the error that the fleet has no group of this name.
func (f *Fleet) noGroup(name string) error {
	return fmt.Errorf("group %q: %w: the fleet has %s", brief(name), ErrNoGroup, f.groupNames())
}

// mostGroupNames bounds how many groups an error names.
const mostGroupNames = 20

// groupNames returns the names of the groups as text.
func (f *Fleet) groupNames() string {
	var names []string
	for i := range f.cfg.Groups {
		names = append(names, cmp.Or(f.cfg.Groups[i].Name, "(no name)"))
	}
	if n := len(names) - mostGroupNames; n > 0 {
		return fmt.Sprintf("%s and %d more", listed(names[:mostGroupNames]), n)
	}
	return listed(names)
}

// Scale sets the number of nodes of a group. group may be "" if the fleet has only one group. If the number falls, the nodes with the
// largest indexes are removed, with the pods on them. Scale returns at once; nodes join and leave in the background. With Config.Shard it
// changes the number for all processes that share the fleet.
func (f *Fleet) Scale(group string, count int) error {
	if count < 0 || count > MaxNodes {
		return fmt.Errorf("%d nodes: use 0 to %d", count, MaxNodes)
	}
	change := func(have []int) ([]int, error) { return f.scaledTo(have, group, count) }
	if f.shard == nil {
		return f.changeWant(change)
	}
	return f.shard.scale(change)
}

// scaledTo returns the numbers of nodes of all groups after a change of one.
func (f *Fleet) scaledTo(have []int, group string, count int) ([]int, error) {
	i := slices.IndexFunc(f.cfg.Groups, func(g Group) bool { return g.Name == group || group == "" && len(f.cfg.Groups) == 1 })
	if i < 0 {
		if group == "" {
			return nil, fmt.Errorf("the fleet has several groups: choose one of %s", f.groupNames())
		}
		return nil, f.noGroup(group)
	}
	total := count
	for j, n := range have {
		if j != i {
			total += n
		}
	}
	if total > MaxNodes {
		return nil, fmt.Errorf("the fleet would have %d nodes: at most %d", total, MaxNodes)
	}
	want := slices.Clone(have)
	want[i] = count
	return want, nil
}

// changeWant lets the fleet have other numbers of nodes. change gets the present numbers, one for each group, and must not keep them.
func (f *Fleet) changeWant(change func(have []int) ([]int, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	want, err := change(f.want)
	if err != nil {
		return err
	}
	r, err := newRoster(f.cfg.Name, f.cfg.Groups, want, len(f.held))
	if err != nil {
		return err
	}
	f.want, f.roster, f.purge = want, r, true
	f.look()
	return nil
}

// changedWant returns the numbers of nodes after a change that is not in force yet, or an error if the fleet cannot have them.
func (f *Fleet) changedWant(change func(have []int) ([]int, error)) ([]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	want, err := change(f.want)
	if err == nil {
		_, err = newRoster(f.cfg.Name, f.cfg.Groups, want, len(f.held))
	}
	return want, err
}
