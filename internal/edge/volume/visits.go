package volume

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/due"
)

// visitEvery is the time between two looks at a mounted volume: whether it has grown, and to publish it again if its driver wants that.
// Upstream's kubelet does both about once a minute.
const visitEvery = time.Minute

// visits are the mounted volumes that the node looks at again and again. One heap and one timer serve all of them, and there is no timer
// without such volumes. The zero value is ready.
type visits struct {
	mu      sync.Mutex
	byPod   map[types.UID]map[string]*visit // by the name of the pod's volume
	heap    due.Heap[*visit]
	changed chan struct{} // has an element after the first due time may have changed
}

// visit is one volume. The mutex of visits guards it.
type visit struct {
	due.Place
	uid               types.UID
	volume, key       string
	republish, expand bool
}

// add makes the node look at a mounted volume from now on.
func (s *visits) add(uid types.UID, volume string, b *bound) {
	one := &visit{uid: uid, volume: volume, key: b.key(), republish: b.Republish, expand: b.Claim != ""}
	if b.Kind != kindCSI || !one.republish && !one.expand {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPod == nil {
		s.byPod = map[types.UID]map[string]*visit{}
	}
	if s.byPod[uid] == nil {
		s.byPod[uid] = map[string]*visit{}
	}
	if have := s.byPod[uid][volume]; have != nil && have.key == one.key {
		have.republish = one.republish
		return
	} else if have != nil {
		s.heap.Remove(have)
	}
	s.byPod[uid][volume] = one
	s.heap.Put(one, time.Now().Add(visitEvery))
	s.wake()
}

// forget ends the visits of a pod's volumes.
func (s *visits) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byPod[uid] {
		s.heap.Remove(one)
	}
	delete(s.byPod, uid)
}

// refused ends the expansion of a pod's volume, because the driver says that it must not be in use. The next mount of the volume expands it.
func (s *visits) refused(uid types.UID, b *bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byPod[uid] {
		if one.key == b.key() {
			one.expand = false
		}
	}
}

// wake makes Run look at the heap again. The lock is held.
func (s *visits) wake() {
	select {
	case s.news() <- struct{}{}:
	default:
	}
}

// news returns the channel changed. The lock is held.
func (s *visits) news() chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{}, 1)
	}
	return s.changed
}

// take returns the volumes that are due, copied, and how long it is until the next one; below 0: there is none.
func (s *visits) take(now time.Time) (ready []visit, next time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		first, ok := s.heap.First()
		switch {
		case !ok:
			return ready, -1, s.news()
		case first.At().After(now):
			return ready, first.At().Sub(now), s.news()
		}
		s.heap.Remove(first)
		ready = append(ready, *first)
	}
}

// done puts a visited volume back. It is not visited any more if it has gone, or if there is nothing left to do for it.
func (s *visits) done(was *visit, expand bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byPod[was.uid][was.volume]
	if one == nil || one.key != was.key || one.Waits() {
		return
	}
	if one.expand = one.expand && expand; !one.expand && !one.republish {
		return
	}
	s.heap.Put(one, time.Now().Add(visitEvery))
	s.wake()
}

// Run looks at the mounted volumes of drivers again and again, until ctx ends. While there are none, it only waits.
func (v *Volumes) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(visitEvery)
	defer timer.Stop()
	for {
		ready, next, changed := v.visits.take(time.Now())
		for _, one := range ready {
			wg.Go(func() { v.visits.done(&one, v.visit(ctx, &one)) })
		}
		timer.Stop()
		var at <-chan time.Time
		if next >= 0 {
			timer.Reset(next)
			at = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-at:
		}
	}
}

// visit does for a volume what is due. It reports whether the volume's size is of interest further on.
func (v *Volumes) visit(ctx context.Context, one *visit) (expand bool) {
	if one.republish {
		v.cfg.Notify(one.uid)
	}
	return one.expand && v.expandOnline(ctx, one.uid, one.volume)
}
