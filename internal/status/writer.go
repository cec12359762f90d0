package status

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/due"
	"github.com/wherry-node/wherry/internal/pod"
)

// The timings of the writer.
const (
	maxAge       = 2 * time.Second        // how much longer a cosmetic difference may wait than an urgent one
	repairAfter  = time.Second            // least time between a write and the repair of what another did to it
	moreWithin   = 2 * time.Second        // how long news of a start waits for what follows it soon
	lateWithin   = 10 * time.Second       // the same for a pod that waits for others to start first, and for one that ends
	retryInitial = 200 * time.Millisecond // after a failed request, doubling
	retryMax     = 10 * time.Second
	rejectMax    = 5 * time.Minute // the same after the API refused the content
	mostFailures = 21              // more of them change nothing
)

// Pods are the pods of one namespace. Calls come from several goroutines, one at a time for each pod; each may be repeated.
type Pods interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Pod, error)
	// Patch is called for the subresource "status" only.
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Config is what a Writer needs.
type Config struct {
	// Pods are the pods of a namespace as the API server has them. Required.
	Pods func(namespace string) Pods
	// Log gets what an administrator has to know: refused statuses, outages. Default: nothing.
	Log *slog.Logger
	// Parallel bounds requests in flight (each of another pod). Default 16.
	Parallel int
	// Timeout bounds one request. Default 30 s.
	Timeout time.Duration
	// OnDeleted is called once the API has accepted the deletion of a finished pod, OnGone when a request found
	// that the pod does not exist any more or that its name belongs to another pod. After either, Set for this
	// UID does nothing until Forget. Both are called without locks, from several goroutines.
	OnDeleted func(types.UID)
	OnGone    func(types.UID)
	// Refused, when set, is told of each mirror whose status the API server finds invalid, without locks.
	Refused func(mirror types.UID)
	// Synced, when set, is told how long a status waited from the first Set to its acknowledgement.
	Synced func(time.Duration)
}

// Desired is what the API should say of one pod.
type Desired struct {
	// Pod is the object as the watch last saw it (for a static pod: its mirror). Its UID says whose status this
	// is. It is not changed and must not be changed by others. A pod without a resourceVersion is not in the
	// API: Set ignores it.
	Pod *v1.Pod
	// Status is the whole status. The Writer copies it.
	Status v1.PodStatus
	// Queued says that the pod waits for others to start first: that it is Pending is told later than it would be
	// otherwise, so that those come first here, too.
	Queued bool
	// Final says that everything of the pod has stopped and is torn down. Once this status is acknowledged the
	// pod is deleted, if it has a deletion timestamp and is not a mirror.
	Final bool
}

// Writer makes the API say what Set was told. All methods may be called concurrently; none blocks on the network.
type Writer struct {
	cfg Config

	mu      sync.Mutex
	pods    map[types.UID]*entry
	ready   due.Heap[*place] // by urgency
	waiting due.Heap[*place] // by the time before which nothing may be sent
	// workers are goroutines; inFlight of them hold a pod.
	workers, inFlight int
	outage            bool // the last request failed for reasons that have nothing to do with its pod
	firsts            map[types.UID]*first
	running           bool
	ctx               context.Context
	wake              chan struct{} // capacity 1: the first of waiting has changed
	wg                sync.WaitGroup
}

// entry is one pod.
//
//	        Set/Observe: differs            turn: acknowledged, nothing differs
//	at rest ────────────────────► ready ──► in flight ────────────────────────► at rest
//	                                ▲           │ error              │ deleted, NotFound, other UID
//	                                └─ waiting ◄┘                    ▼
//	                                                               ended
type entry struct {
	base *v1.Pod       // newest known object; nil once it ended
	want *v1.PodStatus // nil: nothing was Set yet
	echo *v1.PodStatus // what the API made of the acknowledged version

	place *place    // in a queue, or nil
	since time.Time // when the unacknowledged want was first Set, or when the pod was queued no more after that
	wrote time.Time // when the last request ended

	version  uint32 // of want: counts Set calls that changed it
	acked    uint32 // version that the API acknowledged
	rejected uint32 // version that the API refused as invalid, and the pod's resource version at which it did
	refused  string
	notUntil time.Time // a refused version is not sent before, whatever changes
	failures uint8     // in a row, as far as the back-off grows
	final    bool
	queued   bool
	inFlight bool
	ended    bool
}

// place is an entry's place in a queue. A pod at rest has none.
type place struct {
	due.Place
	e  *entry
	in *due.Heap[*place]
}

