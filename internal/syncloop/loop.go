package syncloop

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/admit"
	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/podworker"
	"github.com/wherry-node/wherry/internal/volume"
)

// Pods are what the sources want.
type Pods interface {
	podworker.Desired
	List() []*v1.Pod
	Mirror(p *v1.Pod) *v1.Pod
	// Ready is true once every source has answered.
	Ready() bool
	// Unwanted reports whether a pod that no source has may be stopped for it.
	Unwanted(ref pod.Ref) bool
	// Forget is called when nothing is left of a pod that no source has.
	Forget(uid types.UID)
}

// Cache is the pod cache.
type Cache interface {
	podworker.Cache
	// List is every pod that the runtime holds, also those that have yet to be inspected.
	List() []*pod.Observed
	// Synced is true once the runtime has been listed.
	Synced() bool
}

// Prober runs the probes of a pod's containers.
type Prober interface {
	// Sync makes the running probes those that the pod's running containers need, and writes what they last
	// said into m.
	Sync(p *v1.Pod, obs *pod.Observed, m *decide.Memory)
	Forget(uid types.UID)
}

// Recorder records events on pods. It must not block.
type Recorder interface {
	Event(p *v1.Pod, container, eventType, reason, message string)
}

// Meter counts what becomes of pods. Calls may be concurrent and must not block.
type Meter interface {
	// WorkerStarted is told how long a new pod waited for its worker's first turn.
	WorkerStarted(waited time.Duration)
	// Turn is told of each turn: create (the first), sync, kill (the pod ends) or terminated.
	Turn(operation string, took time.Duration)
	Rejected(reason string)
	// Evicted is told of a pod that the node ended, with the signal that asked for it.
	Evicted(signal string)
	// Restarted is told of a pod that a source named again while it was on its way out.
	Restarted(static bool)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) WorkerStarted(time.Duration) {}
func (noMeter) Turn(string, time.Duration)  {}
func (noMeter) Rejected(string)             {}
func (noMeter) Evicted(string)              {}
func (noMeter) Restarted(bool)              {}

// Objects follows what pods refer to by name. Both calls are idempotent and cheap.
type Objects interface {
	Track(p *v1.Pod)
	Forget(uid types.UID)
}

// Network is the runtime's word on the pod network.
type Network struct {
	Ready   bool
	Message string
}

// Config is what a Loop works with.
type Config struct {
	Pods        Pods
	Cache       Cache
	Performer   podworker.Performer
	Checkpoints podworker.Checkpoints
	Prober      Prober
	Reporter    podworker.Reporter
	Recorder    Recorder
	// Meter may be nil: nobody counts.
	Meter   Meter
	Objects Objects
	Policy  *decide.Policy
	Hash    func(p *v1.Pod, c *v1.Container) string
	// Refresh brings what Admit and Resize judge by up to date; nil: it always is. Each worker calls it before it waits for
	// the lock of all admissions, so it may do IO.
	Refresh func(ctx context.Context)
	// Admit judges a pod against those that the node holds. It is called under that lock, as is Resize: no IO.
	Admit func(p *v1.Pod, others []*v1.Pod) admit.Result
	// Resize judges what a pod asks for beyond what is allocated to it against the pods that the node holds. Nil: the node
	// accepts everything.
	Resize func(p, allocated *v1.Pod, others []*v1.Pod) admit.ResizeResult
	// NodeKnown reports whether the Node that pods are judged against is known; until then they wait. Nil: it always is.
	NodeKnown func() bool
	// NodeSince reports whether the Node that pods are judged against was read after t; if not, it is read now. Nil: there
	// is nothing newer to read. It must not block.
	NodeSince func(t time.Time) bool
	// Leftovers lists pods that left directories or cgroups and that known does not know.
	Leftovers func(known func(types.UID) bool) ([]types.UID, error)
	// Holds is told the pods that hold a part of the node, when they have changed and now and then: the weights of
	// cgroups above pods follow them. One call at a time, which may take its time. Nil: nobody cares.
	Holds func(ctx context.Context, pods []*v1.Pod)
	// StartPlaces bounds the pods that are being started at once.
	StartPlaces int
	// Storage measures what a pod takes on disk; nil: limits of that are not enforced. It may take its time.
	Storage func(ctx context.Context, p *v1.Pod) (StorageUse, error)
	// PodFiles measures, and keeps within bounds, the files that the agent itself gives a pod's containers; nil: there are none.
	PodFiles func(uid types.UID) (volume.FilesUsage, error)
	// MaxDeadContainers is how many dead containers that have been replaced the node keeps altogether; nil: no limit.
	MaxDeadContainers *int
	// Housekeeping is how often leftovers and dead containers are looked for (1 min).
	Housekeeping time.Duration
	Log          *slog.Logger
}

