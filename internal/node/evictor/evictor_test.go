package evictor

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/node/syncloop"
)

const gi = int64(1) << 30

// node is a machine with 100 GiB of memory and of disk, and pods whose use a test sets.
type node struct {
	mu      sync.Mutex
	memory  map[types.UID]int64
	disk    map[types.UID]int64
	images  int64
	each    time.Duration // how long it takes to remove an image of 1 GiB; 0: all images are removed at once
	slow    time.Duration // how long it takes to remove images, or to measure disks
	ends    time.Duration // how long an evicted pod takes to end
	evicted []string
	at      []time.Time
	changes int
	events  []string
	looks   int
	removes int // how often images were to be removed
	// critical: no pod can be evicted. log receives the log; nil: nothing does.
	critical bool
	log      io.Writer
}

func newNode() *node { return &node{memory: map[types.UID]int64{}, disk: map[types.UID]int64{}} }

func (n *node) signals(context.Context) pressure.Signals {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	memory, disk := 100*gi, 100*gi-n.images
	for _, used := range n.memory {
		memory -= used
	}
	for _, used := range n.disk {
		disk -= used
	}
	return pressure.Signals{
		pressure.MemoryAvailable: {Available: memory, Capacity: 100 * gi}, pressure.NodefsAvailable: {Available: disk, Capacity: 100 * gi},
	}
}

func (n *node) Holders() (out []syncloop.Holder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid := range n.memory {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}
		if n.critical {
			p.Spec.Priority = new(int32(2_000_000_000))
		}
		out = append(out, syncloop.Holder{Pod: p})
	}
	return out
}

func (n *node) Holds(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.memory[uid]
	return ok
}

func (n *node) Evict(p *v1.Pod, e syncloop.Eviction) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.evicted, n.at = append(n.evicted, p.Name+" for "+e.Signal), append(n.at, time.Now())
	time.AfterFunc(n.ends, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.memory, p.UID)
		delete(n.disk, p.UID)
	})
	return true
}

func (n *node) Settled() bool { return true }

func (n *node) RemoveDead(context.Context) int { return 0 }

