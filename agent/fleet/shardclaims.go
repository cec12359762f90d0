package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// shardDuration is how long a lease of a shard or a slice is valid after its last renewal.
	shardDuration = 15 * time.Second
	// shardFence is how long the nodes of a slice run after the last renewal that succeeded. It is shorter than shardDuration, so that the
	// nodes have ended before another shard may take the slice.
	shardFence = 10 * time.Second
	// shardRenew is the age of a renewal at which the next one is due. Since it is more than one and less than two shardTicks, every second
	// beat renews a lease.
	shardRenew = 3 * time.Second
	// shardTick is the interval at which a shard renews what is due, reads the leases and decides.
	shardTick = 2 * time.Second
	// shardRequest bounds one request for a lease.
	shardRequest = 3 * time.Second
	// fencePace is the interval at which a shard looks for slices whose renewals have failed for too long.
	fencePace = 250 * time.Millisecond
	// leaseWrites is how many leases of slices are written at the same time.
	leaseWrites = 64
)

// errNotHeld is the error of a request of a node whose slice this process does not hold any more.
var errNotHeld = errors.New("this process may not run the node any more: it could not renew the lease of the node's slice")

// permit says until when the nodes of a slice may send requests to the API server. It holds also if the process was stopped and timers are
// late. Its methods may be called concurrently.
type permit struct {
	base  time.Time
	until atomic.Int64 // since base
}

func (p *permit) grant(until time.Time) { p.until.Store(int64(until.Sub(p.base))) }

// end ends the permit at once.
func (p *permit) end() { p.until.Store(0) }

func (p *permit) over() bool { return int64(time.Since(p.base)) >= p.until.Load() }

// claim is a slice that this process holds.
//
//	take ──► held ──► giving ──► released
//	          │          │
//	          └── lost ◄─┘    (not renewed for shardFence, or another process holds it)
type claim struct {
	lease  *coordinationv1.Lease // the newest answer of the API server
	sent   time.Time             // when the newest renewal that succeeded was sent
	giving bool                  // its nodes end; then the lease is released
	// unsure means that the lease has another version than expected: a renewal whose answer was lost, or another holder. The next list tells.
	unsure bool
}

// claims are the slices that this process holds, and their leases. Its methods may be called concurrently.
type claims struct {
	f       *Fleet
	api     leaseAPI
	id      string    // the holder in the leases
	permits []*permit // of each slice

	mu   sync.Mutex
	held map[int]*claim
}