// Loop holds the workers. Create it with New, then Run it.
type Loop struct {
	cfg    Config
	gate   *podworker.Gate
	worker podworker.Config // its Context is set by Run

	admission sync.Mutex // held while one pod is being judged: never over IO

	mu      sync.Mutex
	wg      sync.WaitGroup
	workers map[types.UID]*member
	names   map[string]int // how many workers have a full name
	seq     int
	network Network
	reading int                  // workers that have not read their checkpoint yet
	early   map[types.UID]string // looks that came before Run
	met     bool                 // every pod of the runtime's first listing has its worker

	excess map[types.UID][]string // dead containers that must go, by pod

	sweeping *errand // looks for leftovers
	holding  *errand // tells who holds a part of the node
}

// member is a worker with what the loop itself must know of it.
type member struct {
	*podworker.Worker
	name     string // full name; "" while only the UID is known
	seq      int    // order of appearance, for two pods of one name
	admitted bool
	ended    bool // holds no resources of the node any more
	idle     bool // nothing runs and nothing is mounted
	waits    bool // for a predecessor, or for others to make room
	told     bool // to make room, or to go for what it holds
	met      bool // those of its name that the runtime has
	known    bool // allocated is what its checkpoint says
	asks     bool // again, when the checkpoints have been read

	allocated *pod.Allocation // as of its last turn
	resize    *resize         // that it asked for; nil: none

	made    *time.Time // when, until its first turn
	refused *time.Time // when the Node first spoke against it; nil: it did not
}