// New returns a Writer that sends nothing until Run.
func New(cfg Config) *Writer {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Parallel <= 0 {
		cfg.Parallel = 16
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.OnDeleted == nil {
		cfg.OnDeleted = func(types.UID) {}
	}
	if cfg.OnGone == nil {
		cfg.OnGone = func(types.UID) {}
	}
	if cfg.Synced == nil {
		cfg.Synced = func(time.Duration) {}
	}
	return &Writer{cfg: cfg, pods: map[types.UID]*entry{}, firsts: map[types.UID]*first{}, wake: make(chan struct{}, 1)}
}

// Run sends until ctx ends, then waits for the requests in flight. It may be called once.
func (w *Writer) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.ctx != nil {
		w.mu.Unlock()
		return errors.New("run status writer: it has run already")
	}
	w.ctx, w.running = ctx, true
	w.spawn()
	w.mu.Unlock()

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.promote())
		select {
		case <-ctx.Done():
			w.mu.Lock()
			w.running = false
			w.mu.Unlock()
			w.wg.Wait()
			return nil
		case <-timer.C:
		case <-w.wake:
		}
	}
}

// Set says what the API should say of d.Pod from now on.
func (w *Writer) Set(d Desired) {
	if d.Pod == nil || d.Pod.UID == "" || d.Pod.ResourceVersion == "" {
		return
	}
	now := time.Now()
	want := normalize(&d.Status, now)
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[d.Pod.UID]
	if e == nil {
		e = &entry{}
		w.pods[d.Pod.UID] = e
	}
	if e.ended {
		return
	}
	e.observe(d.Pod)
	e.final = d.Final
	if e.want != nil {
		keepTransitions(e.want.Conditions, want.Conditions)
	}
	if e.want == nil || !equality.Semantic.DeepEqual(e.want, want) {
		e.want = want
		e.version++
		if e.acked+1 == e.version || e.since.IsZero() {
			e.since = now
		}
		if e.rejected != 0 { // it may be what the API refused that has changed
			e.failures, e.rejected = 0, 0
		}
	}
	if e.queued && !d.Queued {
		e.since = now
	}
	e.queued = d.Queued
	w.schedule(e, now)
	w.tellFirst(d.Pod.UID, e)
}

// Observe tells of an object that the watch has seen. If another component changed what the Writer had written,
// it is written again.
func (w *Writer) Observe(p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[p.UID]
	if e == nil || e.ended || !e.observe(p) {
		return
	}
	w.schedule(e, time.Now())
	w.tellFirst(p.UID, e)
}

// Forget drops all that is known of a pod. A request in flight runs to its end, without effect here.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.pods[uid]; e != nil {
		w.end(e)
		w.tellFirst(uid, e)
		delete(w.pods, uid)
	}
}

// Owes reports whether the API is still to be told something of a pod, and may well take it: nothing of it was refused, and
// no more than a few requests have failed.
func (w *Writer) Owes(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[uid]
	return e != nil && !e.ended && e.failures < 3 && (e.inFlight || e.dirty())
}

// observe makes p the base if it is newer, and reports whether it is.
func (e *entry) observe(p *v1.Pod) bool {
	if e.base != nil && p.ResourceVersion == e.base.ResourceVersion {
		e.share(p)
		return false
	}
	if e.base != nil && !newer(p.ResourceVersion, e.base.ResourceVersion) {
		return false
	}
	if e.echo != nil && equality.Semantic.DeepEqual(*e.echo, p.Status) {
		// Let go of the answer: the watch's object lives anyway.
		if e.want == e.echo {
			e.want = &p.Status
		}
		e.echo = &p.Status
	}
	e.base = p
	return true
}

// share lets go of the answer to a request in favour of the watch's object of the same version, which lives anyway.
func (e *entry) share(p *v1.Pod) {
	if e.want == &e.base.Status {
		e.want = &p.Status
	}
	if e.echo == &e.base.Status {
		e.echo = &p.Status
	}
	e.base = p
}

// newer compares resource versions: "numerically when both parse". What does not parse counts as newer when it
// differs, since it arrived later.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	if errX != nil || errY != nil {
		return a != b
	}
	return x > y
}

// dirty reports whether a request has to be sent.
func (e *entry) dirty() bool {
	return !e.ended && e.want != nil && (e.needsPatch() || e.needsDelete())
}

// needsPatch: an acknowledged status that nobody changed since is not sent again, even where the API server kept
// less than it was told.
func (e *entry) needsPatch() bool {
	if e.rejected == e.version && e.refused == e.base.ResourceVersion {
		return false // nothing has changed since: it would be refused again
	}
	if e.acked == e.version && e.echo != nil &&
		(e.echo == &e.base.Status || equality.Semantic.DeepEqual(*e.echo, e.base.Status)) {
		return false
	}
	return differs(&e.base.Status, e.want)
}

