package status

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/base/stack"
	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/mergepatch"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// The timings of the writer.
const (
	maxAge       = 2 * time.Second        // how much longer a change that only people read may wait than an urgent one
	repairAfter  = time.Second            // minimum time between a write and the repair of another component's change; it doubles with each repair in a row
	repairMax    = 5 * time.Minute        // the longest time between two repairs
	repairRest   = 2 * repairMax          // after this time without a repair, the next one is the first again
	manyRepairs  = 5                      // repairs in a row that are logged, because somebody undoes them
	moreWithin   = 2 * time.Second        // how long a status of a starting pod waits for further changes
	endWithin    = time.Second            // how long the end of the last container of a deleted pod waits for the pod's final status
	lateWithin   = 10 * time.Second       // like moreWithin, for a pod that waits for other pods to start, or that is being deleted
	retryInitial = 200 * time.Millisecond // wait after the first failed request; it doubles with each further failure
	retryMax     = 10 * time.Second
	rejectMax    = 5 * time.Minute // the longest wait after the API refused the content
	mostFailures = 21              // number of failures after which the back-off no longer grows
)

// Pods reads and writes the pods of one namespace. Several goroutines call it, but there is only one call at a time for each pod.
// A call may be repeated.
type Pods interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Pod, error)
	// Patch is called for the subresource "status" only.
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Config configures a Writer.
type Config struct {
	// Pods returns the client for a namespace. Required.
	Pods func(namespace string) Pods
	// Log gets rejected statuses and outages of the API server. Default: nothing is logged.
	Log *slog.Logger
	// Parallel is how many requests may be in flight at once. Each pod has at most one. Default 16.
	Parallel int
	// Timeout is the timeout of one request. Default 30 s.
	Timeout time.Duration
	// Refused, when set, is called without locks for each mirror whose status the API server rejects as invalid.
	Refused func(mirror types.UID)
	// Synced, when set, is called with the time from the first Set of a status to its acknowledgement.
	Synced func(time.Duration)
}

// Desired is the status of one pod that the Writer has to write to the API.
type Desired struct {
	// Pod is the newest object of the watch (for a static pod: its mirror). Its UID identifies the pod in the API. It must not be
	// modified. Set ignores a pod without a resourceVersion, because such a pod is not in the API.
	Pod *v1.Pod
	// Status is the complete status. The Writer copies it.
	Status v1.PodStatus
	// Queued says that the pod waits for other pods to start first. Its status "Pending" then waits longer, so that the
	// statuses of those pods are written first.
	Queued bool
	// Final says that everything of the pod has stopped and is torn down. Once this status is acknowledged the
	// pod is deleted, if it has a deletion timestamp and is not a mirror.
	Final bool
}

// Writer writes the statuses that callers pass to Set to the API. All methods may be called concurrently. Only First and Run block.
type Writer struct {
	cfg Config

	mu      sync.Mutex
	pods    map[types.UID]*entry
	ready   due.Heap[*place] // ordered by urgency
	waiting due.Heap[*place] // ordered by the earliest time at which a request may be sent
	// workers is the number of worker goroutines. inFlight is how many of these workers are sending a request.
	workers, inFlight int
	outage            bool // the last request failed because of the server or the network, not because of its pod
	firsts            map[types.UID]*first
	running           bool
	ctx               context.Context
	rounds            *rounds.Rounds // each round calls promote
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
	base *v1.Pod       // newest known object of the pod; nil if ended is set
	want *v1.PodStatus // newest status from Set; nil: Set was not called yet
	echo *v1.PodStatus // the status that the API stored for the acknowledged version

	place *place // position of the pod in the ready queue or in the waiting queue; nil: the pod is in neither
	// since is when the wait for further changes began (see patience): when want first changed after its last acknowledgement, when the pod
	// left the start gate, or when the last container of a deleted pod ended.
	since time.Time
	wrote time.Time // when the last request ended

	version  uint32   // number of calls of Set that changed want
	acked    uint32   // version that the API acknowledged
	rejected uint32   // version that the API rejected
	refusal  *refusal // set if the API server rejected the version in the field rejected as invalid; otherwise nil
	failures uint8    // failed requests in a row, at most mostFailures
	repairs  uint8    // repairs in a row, at most mostFailures: status that another component changed although it was acknowledged
	alone    alone    // whether the requests of other pods succeed meanwhile
	final    bool
	queued   bool
	inFlight bool
	ended    bool
}

