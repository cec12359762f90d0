package image

import (
	"context"
	"fmt"
	"time"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// A pull is looked at every lookEvery, beginning lookAfter its begin, so that an ordinary pull costs nothing.
const (
	lookAfter = 10 * time.Second
	lookEvery = 5 * time.Second
)

// A pull counts as stalled if nothing has arrived for silentFor. If the runtime may be unpacking the image, or does not report whether data
// arrives, it counts as stalled after longFor.
const (
	silentFor = 2 * time.Minute
	longFor   = 10 * time.Minute
)

// maxParts bounds the parts of images that are remembered of one pull.
const maxParts = 4096

// Download is a part of an image that the runtime is receiving.
type Download struct {
	Ref             string // names the part
	Received, Total int64  // bytes; a Total of 0 is not known
}

// Progress is what is known about a pull that has not ended.
type Progress struct {
	Image string
	Began time.Time // when a pod first needed the pull
	// Queued: the pull waits until fewer than MaxParallel pulls run.
	Queued bool
	// Reported: the runtime has said what it downloads, so the fields below are known. They become known lookAfter the begin of the pull.
	Reported bool
	// Received is how many bytes have arrived, and Total how many bytes the parts have whose size is known. The runtime does not say
	// to which image a part belongs, so both count the parts of all pulls that run.
	Received, Total int64
	// Running is how many pulls run.
	Running int
	// Moved is when data last arrived.
	Moved time.Time
	// Stalled says since when nothing happens; "": the pull goes on. It stays after data has begun to arrive again.
	Stalled string
}

// sight is what the looks at a pull have found. Images.mu protects it.
type sight struct {
	image    string
	began    time.Time
	running  bool
	reported bool
	parts    map[string]Download // all parts that were seen
	open     int                 // how many parts the last look has seen
	moved    time.Time
	stalled  string
	say      chan struct{} // closed when stalled is set
}

// Pulls lists the pulls that have not ended, the oldest first.
func (m *Images) Pulls() []Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Progress
	running := 0
	for _, f := range m.flights {
		if f.sight.running {
			running++
		}
	}
	for _, f := range m.flights {
		s := &f.sight
		p := Progress{Image: s.image, Began: s.began, Queued: !s.running, Reported: s.reported, Running: running, Moved: s.moved, Stalled: s.stalled}
		p.Received, p.Total = s.sum()
		out = append(out, p)
	}
	inorder.Sort(out, func(a, b Progress) int { return a.Began.Compare(b.Began) })
	return out
}

func (s *sight) sum() (received, total int64) {
	for _, d := range s.parts {
		received, total = received+d.Received, total+d.Total
	}
	return received, total
}

// begin notes that a pull runs, and watches it until stop is called.
func (m *Images) begin(ctx context.Context, f *flight, now time.Time) (stop func()) {
	m.mu.Lock()
	f.sight.running, f.sight.moved = true, now
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	first := time.AfterFunc(lookAfter, func() { // so that a pull that ends before has no goroutine of its own
		defer close(ended)
		m.watch(ctx, f)
	})
	return func() {
		cancel()
		if !first.Stop() {
			<-ended
		}
	}
}

// watch looks at a pull every lookEvery until ctx ends.
func (m *Images) watch(ctx context.Context, f *flight) {
	reports := m.cfg.Downloads != nil
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		var found []Download
		var err error
		if reports {
			if found, err = m.cfg.Downloads(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Log.Debug("progress of image pulls not read", "err", err)
			}
		}
		m.mu.Lock()
		f.sight.look(time.Now(), found, reports && err == nil)
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// look adds what a look has found. If read is false, the runtime could not be asked.
func (s *sight) look(now time.Time, found []Download, read bool) {
	if read {
		s.see(now, found)
	}
	if s.stalled != "" {
		return
	}
	if s.stalled = s.stall(now); s.stalled != "" {
		close(s.say)
	}
}

// see adds the downloads of a look to the parts, and notes whether data has arrived since the last look.
func (s *sight) see(now time.Time, found []Download) {
	if !s.reported {
		s.reported, s.parts = true, map[string]Download{}
	}
	present := make(map[string]bool, len(found))
	for _, d := range found {
		present[d.Ref] = true
		was, seen := s.parts[d.Ref]
		if !seen && len(s.parts) == maxParts {
			continue
		}
		if !seen || was.Received != d.Received {
			s.moved = now
		}
		s.parts[d.Ref] = d
	}
	for ref, d := range s.parts { // a part that is no longer being received is whole
		if !present[ref] && d.Received < d.Total {
			d.Received, s.moved = d.Total, now
			s.parts[ref] = d
		}
	}
	s.open = len(found)
}

// stall says since when nothing happens in a pull, or returns "".
func (s *sight) stall(now time.Time) string {
	idle, took := now.Sub(s.moved).Round(time.Second), now.Sub(s.began).Round(time.Second)
	received, total := s.sum()
	switch {
	case !s.reported && took >= longFor:
		return fmt.Sprintf("it has taken %v so far, and the container runtime does not report whether data arrives", took)
	case !s.reported:
		return ""
	case s.open > 0 && idle >= silentFor && total > 0:
		return fmt.Sprintf("no data has arrived for %v; %.1f of %.1f MiB are here", idle, mib(received), mib(total))
	case s.open > 0 && idle >= silentFor:
		return fmt.Sprintf("no data has arrived for %v; %.1f MiB are here", idle, mib(received))
	case s.open == 0 && received == 0 && idle >= silentFor:
		return fmt.Sprintf("nothing has been downloaded for %v: the registry does not answer", idle)
	case s.open == 0 && idle >= longFor:
		return fmt.Sprintf("nothing has been downloaded for %v; the container runtime may be unpacking %.1f MiB", idle, mib(received))
	}
	return ""
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
