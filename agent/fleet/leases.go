package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/edge/heartbeat"
)

const (
	// mostRenewals is the maximum number of renewals in flight, not counting those that an injected fault delays.
	mostRenewals = 64
	// lagWindow is the number of renewals, the newest ones, from which the lateness of leases is computed.
	lagWindow = 512
	// retryLease is the wait after a failed renewal.
	retryLease = time.Second
	// renewFraction is the interval of renewals as a fraction of the lease's duration. An agent that renews its own lease uses the same
	// fraction.
	renewFraction = 0.25
)

// errNoNode means that the Node, which has to be the owner of a new lease, does not exist yet.
var errNoNode = errors.New("the Node does not exist yet")

// wheel renews the leases of all nodes of a fleet. It has one timer for all leases, and one goroutine for each request in flight. Its
// methods may be called concurrently.
type wheel struct {
	api heartbeat.LeaseAPI // sends each request over the link (the transport) of the node that its context names
	log *slog.Logger

	mu     sync.Mutex
	ctx    context.Context // the context of all requests; nil: run was not called yet
	timer  *time.Timer
	due    due.Heap[*kept]
	flying int
	group  sync.WaitGroup
	lags   []time.Duration // the lateness of the newest renewals
	next   int             // the index in lags that the next renewal replaces, once lags is full
	failed int
}

// kept is a lease that the wheel renews.
type kept struct {
	due.Place
	lease heartbeat.Lease
	link  *link
	every time.Duration
	// random spreads the renewals. Only one renewal at a time uses it.
	random *rand.Rand
	first  func() // called when the lease was renewed for the first time; nil: that was done
	// owed is when the renewal was due first. If a renewal fails, the retry is due later, but owed does not change.
	owed time.Time
	done bool
}

// owe stores when the renewal is due first. The caller holds the lock.
func (k *kept) owe(at time.Time) {
	k.owed = at
	if !k.done {
		k.link.owed.Store(at.UnixNano())
	}
}

// run renews leases until ctx ends. It returns when no request is in flight any more.
func (w *wheel) run(ctx context.Context) {
	w.mu.Lock()
	w.ctx = ctx
	w.turn()
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.group.Wait()
}

// of returns the Leases of one node, for agent.Deps. first is called when a lease was renewed for the first time.
// The seed decides how the renewals spread. isNew says that the cluster has no Node of this name yet, so probably no lease either.
func (w *wheel) of(l *link, seed uint64, duration time.Duration, isNew bool, first func()) agent.Leases {
	return leasesOf{w, l, seed, duration, isNew, first}
}

type leasesOf struct {
	wheel    *wheel
	link     *link
	seed     uint64
	duration time.Duration
	isNew    bool
	first    func()
}

// Keep starts to renew the lease of a node, until release is called.
func (o leasesOf) Keep(node string, uid func() types.UID) (release func()) {
	w := o.wheel
	k := &kept{link: o.link, random: rand.New(rand.NewPCG(o.seed, 3)), every: time.Duration(float64(o.duration) * renewFraction), first: o.first}
	k.lease = heartbeat.Lease{API: w.api, Node: node, Duration: o.duration, Timeout: k.every, CreateFirst: o.isNew, Owner: func(context.Context) (types.UID, error) {
		if u := uid(); u != "" {
			return u, nil
		}
		return "", errNoNode
	}}
	if o.link.clock != nil {
		k.lease.Clock = nodeclock.Of(o.link.clock)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k.owe(time.Now())
	w.due.Put(k, k.owed)
	w.turn()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		k.done = true
		k.link.owed.Store(0)
		w.due.Remove(k)
	}
}

// turn starts the renewals that are due, and sets the timer for the next one. The caller holds the lock.
func (w *wheel) turn() {
	if w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	for {
		k, ok := w.due.First()
		if !ok {
			return
		}
		wait := time.Until(k.At())
		if wait > 0 {
			if w.timer == nil {
				w.timer = time.AfterFunc(wait, w.fire)
			} else {
				w.timer.Reset(wait)
			}
			return
		}
		counts := !k.link.delays() // renewals that a fault delays, at most one of each node, must not keep those of other nodes waiting
		if counts && w.flying >= mostRenewals {
			return
		}
		w.due.Pop()
		if counts {
			w.flying++
		}
		w.group.Go(func() {
			w.renew(k)
			w.renewed(counts)
		})
	}
}

func (w *wheel) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn()
}

// renew renews one lease. It sends no request while the node has a fault that prevents renewals (a partition or FaultLease).
func (w *wheel) renew(k *kept) {
	err := errPartition
	if k.link.keepsLease() {
		ctx, cancel := context.WithTimeout(through(w.ctx, k.link), k.every)
		err = k.lease.Renew(ctx)
		cancel()
	}
	if err == nil && k.first != nil {
		k.first()
		k.first = nil
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	next := now.Add(retryLease)
	switch {
	case err == nil:
		w.note(now.Sub(k.owed))
		// Jitter spreads the renewals of nodes that joined together.
		next = now.Add(k.every - time.Duration(k.random.Float64()*0.1*float64(k.every)))
		k.owe(next)
	case k.done: // the node ends, and with it the connection of this request
	case errors.Is(err, errNoNode), !k.link.keepsLease():
		k.owe(next) // this does not count as late: the Node does not exist yet, or an injected fault prevents the renewal
	case w.ctx.Err() == nil:
		w.failed++
		w.log.Debug("a lease was not renewed; trying again", "node", k.lease.Node, "err", err)
	}
	if !k.done {
		w.due.Put(k, next)
	}
}

// renewed starts the renewals that are due after one has ended. counted says that it had one of the mostRenewals slots.
func (w *wheel) renewed(counted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if counted {
		w.flying--
	}
	w.turn()
}

// note stores how late a renewal was. The caller holds the lock.
func (w *wheel) note(lag time.Duration) {
	if len(w.lags) < lagWindow {
		w.lags = append(w.lags, lag)
		return
	}
	w.lags[w.next] = lag
	w.next = (w.next + 1) % lagWindow
}

// Lateness says how late the leases of a fleet are renewed: the time from when a renewal is due until the API server has answered.
type Lateness struct {
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
	// Renewals is how many renewals, the newest ones, P50 and P99 are of. Without any they are 0 and say nothing.
	Renewals int `json:"renewals"`
	// Overdue is for how long the next renewal in the queue has been due; 0: none is overdue. For a node whose requests an injected fault delays,
	// only the time since its last try counts.
	Overdue time.Duration `json:"overdue"`
	// Failed is how many renewals have failed since the start. Renewals that an injected fault prevented are not counted.
	Failed int `json:"failed"`
}

// lateness returns how late the newest renewals were.
func (w *wheel) lateness() Lateness {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := Lateness{Failed: w.failed}
	if k, ok := w.due.First(); ok && w.ctx != nil {
		due := k.owed
		if k.link.delays() { // the fault is why it is late, so no join has to wait for it
			due = k.At()
		}
		l.Overdue = max(0, time.Since(due))
	}
	l.Renewals = len(w.lags)
	if n := l.Renewals; n > 0 {
		sorted := slices.Sorted(slices.Values(w.lags))
		l.P50, l.P99 = sorted[n/2], sorted[n*99/100]
	}
	return l
}