// refusal says that the API rejected a status as invalid.
type refusal struct {
	resourceVersion string    // the pod's resourceVersion when the API rejected the status
	notUntil        time.Time // the status is not sent again before this time
}

// place is the position of an entry in a queue. A pod at rest has none.
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
	if cfg.Synced == nil {
		cfg.Synced = func(time.Duration) {}
	}
	w := &Writer{cfg: cfg, pods: map[types.UID]*entry{}, firsts: map[types.UID]*first{}}
	w.rounds = rounds.New(func(context.Context) time.Duration { return w.promote() })
	return w
}

// Begin sends statuses in the background until ctx ends. It returns at once; join waits until no request is in flight. It may be
// called once.
func (w *Writer) Begin(ctx context.Context) (join func()) {
	w.mu.Lock()
	w.ctx, w.running = ctx, true
	w.spawn()
	w.mu.Unlock()
	ended := w.rounds.Begin(ctx)
	return func() {
		ended()
		w.mu.Lock()
		w.running = false
		w.mu.Unlock()
		w.wg.Wait()
	}
}

// Run sends pod statuses to the API server. Run calls Begin, and returns when ctx has ended and no request is in flight. A caller uses
// either Run or Begin, and only once.
func (w *Writer) Run(ctx context.Context) error {
	w.mu.Lock()
	ran := w.ctx != nil
	w.mu.Unlock()
	if ran {
		return errors.New("run status writer: it has run already")
	}
	return rounds.Until(ctx, w.Begin)
}

// Set sets the status that d.Pod should have in the API from now on.
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
	if e.want == nil || !mergepatch.Equal(e.want, want) {
		lastEnd := e.base.DeletionTimestamp != nil && allEnded(want) && (e.want == nil || !allEnded(e.want))
		e.want = want
		e.version++
		if e.acked+1 == e.version || e.since.IsZero() || lastEnd {
			e.since = now
		}
		if e.rejected != 0 { // forget the refusal, because the part that the API rejected may have changed
			e.failures, e.rejected, e.refusal = 0, 0, nil
		}
	}
	if e.queued && !d.Queued {
		e.since = now
	}
	e.queued = d.Queued
	w.schedule(e, now)
	w.tellFirst(d.Pod.UID, e)
}

// Observe takes an object that the watch delivered. If another component changed a field that the Writer wrote, the Writer writes the
// field again.
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

// Forget drops the state of a pod. A request in flight continues, and the Writer ignores its answer.
func (w *Writer) Forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.pods[uid]; e != nil {
		w.end(e)
		w.tellFirst(uid, e)
		delete(w.pods, uid)
	}
}

// Owes reports whether a status or a deletion of a pod is still to be sent and is likely to succeed: fewer than three requests
// have failed in a row.
func (w *Writer) Owes(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[uid]
	return e != nil && !e.ended && e.failures < 3 && (e.inFlight || e.dirty())
}

// observe makes p the newest known object of the pod (base) if p is newer, and reports whether p is newer.
func (e *entry) observe(p *v1.Pod) bool {
	if e.base != nil && p.ResourceVersion == e.base.ResourceVersion {
		e.share(p)
		return false
	}
	if e.base != nil && !newer(p.ResourceVersion, e.base.ResourceVersion) {
		return false
	}
	if e.echo != nil && mergepatch.Equal(e.echo, &p.Status) {
		// Use the status of the watch's object, which stays in memory anyway, so that the object of the answer can be freed.
		if e.want == e.echo {
			e.want = &p.Status
		}
		e.echo = &p.Status
	}
	e.base = p
	return true
}

// share replaces the object from an answer by the watch's object of the same version, which stays in memory anyway.
func (e *entry) share(p *v1.Pod) {
	if e.want == &e.base.Status {
		e.want = &p.Status
	}
	if e.echo == &e.base.Status {
		e.echo = &p.Status
	}
	e.base = p
}

