package syncloop

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/node/lastlife"
	"github.com/wherry-node/wherry/internal/node/podworker"
	"github.com/wherry-node/wherry/internal/node/resizes"
)

// Loop holds the workers of a node, one per pod. Create it with New, then Begin it.
type Loop struct {
	cfg     Config
	gate    *podworker.Gate
	worker  podworker.Config // Begin sets the field Context
	resizes *resizes.Queue   // the resizes that pods ask for; it decides only while the admission lock is held

	admission sync.Mutex // the admission lock: held while admission of one pod is decided, never during IO

	mu      sync.Mutex
	wg      sync.WaitGroup
	workers map[types.UID]*member
	names   map[string]int // number of workers by full name
	seq     int
	network Network
	reading int                  // workers that have not read their checkpoint yet
	early   map[types.UID]string // calls of Look before Begin: the cause by UID
	met     bool                 // every pod of the runtime's first listing has a worker
	settled bool                 // the result of Settled

	tooMany map[types.UID][]string            // dead containers beyond MaxDeadContainers, by pod
	short   map[types.UID][]string            // dead containers that must be removed because the disk is short, by pod
	left    lastlife.Lives[*podworker.Worker] // the workers of static pods that may come back, from which the next life continues

	housekeeping *rounds.Rounds
	storage      *rounds.Rounds // checks the pods' storage limits; nil: nothing is checked
	nextKeep     time.Time      // when the next housekeeping is due
	looks        int            // how often storageRound was called; only storageRound uses it

	sweeping *errand                 // calls sweep
	orphans  map[types.UID]time.Time // the orphans whose workers have not ended, and when each was found; only sweep uses the map
	holding  *errand                 // calls callHolds
}

// member is a worker with the state that the loop keeps about it.
type member struct {
	*podworker.Worker
	static   bool   // a source has the pod, as a static one
	sourced  bool   // a source has had the pod
	seen     bool   // Meter.PodSeen was called
	resizing bool   // an accepted resize is being made
	stops    bool   // the node ends the pod for a reason of its own, perhaps since an earlier agent
	stopped  bool   // the node has ended the pod for a reason of its own: nothing of it runs or is mounted
	name     string // full name; "" while only the UID is known
	seq      int    // order of appearance, to rank two pods of one name
	admitted bool
	ended    bool // the pod no longer holds resources of the node
	idle     bool // nothing runs and nothing is mounted
	waits    bool // the pod waits for a predecessor, or for other pods to make room
	evicted  bool // the loop has preempted or evicted the pod
	met      bool // meet was called, so every pod in the runtime with the namespace and name of this pod has a worker
	known    bool // allocated is known: the checkpoint has been read
	asks     bool // the worker has to look again when all checkpoints have been read

	allocated *pod.Allocation // resources allocated to the pod at its last turn

	endsBy *time.Time // when the pod's grace period is over; nil: the pod does not end

	made    *time.Time // when the worker was made; nil after its first turn
	refused *time.Time // when admission first failed because of the Node object; nil: never
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
	l.housekeeping = rounds.New(l.keepRound)
	if cfg.Storage != nil || cfg.PodFiles != nil {
		l.storage = rounds.New(l.storageRound)
	}
	l.resizes = resizes.New(resizing{l}, cfg.Resizes)
	l.sweeping, l.holding = &errand{do: l.sweep, group: &l.wg}, &errand{do: l.callHolds, group: &l.wg}
	l.gate = podworker.NewGate(cfg.StartSlots, cfg.MostStarts, func(uid types.UID) { l.Look(uid, "its turn to start") })
	l.worker = podworker.Config{
		Group: &l.wg, Cache: cfg.Cache, Desired: cfg.Pods, Performer: cfg.Performer, Reporter: l, Host: l,
		Checkpoints: cfg.Checkpoints, Gate: l.gate, Policy: cfg.Policy, Hash: cfg.Hash, Sizes: crispec.Sizes, Gone: l.gone, Log: cfg.Log,
		WentWrong: cfg.WentWrong, Clock: cfg.Clock,
	}
	return l
}

// Run lets the workers take turns until ctx ends, then waits for all actions in flight.
func (l *Loop) Run(ctx context.Context) error { return rounds.Until(ctx, l.Begin) }