func (n *node) usage(_ context.Context, pods []*v1.Pod, use evict.Use) map[types.UID]*evict.Usage {
	if use == evict.DiskUse {
		time.Sleep(n.slow)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[types.UID]*evict.Usage{}
	for _, p := range pods {
		out[p.UID] = &evict.Usage{Memory: uint64(n.memory[p.UID]), Volumes: evict.Disk{Bytes: uint64(n.disk[p.UID])}}
	}
	return out
}

func (n *node) removeImages(ctx context.Context) (images int, bytes uint64, err error) {
	n.set(func() { n.removes++ })
	for n.each > 0 {
		select {
		case <-ctx.Done():
			return images, bytes, ctx.Err()
		case <-time.After(n.each):
		}
		n.set(func() { n.images = max(n.images-gi, 0) })
		if images, bytes = images+1, bytes+uint64(gi); n.images == 0 {
			return images, bytes, nil
		}
	}
	time.Sleep(n.slow)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.images == 0 {
		return 0, 0, nil
	}
	n.images = 0
	return 1, uint64(gi), nil
}

// run runs an Evictor on the node, with thresholds of 1 GiB and a transition period of a minute, while f runs.
func (n *node) run(t *testing.T, f func(e *Evictor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		thresholds, err := pressure.Parse(pressure.ParseInput{Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "1Gi"}})
		if err != nil {
			t.Fatal(err)
		}
		e := New(Config{
			Policy: evict.Policy{Thresholds: thresholds, TransitionPeriod: time.Minute, MemoryRate: 8 * gi}, Signals: n.signals,
			Layout: func() evict.Layout { return evict.Layout{} }, Pods: n, Usage: n.usage, RemoveImages: n.removeImages,
			NodeEvent: func(_, reason, message string) { n.set(func() { n.events = append(n.events, reason+": "+message) }) },
			Changed:   func() { n.set(func() { n.changes++ }) }, Log: slog.New(slog.NewTextHandler(cmp.Or(n.log, io.Discard), nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait() // wait for the first round
		f(e)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// A program fills memory at 4 GiB a second, half the highest rate that the node expects. The node evicts the pod within a second
// after the threshold was met.
func TestMemoryIsNoticedWithinASecond(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.run(t, func(*Evictor) {
		n.set(func() { n.memory["modest"] = gi })
		time.Sleep(15 * time.Second)
		var crossed time.Time
		for used := int64(0); len(n.evictions()) == 0 && used < 100*gi; used += gi / 25 {
			n.set(func() { n.memory["eater"] = used })
			if used > 98*gi && crossed.IsZero() {
				crossed = time.Now()
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := n.evictions(); !slices.Equal(got, []string{"eater for memory.available"}) {
			t.Fatalf("evicted: %q", got)
		}
		if late := n.at[0].Sub(crossed); late > time.Second {
			t.Errorf("evicted %v after the threshold was met", late)
		}
	})
}

func (n *node) evictions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.evicted)
}

// Removing images takes a minute. The eviction of a pod that fills memory during that time does not wait. DiskPressure and
// MemoryPressure are both set and cleared.
func TestRemovingImagesDelaysNothing(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.slow = 40 * time.Second
	n.run(t, func(e *Evictor) {
		n.set(func() { n.images, n.memory["eater"], n.memory["other"] = 99*gi+gi/2, 10*gi, gi })
		time.Sleep(15 * time.Second)
		if r := e.Newest(); r.Disk != pressure.True || r.Memory != pressure.False {
			t.Errorf("disk %s, memory %s", r.Disk, r.Memory)
		}
		n.set(func() { n.memory["eater"] = 99 * gi })
		time.Sleep(11 * time.Second)
		if got := n.evictions(); !slices.Equal(got, []string{"eater for memory.available"}) {
			t.Errorf("evicted: %q", got)
		}
		time.Sleep(3 * time.Minute)
		if got := n.evictions(); len(got) != 1 {
			t.Errorf("evicted: %q", got)
		}
		if r := e.Newest(); r.Disk != pressure.False || r.Memory != pressure.False || n.changes != 4 {
			t.Errorf("disk %s, memory %s, %d changes", r.Disk, r.Memory, n.changes)
		}
		if want := []string{"EvictionThresholdMet: Attempting to reclaim ephemeral-storage", "EvictionThresholdMet: Attempting to reclaim memory"}; !slices.Equal(n.events, want) {
			t.Errorf("events %q", n.events)
		}
	})
}

// The removal of images takes longer than its limit of a minute. The node begins it again, and evicts no pod while there are unused
// images.
func TestImagesThatTakeMinutes(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.each = 9 * time.Second
	n.run(t, func(e *Evictor) {
		n.set(func() { n.images, n.memory["pod"], n.disk["pod"] = 20*gi, gi, 90*gi })
		time.Sleep(5 * time.Minute)
		if got := n.evictions(); len(got) != 0 || e.Newest().Disk != pressure.False {
			t.Errorf("evicted: %q, disk %s", got, e.Newest().Disk)
		}
	})
}

// The removal of images does not free enough disk space. The node measures what pods have on disk, and evicts the pod that uses the most.
// It evicts the next pod only after the first one has ended.
func TestDiskNeedsAPod(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.slow, n.ends = 5*time.Second, 8*time.Second
	n.run(t, func(*Evictor) {
		n.set(func() {
			n.images = gi / 4
			for uid, used := range map[types.UID]int64{"small": 2 * gi, "middle": 44 * gi, "large": 57 * gi} {
				n.memory[uid], n.disk[uid] = gi, used
			}
		})
		time.Sleep(2 * time.Minute)
		want := []string{"large for nodefs.available"}
		if got := n.evictions(); !slices.Equal(got, want) {
			t.Errorf("evicted: %q, want %q", got, want)
		}
		n.set(func() { n.disk["middle"], n.disk["small"] = 60*gi, 60*gi })
		time.Sleep(2 * time.Minute)
		if got := n.evictions(); len(got) != 2 {
			t.Errorf("evicted: %q", got)
		}
	})
}

func (n *node) measured() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks
}

// A node at rest measures every 10 s.
func TestAtRest(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.run(t, func(*Evictor) {
		time.Sleep(10*time.Minute + time.Second)
		if looks := n.measured(); looks < 58 || looks > 62 {
			t.Errorf("%d measurements in 10 minutes", looks)
		}
	})
}

// For an hour only critical pods use the memory or the disk, so nothing can relieve the shortage. The log says each step once, and says that
// no pod can be evicted. The node gets a few events, so that other warnings about it are not dropped. It seldom walks the pods' files.
func TestAShortageThatNothingRelieves(t *testing.T) {
	t.Parallel()
	for signal, use := range map[string]func(n *node){
		"memory.available": func(n *node) { n.memory["critical"] = 100*gi - gi/2 },
		"nodefs.available": func(n *node) { n.memory["critical"], n.disk["critical"] = gi, 100*gi-gi/2 },
		"both":             func(n *node) { n.memory["critical"], n.disk["critical"] = 100*gi-gi/2, 100*gi-gi/2 },
	} {
		t.Run(signal, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			n := newNode()
			n.critical, n.log = true, &log
			n.run(t, func(e *Evictor) {
				n.set(func() { use(n) })
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := n.evictions(); len(got) != 0 {
					t.Errorf("evicted: %q", got)
				}
				if r := e.Newest(); r.Memory != pressure.True && r.Disk != pressure.True {
					t.Fatalf("memory %s, disk %s: the node is not short of anything", r.Memory, r.Disk)
				}
				n.mu.Lock()
				defer n.mu.Unlock()
				short := 1 // how many resources are short
				if signal == "both" {
					short = 2
				}
				if len(n.events) < short || len(n.events) > 5*short {
					t.Errorf("%d events: %q", len(n.events), n.events)
				}
				lines := strings.Count(log.String(), "\n")
				if lines > 7*short {
					t.Errorf("%d lines:\n%.4000s", lines, log.String())
				}
				if got := strings.Count(log.String(), "no pod can be evicted"); got != short {
					t.Errorf("the log says %d times that no pod can be evicted, want %d:\n%.4000s", got, short, log.String())
				}
				if n.removes > 20 {
					t.Errorf("the node tried %d times to remove images", n.removes)
				}
			})
		})
	}
}

// Memory is short again and again. Each time that it was short is logged, but the node gets an event only every 5 minutes.
func TestAShortageThatComesAndGoes(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	n := newNode()
	n.critical, n.log = true, &log
	n.run(t, func(*Evictor) {
		for range 30 {
			n.set(func() { n.memory["critical"] = 100*gi - gi/2 })
			time.Sleep(time.Minute)
			n.set(func() { n.memory["critical"] = gi })
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.events) < 8 || len(n.events) > 13 {
			t.Errorf("%d events in an hour", len(n.events))
		}
		if got := strings.Count(log.String(), "no pod can be evicted"); got != 30 {
			t.Errorf("the log says %d times that no pod can be evicted", got)
		}
	})
}