// leaseAPI is what a shard needs of the API server.
type leaseAPI interface {
	List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Create(context.Context, *coordinationv1.Lease, metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(context.Context, *coordinationv1.Lease, metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// mine returns the slices that this process holds, also those that it is giving away.
func (c *claims) mine() map[int]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[int]bool{}
	for i := range c.held {
		out[i] = true
	}
	return out
}

// chosen returns the slices whose claims match, in order.
func (c *claims) chosen(match func(*claim) bool) (out []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range slices.Sorted(maps.Keys(c.held)) {
		if match(c.held[i]) {
			out = append(out, i)
		}
	}
	return out
}

// write sends a lease with another holder ("": none) to the API server, with a bounded time. sent is when the request was sent; zero: it was not, because
// ctx had ended. If ctx is canceled later, write waits for the answer all the same: without it, nobody knows the version of the lease, and cannot
// release it.
func (c *claims) write(ctx context.Context, l *coordinationv1.Lease, holder string) (got *coordinationv1.Lease, sent time.Time, err error) {
	if err := ctx.Err(); err != nil {
		return nil, time.Time{}, err
	}
	deadline := time.Now().Add(shardRequest)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	next := l.DeepCopy()
	sent = time.Now()
	hold(next, holder, sent)
	if l.ResourceVersion == "" {
		got, err = c.api.Create(ctx, next, metav1.CreateOptions{})
	} else {
		got, err = c.api.Update(ctx, next, metav1.UpdateOptions{})
	}
	return got, sent, err
}

// renew renews the leases of slices whose renewal is due.
func (c *claims) renew(ctx context.Context) {
	now := time.Now()
	c.renewAll(ctx, c.chosen(func(cl *claim) bool { return !cl.unsure && now.Sub(cl.sent) >= shardRenew }))
}

func (c *claims) renewAll(ctx context.Context, due []int) {
	limited(due, leaseWrites, func(i int) { c.renewOne(ctx, i) })
}

func (c *claims) renewOne(ctx context.Context, i int) {
	c.mu.Lock()
	cl := c.held[i]
	if cl == nil {
		c.mu.Unlock()
		return
	}
	l := cl.lease
	c.mu.Unlock()
	got, sent, err := c.write(ctx, l, c.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[i] != cl { // lost in the meantime
		return
	}
	switch {
	case err == nil:
		cl.lease, cl.sent, cl.unsure = got, sent, false
		c.permits[i].grant(sent.Add(shardFence))
	case apierrors.IsNotFound(err):
		c.lose(i, "its lease was deleted")
	case apierrors.IsConflict(err):
		cl.unsure = true
	default:
		c.f.cfg.Log.Warn("the lease of a slice was not renewed; trying again", "slice", i, "err", err)
	}
}

// confirm looks at claims that are unsure. If the lease still names this process, it is renewed; otherwise the slice is lost.
func (c *claims) confirm(ctx context.Context, all map[string]*coordinationv1.Lease) {
	var again []int
	for _, i := range c.chosen(func(cl *claim) bool { return cl.unsure }) {
		l := all[sliceLease(c.f.cfg.Name, i)]
		c.mu.Lock()
		if cl := c.held[i]; cl != nil {
			if holderOf(l) == c.id {
				cl.lease = l
				again = append(again, i)
			} else {
				c.lose(i, "another shard holds it")
			}
		}
		c.mu.Unlock()
	}
	c.renewAll(ctx, again)
}

// lose ends the claim of a slice at once, and its nodes. The caller holds the lock.
func (c *claims) lose(i int, why string) {
	delete(c.held, i)
	c.permits[i].end()
	c.f.cfg.Log.Warn("this shard has lost a slice; its nodes end here", "slice", i, "why", why)
	c.f.setHeld(i, false)
}

// fence loses the slices that have not been renewed for too long, until ctx ends.
func (c *claims) fence(ctx context.Context) {
	for pause(ctx, fencePace) {
		c.mu.Lock()
		for _, i := range slices.Sorted(maps.Keys(c.held)) {
			if time.Since(c.held[i].sent) >= shardFence {
				c.lose(i, fmt.Sprintf("its lease was not renewed for %s", shardFence))
			}
		}
		c.mu.Unlock()
	}
}

// take takes free slices, for at most shardRequest. It leaves out those that another shard takes at the same time.
func (c *claims) take(ctx context.Context, wanted []int, all map[string]*coordinationv1.Lease) {
	if len(wanted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shardRequest)
	defer cancel()
	var got atomic.Int32
	limited(wanted, leaseWrites, func(i int) {
		name := sliceLease(c.f.cfg.Name, i)
		l := all[name]
		if l == nil {
			l = newLease(c.f.cfg.Name, name, leaseOfSlice)
		}
		lease, sent, err := c.write(ctx, l, c.id)
		if err != nil {
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				c.f.cfg.Log.Warn("a slice was not taken; trying again", "slice", i, "err", err)
			}
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held[i] = &claim{lease: lease, sent: sent}
		c.permits[i].grant(sent.Add(shardFence))
		c.f.setHeld(i, true)
		got.Add(1)
	})
	c.f.cfg.Log.Info("this shard has taken slices", "slices", got.Load())
}

// give begins to give slices away: their nodes end. release then releases the leases.
func (c *claims) give(away []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := 0
	for _, i := range away {
		if cl := c.held[i]; cl != nil && !cl.giving {
			cl.giving = true
			c.f.setHeld(i, false)
			began++
		}
	}
	if began > 0 {
		c.f.cfg.Log.Info("this shard gives slices to others", "slices", began)
	}
}

// release releases the leases of slices that are given away, but not of those that are busy: their nodes have not ended yet.
func (c *claims) release(ctx context.Context, busy map[int]bool) {
	giving := slices.DeleteFunc(c.chosen(func(cl *claim) bool { return cl.giving }), func(i int) bool { return busy[i] })
	limited(giving, leaseWrites, func(i int) {
		c.mu.Lock()
		cl := c.held[i]
		if cl == nil {
			c.mu.Unlock()
			return
		}
		delete(c.held, i) // from here on the lease runs out even if it is not released
		c.permits[i].end()
		l := cl.lease
		c.mu.Unlock()
		if _, _, err := c.write(ctx, l, ""); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			c.f.cfg.Log.Warn("the lease of a slice was not released; it runs out by itself", "slice", i, "after", shardDuration, "err", err)
		}
	})
}
