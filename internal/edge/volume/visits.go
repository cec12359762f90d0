package volume

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/due"
)

// visitEvery is the time between two visits of a mounted volume. A visit expands the volume if it has grown, makes the node publish it
// again if its driver requires that, and asks for its condition. Upstream's kubelet does each about once a minute.
const visitEvery = time.Minute

// visits holds the mounted volumes that are visited periodically (Begin). One heap and one timer serve all of them, and no timer runs
// without such volumes. The zero value is ready.
type visits struct {
	mu     sync.Mutex
	byPod  map[types.UID]map[string]*visit // by the name of the pod's volume
	heap   due.Heap[*visit]
	rounds *rounds.Rounds // woken when the time of the next visit may have changed; nil: Begin was not called yet
	// asks says for which CSI drivers volumes are published again and again (RepublishRequired). For the other drivers, the records of the volumes say it.
	asks map[string]bool
}

// visit is one volume. The mutex of visits guards it.
type visit struct {
	due.Place
	uid               types.UID
	volume, key       string
	republish, expand bool
	grows             bool // the volume is expanded when its driver can do that; expand is false while the driver cannot
	health            bool // ask the driver for the volume's condition
	again             bool // during the visit something has happened that it may have missed: the next visit follows at once
	over              bool // the volume needs no visit for now, and is not in the heap
}

// add makes Begin visit a mounted volume from now on, if it is a CSI or local volume that may grow, whose driver requires republishing, or
// whose condition the node asks for (health).
func (s *visits) add(uid types.UID, volume string, b *bound, health bool) {
	if b.Kind != kindCSI && b.Kind != kindLocal {
		return
	}
	grows := b.Claim != ""
	one := &visit{uid: uid, volume: volume, key: b.key(), expand: grows, grows: grows, health: health, over: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	one.republish = s.again(b)
	if s.byPod == nil {
		s.byPod = map[types.UID]map[string]*visit{}
	}
	if s.byPod[uid] == nil {
		s.byPod[uid] = map[string]*visit{}
	}
	if have := s.byPod[uid][volume]; have != nil && have.key == one.key {
		have.republish, have.health = one.republish, one.health
		one = have
	} else {
		if have != nil {
			s.heap.Remove(have)
		}
		s.byPod[uid][volume] = one
	}
	s.begin(one, time.Now().Add(visitEvery))
}

// begin puts a volume that had no visits into the heap, if it needs them. It is called with the lock held.
func (s *visits) begin(one *visit, at time.Time) {
	if !one.over || !one.needed() {
		return
	}
	one.over = false
	s.heap.Put(one, at)
	s.wake()
}

// needed reports whether there is something to do in visits of the volume.
func (one *visit) needed() bool { return one.expand || one.republish || one.health }

// forget ends the visits of a pod's volumes.
func (s *visits) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byPod[uid] {
		s.heap.Remove(one)
	}
	delete(s.byPod, uid)
}

// refused ends the expansion of a pod's volume, because its driver cannot expand a volume that is in use. The next mount of the volume
// expands it.
func (s *visits) refused(uid types.UID, b *bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byPod[uid] {
		if one.key == b.key() {
			one.expand, one.grows = false, false
		}
	}
}

// registered is called when a CSI driver has registered. health says whether the node asks it for the condition of volumes. The volumes that the driver may
// expand are visited at once. It may be a newer driver, so this includes those that it could not expand before.
func (s *visits) registered(driver string, health bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	of := func(one *visit) bool { return strings.HasPrefix(one.key, driver+"^") }
	s.heap.Hasten(now, func(one *visit) bool { return of(one) && one.grows })
	for _, volumes := range s.byPod {
		for _, one := range volumes {
			if !of(one) {
				continue
			}
			one.expand, one.health = one.grows, health
			one.again = one.again || one.grows && !one.over && !one.Waits()
			s.begin(one, now)
		}
	}
	s.wake()
}