// New returns a Loop; it starts nothing.
func New(cfg Config) *Loop {
	if cfg.Housekeeping == 0 {
		cfg.Housekeeping = time.Minute
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	l := &Loop{cfg: cfg, workers: map[types.UID]*member{}, names: map[string]int{}, early: map[types.UID]string{}}
	l.sweeping, l.holding = &errand{do: l.sweep, group: &l.wg}, &errand{do: l.tellHolds, group: &l.wg}
	l.gate = podworker.NewGate(cfg.StartPlaces, func(uid types.UID) { l.Look(uid, "its turn to start") })
	l.worker = podworker.Config{
		Group: &l.wg, Cache: cfg.Cache, Desired: cfg.Pods, Performer: cfg.Performer, Reporter: l, Host: l,
		Checkpoints: cfg.Checkpoints, Gate: l.gate, Policy: cfg.Policy, Hash: cfg.Hash, Sizes: crispec.Sizes, Gone: l.gone, Log: cfg.Log,
	}
	return l
}

// Run lets the workers work until ctx ends, then waits for all that they began. Its own goroutine does no IO.
func (l *Loop) Run(ctx context.Context) error {
	l.mu.Lock()
	l.worker.Context = ctx
	early := l.early
	l.early = nil
	l.mu.Unlock()
	for uid, cause := range early {
		if uid != "" {
			l.Look(uid, cause)
		}
	}
	if cause, ok := early[""]; ok { // all of them, after those with a cause of their own
		l.lookAll(cause)
	}
	t := time.NewTicker(l.cfg.Housekeeping)
	defer t.Stop()
	if l.cfg.Storage != nil || l.cfg.PodFiles != nil {
		var storage sync.WaitGroup
		defer storage.Wait()
		storage.Go(func() { l.watchStorage(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			l.close()
			return nil
		case <-t.C:
			l.sweeping.ask()
			l.limitDead()
			l.holdsChanged()
			l.retryResizes()
		}
	}
}

// close waits for all that the workers began. None begins anything afterwards.
func (l *Loop) close() {
	l.sweeping.close()
	l.holding.close()
	l.mu.Lock()
	workers := make([]*member, 0, len(l.workers))
	for _, m := range l.workers {
		workers = append(workers, m)
	}
	l.mu.Unlock()
	for _, m := range workers {
		m.Close()
	}
	l.wg.Wait()
}

// Look makes the worker of a pod look again, and makes the worker when the pod is wanted or present. The empty UID
// stands for all pods. It never blocks.
func (l *Loop) Look(uid types.UID, cause string) {
	if uid == "" {
		l.lookAll(cause)
		return
	}
	desired, _ := l.cfg.Pods.Get(uid)
	obs, _ := l.cfg.Cache.Get(uid)
	if desired != nil {
		l.cfg.Objects.Track(desired)
	}
	ref := obs.Ref
	if desired != nil {
		ref = pod.RefOf(desired)
	}
	l.look(ref, cause, desired != nil || !obs.Empty())
}

// look wakes a worker; wanted makes one where there is none.
func (l *Loop) look(ref pod.Ref, cause string, wanted bool) {
	l.mu.Lock()
	if l.worker.Context == nil {
		if l.early != nil {
			l.early[ref.UID] = cause
		}
		l.mu.Unlock()
		return
	}
	m := l.workers[ref.UID]
	if m == nil && wanted && l.worker.Context.Err() == nil {
		m = l.add(podworker.New(&l.worker, ref), ref)
	}
	l.mu.Unlock()
	if m != nil {
		m.Look(cause)
	}
}

// add takes a worker in. It is called with the lock held.
func (l *Loop) add(w *podworker.Worker, ref pod.Ref) *member {
	l.seq++
	l.reading++
	now := time.Now()
	m := &member{Worker: w, seq: l.seq, made: &now}
	l.workers[ref.UID] = m
	l.rename(m, ref)
	return m
}

func (l *Loop) lookAll(cause string) {
	l.mu.Lock()
	if l.worker.Context == nil && l.early != nil { // all are looked at when Run begins
		l.early[""] = cause
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	for _, p := range l.cfg.Pods.List() {
		if p.UID != "" { // that would be all again
			l.Look(p.UID, cause)
		}
	}
	synced := l.cfg.Cache.Synced()
	for _, o := range l.cfg.Cache.List() {
		l.look(o.Ref, cause, true)
	}
	l.mu.Lock()
	l.met = l.met || synced
	uids := make([]types.UID, 0, len(l.workers))
	for uid := range l.workers {
		uids = append(uids, uid)
	}
	l.mu.Unlock()
	for _, uid := range uids {
		l.look(pod.Ref{UID: uid}, cause, false)
	}
	if l.cfg.Pods.Ready() && synced {
		l.sweeping.ask()
	}
}

// sweep makes workers for pods that are neither wanted nor in the runtime but left something on the node. It reads
// directories: see errand.
func (l *Loop) sweep() {
	if l.cfg.Leftovers == nil || !l.cfg.Pods.Ready() || !l.cfg.Cache.Synced() {
		return
	}
	left, err := l.cfg.Leftovers(func(uid types.UID) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.workers[uid] != nil
	})
	if err != nil {
		l.cfg.Log.Error("leftovers of pods not listed", "err", err)
	}
	for _, uid := range left {
		l.look(pod.Ref{UID: uid}, "left something on the node", true)
	}
}

// SetNetwork tells the loop what the runtime says of the pod network.
func (l *Loop) SetNetwork(n Network) {
	l.mu.Lock()
	changed := l.network != n
	l.network = n
	l.mu.Unlock()
	if changed {
		l.lookAll("the pod network changed")
	}
}

// Worker returns the worker of a pod, or nil: for those who explain.
func (l *Loop) Worker(uid types.UID) *podworker.Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.workers[uid]; m != nil {
		return m.Worker
	}
	return nil
}

// Expects reports whether an action is under way that does what a hint of the runtime's tells of.
func (l *Loop) Expects(h pod.Hint) bool {
	w := l.Worker(h.UID)
	return w != nil && w.Expects(h)
}

// Present reports whether anything is left here of a pod of this name, wanted or not.
func (l *Loop) Present(namespace, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[pod.Ref{Namespace: namespace, Name: name}.FullName()] > 0
}

// gone drops the worker of a pod of which nothing is left. A pod that a source names again meanwhile begins anew.
func (l *Loop) gone(uid types.UID) {
	l.mu.Lock()
	last := l.workers[uid]
	if last != nil && last.name != "" {
		if l.names[last.name]--; l.names[last.name] == 0 {
			delete(l.names, last.name)
		}
	}
	delete(l.workers, uid)
	l.mu.Unlock()
	l.cfg.Prober.Forget(uid)
	l.cfg.Objects.Forget(uid)
	l.cfg.Pods.Forget(uid)
	if p, _ := l.cfg.Pods.Get(uid); p != nil && last != nil {
		l.mu.Lock()
		if l.workers[uid] == nil && l.worker.Context.Err() == nil {
			l.add(last.Next(), pod.RefOf(p))
		}
		l.mu.Unlock()
		l.cfg.Meter.Restarted(pod.IsStatic(p))
	}
	l.Look(uid, "wanted or seen again") // a look that came since the last turn was for a worker that was going
	l.wakeWaiting()
	l.retryResizes()
}

var (
	_ podworker.Host     = (*Loop)(nil)
	_ podworker.Reporter = (*Loop)(nil)
)

// Node is the node as one pod must see it.
func (l *Loop) Node(ref pod.Ref) decide.Node {
	n := decide.Node{SourcesReady: l.cfg.Pods.Unwanted(ref) && l.cfg.Cache.Synced(), Predecessor: l.predecessor(ref)}
	l.mu.Lock()
	n.NetworkReady, n.NetworkMessage = l.network.Ready, l.network.Message
	n.Excess = l.excess[ref.UID]
	l.mu.Unlock()
	return n
}

// Probe keeps the pod's probes in step.
func (l *Loop) Probe(p *v1.Pod, obs *pod.Observed, m *decide.Memory) { l.cfg.Prober.Sync(p, obs, m) }

// Turn learns from the end of a worker's turn.
func (l *Loop) Turn(t *podworker.Turn) {
	l.mu.Lock()
	freed := false
	var made *time.Time
	if m := l.workers[t.Ref.UID]; m != nil {
		made, m.made = m.made, nil
		m.admitted = t.Memory.Admitted
		rejected := t.Memory.Stop != nil && t.Memory.Stop.Rejected
		ended := t.Plan.Phase >= decide.PhaseStopped || rejected
		idle := t.Plan.Phase >= decide.PhaseStopped || (t.Pod != nil && m.waits && t.Observed.Empty())
		freed = ended && !m.ended || idle && !m.idle
		m.ended, m.idle = ended, idle
		m.allocated, m.known = t.Memory.Allocated, true
		if t.Plan.Ending || ended {
			m.resize = nil
		}
	}
	l.mu.Unlock()
	l.cfg.Reporter.Turn(t)
	l.meter(t, made)
	if freed {
		l.holdsChanged()
		l.wakeWaiting()
		l.retryResizes()
	}
}

// meter counts a turn; made is when the pod's worker was, if it is the first.
func (l *Loop) meter(t *podworker.Turn, made *time.Time) {
	operation := "sync"
	switch {
	case made != nil:
		operation = "create"
		if t.Desired != nil {
			l.cfg.Meter.WorkerStarted(t.Now.Sub(*made))
		}
	case t.Plan.Phase >= decide.PhaseStopped:
		operation = "terminated"
	case t.Plan.Ending:
		operation = "kill"
	}
	l.cfg.Meter.Turn(operation, time.Since(t.Now))
}

// Refresh makes a pod's volumes follow the objects that they come from: one of them has changed, or a token is due.
func (l *Loop) Refresh(uid types.UID) {
	l.mu.Lock()
	m := l.workers[uid]
	l.mu.Unlock()
	if m != nil {
		m.Refresh("an object that it refers to changed, or its token is due")
	}
}