// Begin lets the workers take turns until ctx ends. It returns at once. The caller calls join after ctx has ended; join waits for all actions
// in flight.
func (l *Loop) Begin(ctx context.Context) (join func()) {
	l.mu.Lock()
	l.worker.Context = ctx
	l.nextKeep = time.Now().Add(l.cfg.Housekeeping)
	early := l.early
	l.early = nil
	l.mu.Unlock()
	for uid, cause := range early {
		if uid != "" {
			l.Look(uid, cause)
		}
	}
	if cause, ok := early[""]; ok { // the calls for all pods come after the calls for single pods
		l.lookAll(cause)
	}
	joins := []func(){l.housekeeping.Begin(ctx)}
	if l.storage != nil {
		joins = append(joins, l.storage.Begin(ctx))
	}
	return func() {
		for _, j := range joins {
			j()
		}
		l.close()
	}
}

// keepRound does the housekeeping if it is due, and returns the time until it is due next. It does no IO.
func (l *Loop) keepRound(context.Context) time.Duration {
	now := time.Now()
	l.mu.Lock()
	wait := l.nextKeep.Sub(now)
	if wait <= 0 {
		l.nextKeep = now.Add(l.cfg.Housekeeping)
	}
	l.mu.Unlock()
	if wait > 0 {
		return wait
	}
	l.sweeping.ask()
	l.limitDead()
	l.holdsChanged()
	l.retryResizes(resizes.TriggerPeriodic)
	return max(l.cfg.Housekeeping-time.Since(now), 0)
}

// Turns returns an error if the loop is stuck, so that a watchdog can restart the agent.
func (l *Loop) Turns(ctx context.Context) error { return l.housekeeping.Turns(ctx, "pods") }

// close retires all workers and waits for their actions in flight.
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

// Gate returns which pods wait until others have started.
func (l *Loop) Gate() podworker.Line { return l.gate.Line() }

// Look makes the worker of a pod look again. It creates the worker if there is none and the pod is wanted or present. The empty
// UID stands for all pods. It never blocks.
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
	l.look(ref, cause, desired != nil || !obs.Empty(), desired != nil && pod.IsStatic(desired))
}

// look wakes a worker. If there is none and wanted is set, it creates one. static says that a source has the pod as a static one.
func (l *Loop) look(ref pod.Ref, cause string, wanted, static bool) {
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
		w, again := l.left.Take(ref.UID, time.Now())
		if !again {
			w = podworker.New(&l.worker, ref)
		}
		m = l.add(w, ref)
	}
	if m != nil && static {
		m.static = true
	}
	l.mu.Unlock()
	if m != nil {
		m.Look(cause)
	}
}

// add registers a worker. It is called with the lock held.
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
	if l.worker.Context == nil && l.early != nil { // Begin looks at all pods
		l.early[""] = cause
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	for _, p := range l.cfg.Pods.List() {
		if p.UID != "" { // the empty UID would mean all pods again
			l.Look(p.UID, cause)
		}
	}
	synced := l.cfg.Cache.Synced()
	for _, o := range l.cfg.Cache.List() {
		l.look(o.Ref, cause, true, false)
	}
	l.mu.Lock()
	l.met = l.met || synced
	uids := make([]types.UID, 0, len(l.workers))
	for uid := range l.workers {
		uids = append(uids, uid)
	}
	l.mu.Unlock()
	for _, uid := range uids {
		l.look(pod.Ref{UID: uid}, cause, false, false)
	}
	if l.cfg.Pods.Ready() && synced {
		l.sweeping.ask()
	}
}

// SetNetwork stores the state of the pod network that the runtime reports. If it has changed, all workers look again.
func (l *Loop) SetNetwork(n Network) {
	l.mu.Lock()
	changed := l.network != n
	l.network = n
	l.mu.Unlock()
	if changed {
		l.lookAll("the pod network changed")
	}
}

// Worker returns the worker of a pod, or nil.
func (l *Loop) Worker(uid types.UID) *podworker.Worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.workers[uid]; m != nil {
		return m.Worker
	}
	return nil
}

// Expects reports whether an action in flight causes the change that a hint (a CRI event) announces.
func (l *Loop) Expects(h pod.Hint) bool {
	w := l.Worker(h.UID)
	return w != nil && w.Expects(h)
}

// Present reports whether a pod of this name has a worker, so that something of it may be left on the node.
func (l *Loop) Present(namespace, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[pod.Ref{Namespace: namespace, Name: name}.FullName()] > 0
}