// RepublishRequired tells whether a CSI driver wants its volumes to be published again and again, according to its CSIDriver object. Without this call, what the
// object said when a volume was set up applies.
func (v *Volumes) RepublishRequired(driver string, required bool) {
	v.visits.republish(driver, required)
}

// republish does what RepublishRequired says. Volumes of the driver that needed no visits are visited at once.
func (s *visits) republish(driver string, required bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asks == nil {
		s.asks = map[string]bool{}
	}
	s.asks[driver] = required
	now := time.Now()
	for _, volumes := range s.byPod {
		for _, one := range volumes {
			if strings.HasPrefix(one.key, driver+"^") {
				one.republish = required
				s.begin(one, now)
			}
		}
	}
}

// republishes reports whether a mounted volume is to be published again and again.
func (s *visits) republishes(b *bound) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.again(b)
}

// again does the same as republishes. It is called with the lock held.
func (s *visits) again(b *bound) bool {
	if required, known := s.asks[b.Driver]; known && b.Kind == kindCSI {
		return required
	}
	return b.Republish
}

// wake makes Begin check the heap of visits again. It is called with the lock held.
func (s *visits) wake() {
	if s.rounds != nil {
		s.rounds.Wake()
	}
}

// take removes the volumes that are due from the heap and returns copies of them. next is the time until the next volume is due; it is
// rounds.Never if there is none.
func (s *visits) take(now time.Time) (ready []visit, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, next, more := s.heap.TakeDue(now)
	if !more {
		next = rounds.Never
	}
	for _, one := range due {
		ready = append(ready, *one)
	}
	return ready, next
}

// done schedules the next visit of a volume that was visited, unless the volume is gone or needs no more visits.
func (s *visits) done(was *visit, expand bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byPod[was.uid][was.volume]
	if one == nil || one.key != was.key || one.Waits() {
		return
	}
	next := time.Now()
	if !one.again { // otherwise a driver has registered since then, which may be able to expand
		one.expand = one.expand && (expand || !was.expand)
		next = next.Add(visitEvery)
	}
	one.again = false
	if one.over = !one.needed(); one.over {
		return
	}
	s.heap.Put(one, next)
	s.wake()
}

// Begin visits the mounted volumes of CSI drivers periodically, and unstages the volumes that no pod uses any more, until ctx ends. It returns
// at once; no goroutine waits in between. The caller calls join after ctx has ended. Begin may be called once.
func (v *Volumes) Begin(ctx context.Context) (join func()) {
	var wg sync.WaitGroup
	visits := rounds.New(func(ctx context.Context) time.Duration {
		ready, next := v.visits.take(time.Now())
		for _, one := range ready {
			wg.Go(func() { v.visits.done(&one, v.visit(ctx, &one)) })
		}
		return next
	})
	unstaging := rounds.New(func(ctx context.Context) time.Duration { return v.unstageDue(ctx, &wg) })
	v.visits.mu.Lock()
	v.visits.rounds = visits
	v.visits.mu.Unlock()
	v.stagings.mu.Lock()
	v.stagings.rounds = unstaging
	v.stagings.mu.Unlock()
	endVisits, endUnstaging := visits.Begin(ctx), unstaging.Begin(ctx)
	return func() {
		endVisits()
		endUnstaging()
		wg.Wait()
	}
}

// visit requests another set-up of the pod if the volume has to be published again, begins a measurement if the node asks for the volume's
// condition, and expands the volume if it has grown. It reports whether the next visit must check the size again.
func (v *Volumes) visit(ctx context.Context, one *visit) (expand bool) {
	if one.health {
		if b, err := v.readRecord(one.uid, one.volume); err == nil {
			v.measure(one.uid, one.volume, b.Claim)
		}
	}
	if one.republish {
		v.cfg.Notify(one.uid)
	}
	return one.expand && v.expandOnline(ctx, one.uid, one.volume)
}