// needsDelete: a mirror is deleted by whoever mirrors.
func (e *entry) needsDelete() bool {
	return e.final && e.base.DeletionTimestamp != nil && !pod.IsMirror(e.base)
}

// schedule puts e into the right queue if it has something to send. Called with the lock held.
func (w *Writer) schedule(e *entry, now time.Time) {
	if e.inFlight || e.ended {
		return // its turn looks again when it ends
	}
	if !e.dirty() {
		w.remove(e)
		if e.acked != e.version && e.want != nil && e.rejected != e.version { // the API says it already
			e.acked, e.echo = e.version, &e.base.Status
		}
		return
	}
	if e.place != nil && e.place.in == &w.waiting && e.failures > 0 {
		return // the back-off runs
	}
	w.remove(e)
	if e.rejected == e.version && e.needsPatch() && now.Before(e.notUntil) {
		w.wait(e, e.notUntil) // someone changes the pod again and again
		return
	}
	repair := e.acked == e.version && !e.needsDelete()
	if repair && now.Sub(e.wrote) < repairAfter {
		w.wait(e, e.wrote.Add(repairAfter))
		return
	}
	if !repair && e.since.Add(lateWithin).After(now) { // nothing waits longer
		at := e.since.Add(e.patience())
		if f := w.firsts[e.base.UID]; f != nil && f.at.Before(at) {
			at = f.at
		}
		if at.After(now) {
			w.wait(e, at)
			return
		}
	}
	key := now
	if !e.needsDelete() && !urgent(&e.base.Status, e.want) {
		key = now.Add(maxAge)
	}
	w.push(&w.ready, e, key)
	w.spawn()
}

// patience is how long the news waits, since all of it is of a kind that other news follows soon: what starts in a pod
// that is being made, what ends in a pod that is deleted, the end of a pod in which all has ended.
func (e *entry) patience() time.Duration {
	base := &e.base.Status
	switch {
	case e.base.DeletionTimestamp != nil:
		if !e.final && (generationOnly(base, e.want) || allEnded(base)) {
			return lateWithin
		}
	case beginning(base, e.want):
		if e.queued {
			return lateWithin
		}
		return moreWithin
	case sandboxOnly(base, e.want):
		return moreWithin
	}
	return 0
}

// spawn starts a worker if there is work for one more. Called with the lock held.
func (w *Writer) spawn() {
	for w.running && w.workers < w.cfg.Parallel && w.workers < w.ready.Len()+w.inFlight {
		w.workers++
		w.wg.Add(1)
		go w.work()
	}
}

// work takes pods in order of urgency until none is left.
func (w *Writer) work() {
	defer w.wg.Done()
	for {
		w.mu.Lock()
		if !w.running || w.ready.Len() == 0 {
			w.workers--
			w.mu.Unlock()
			return
		}
		e := take(&w.ready)
		e.inFlight = true
		w.inFlight++
		w.mu.Unlock()
		w.turn(e)
	}
}

// promote moves what has waited long enough to ready and returns how long the next has to wait.
func (w *Writer) promote() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for {
		first, ok := w.waiting.First()
		if !ok {
			return time.Hour
		}
		if wait := first.At().Sub(now); wait > 0 {
			return wait
		}
		e := take(&w.waiting)
		key := now
		if e.want != nil && !e.needsDelete() && !urgent(&e.base.Status, e.want) {
			key = now.Add(maxAge)
		}
		w.push(&w.ready, e, key)
		w.spawn()
	}
}

// wait makes e ready at a later time.
func (w *Writer) wait(e *entry, at time.Time) {
	w.push(&w.waiting, e, at)
	w.nudge()
}

// nudge makes Run look at waiting again.
func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer) push(q *due.Heap[*place], e *entry, key time.Time) {
	e.place = &place{e: e, in: q}
	q.Put(e.place, key)
}

// take takes the first out of a queue.
func take(q *due.Heap[*place]) *entry {
	e := q.Pop().e
	e.place = nil
	return e
}

func (w *Writer) remove(e *entry) {
	if e.place != nil {
		e.place.in.Remove(e.place)
		e.place = nil
	}
}

// end stops everything for e but remembers that it ended. Called with the lock held.
func (w *Writer) end(e *entry) {
	w.remove(e)
	e.ended = true
	e.base, e.want, e.echo = nil, nil, nil
}