// newer reports whether resource version a is newer than b. It compares them as numbers if both are numbers. Otherwise a different
// version counts as newer, because it arrived later.
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

// needsPatch reports whether the status has to be sent. A status that was acknowledged and that nobody has changed since is not
// sent again, even if the API server stored only a part of it.
func (e *entry) needsPatch() bool {
	if e.rejected == e.version && e.refusal != nil && e.refusal.resourceVersion == e.base.ResourceVersion {
		return false // neither the status nor the pod has changed since the refusal, so the API would reject the status again
	}
	if e.acked == e.version && e.echo != nil &&
		(e.echo == &e.base.Status || mergepatch.Equal(e.echo, &e.base.Status)) {
		return false
	}
	return differs(&e.base.Status, e.want)
}

// needsDelete reports whether the pod has to be deleted. Package mirror deletes mirrors.
func (e *entry) needsDelete() bool {
	return e.final && e.base.DeletionTimestamp != nil && !pod.IsMirror(e.base)
}

// schedule puts e into the right queue if it has something to send. It is called with the lock held.
func (w *Writer) schedule(e *entry, now time.Time) {
	if e.inFlight || e.ended {
		return // a request of the pod is in flight, and finish will schedule the pod again
	}
	if !e.dirty() {
		w.remove(e)
		if e.acked != e.version && e.want != nil && e.rejected != e.version { // the API shows the wanted status, although no request for it was acknowledged
			e.acked, e.echo = e.version, &e.base.Status
		}
		return
	}
	if e.place != nil && e.place.in == &w.waiting && e.failures > 0 {
		return // the pod's back-off is not over
	}
	w.remove(e)
	if e.rejected == e.version && e.refusal != nil && e.needsPatch() && now.Before(e.refusal.notUntil) {
		w.wait(e, e.refusal.notUntil) // without this, another component that keeps changing the pod would cause a request each time
		return
	}
	repair := e.acked == e.version && !e.needsDelete()
	if repair {
		if at := e.wrote.Add(min(repairAfter<<e.repairs, repairMax)); at.After(now) {
			w.wait(e, at)
			return
		}
	}
	if !repair && e.since.Add(lateWithin).After(now) { // nothing waits longer than lateWithin
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

// patience returns how long a change of status waits for the next one, so that one request can contain both changes. It is above 0
// only if another change is likely to follow soon: if the pod is being created, if it has got its sandbox, or if it is being deleted
// and either only its generation has changed or all its containers have ended. In the last case the pod is torn down at once, which
// usually takes less than a second, and the final status says the same and more.
func (e *entry) patience() time.Duration {
	base := &e.base.Status
	switch {
	case e.base.DeletionTimestamp != nil:
		switch {
		case e.final:
		case generationOnly(base, e.want), allEnded(base) && allEnded(e.want):
			return lateWithin
		case allEnded(e.want):
			return endWithin
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

// spawn starts another worker goroutine if there is work for it. It is called with the lock held.
func (w *Writer) spawn() {
	for w.running && w.workers < w.cfg.Parallel && w.workers < w.ready.Len()+w.inFlight {
		w.workers++
		w.wg.Add(1)
		go w.work()
	}
}

// work sends the requests of the pods in the ready queue, most urgent first, until the queue is empty.
func (w *Writer) work() {
	defer w.wg.Done()
	stack.Grow()
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

// promote moves the pods whose time has come from the waiting queue to the ready queue. It returns how long the next pod has to wait.
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

// wait puts e into the waiting queue. At the time at, e moves to the ready queue.
func (w *Writer) wait(e *entry, at time.Time) {
	w.push(&w.waiting, e, at)
	w.nudge()
}

// nudge makes the writer check again which pods of the waiting queue are due.
func (w *Writer) nudge() { w.rounds.Wake() }

func (w *Writer) push(q *due.Heap[*place], e *entry, key time.Time) {
	e.place = &place{e: e, in: q}
	q.Put(e.place, key)
}

// take removes the first pod from a queue and returns it.
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

// end stops all work for e and remembers that the pod has left the API. It is called with the lock held.
func (w *Writer) end(e *entry) {
	w.remove(e)
	e.ended = true
	e.base, e.want, e.echo = nil, nil, nil
}