// gone drops the worker of a pod of which nothing is left. If a source has the pod again by now, the pod starts a new life.
func (l *Loop) gone(uid types.UID) {
	l.mu.Lock()
	last := l.workers[uid]
	static := last != nil && last.static
	l.mu.Unlock()
	var next *podworker.Worker
	if static {
		next = last.Next()
	}
	l.mu.Lock()
	if last != nil && last.name != "" {
		if l.names[last.name]--; l.names[last.name] == 0 {
			delete(l.names, last.name)
		}
	}
	delete(l.workers, uid)
	l.resizes.Drop(uid)
	if static { // before the lock is released, so that a concurrent Look continues from the last life
		l.left.Keep(uid, next, time.Now())
	}
	l.mu.Unlock()
	l.cfg.Prober.Forget(uid)
	l.cfg.Objects.Forget(uid)
	l.cfg.Pods.Forget(uid)
	if p, _ := l.cfg.Pods.Get(uid); p != nil {
		l.cfg.Meter.Restarted(pod.IsStatic(p))
	}
	l.Look(uid, "wanted or seen again") // repeats a Look that came while the old worker was already retired
	l.wakeWaiting()
	l.retryResizes(resizes.TriggerEnded)
}

var (
	_ podworker.Host     = (*Loop)(nil)
	_ podworker.Reporter = (*Loop)(nil)
)

// Node returns the state of the node that the decision about one pod needs.
func (l *Loop) Node(ref pod.Ref) decide.Node {
	n := decide.Node{SourcesReady: l.cfg.Pods.Unwanted(ref) && l.cfg.Cache.Synced(), Predecessor: l.predecessor(ref)}
	l.mu.Lock()
	n.NetworkReady, n.NetworkMessage = l.network.Ready, l.network.Message
	if n.Excess = l.tooMany[ref.UID]; l.short[ref.UID] != nil {
		n.Excess = slices.Concat(n.Excess, l.short[ref.UID])
	}
	l.mu.Unlock()
	return n
}

// Probe makes the probes match the running containers, and sets results to their present results.
func (l *Loop) Probe(p *v1.Pod, obs *pod.Observed, m *decide.Memory, results *decide.ProbeResults) {
	l.cfg.Prober.Sync(p, obs, m, results)
}

// Turn is called at the end of a worker's turn: it updates what the loop keeps about the pod, and reports the turn.
func (l *Loop) Turn(t *podworker.Turn) {
	l.mu.Lock()
	freed, first, containers := false, false, 0
	var made *time.Time
	if m := l.workers[t.Ref.UID]; m != nil {
		made, m.made = m.made, nil
		m.admitted = t.Memory.Admitted
		rejected := t.Memory.Stop != nil && t.Memory.Stop.Rejected
		ended := t.Plan.Phase >= decide.PhaseStopped || rejected
		idle := t.Plan.Phase >= decide.PhaseStopped || (t.Pod != nil && m.waits && t.Observed.Empty())
		freed = ended && !m.ended || idle && !m.idle
		m.ended, m.idle = ended, idle
		m.stops = t.Memory.Stop != nil
		m.stopped = m.stops && t.Plan.Phase >= decide.PhaseStopped
		m.allocated, m.known = t.Memory.Allocated, true
		m.sourced, m.resizing = m.sourced || t.Desired != nil, t.Memory.Resize.InProgress
		containers, first = m.see(t)
		m.endsBy = nil
		if t.Plan.Ending || ended {
			l.resizes.Drop(t.Ref.UID)
		}
		if t.Plan.Ending && !ended {
			m.endsBy = new(t.Plan.StopBegan.Add(t.Plan.StopGrace))
		}
	}
	l.mu.Unlock()
	l.cfg.Reporter.Turn(t)
	l.meter(t, made)
	if first {
		l.cfg.Meter.PodSeen(containers)
	}
	if freed {
		l.holdsChanged()
		l.wakeWaiting()
		l.retryResizes(resizes.TriggerEnded)
	}
}

// see reports whether this is the first turn in which the source of the pod is known. containers is the number of containers in its spec;
// 0: no source has the pod, and the node removes it from the runtime.
func (m *member) see(t *podworker.Turn) (containers int, first bool) {
	orphan := !m.sourced && t.Plan.Ending && !t.Observed.Empty()
	if m.seen || t.Desired == nil && !orphan {
		return 0, false
	}
	m.seen = true
	if t.Desired == nil {
		return 0, true
	}
	return len(t.Desired.Spec.Containers), true
}

// meter counts a turn. made is when the worker was created if this is its first turn, and nil otherwise.
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
	if s := t.Plan.Stop; s != nil && s.Reason == decide.ReasonVolumeLimit { // as upstream's kubelet counts it
		l.cfg.Meter.Rejected(s.Reason)
	}
	l.cfg.Meter.Turn(operation, time.Since(t.Now))
}

// Refresh makes the worker set up the volumes of a pod again, because an object that the volumes show has changed, or a token is due.
func (l *Loop) Refresh(uid types.UID) {
	l.mu.Lock()
	m := l.workers[uid]
	l.mu.Unlock()
	if m != nil {
		m.Refresh("an object that it refers to changed, or its token is due")
	}
}
