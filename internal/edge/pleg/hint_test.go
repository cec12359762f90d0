package pleg

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func (w *world) inspections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.asked
	w.asked = 0
	return n
}

func (w *world) slow(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// startKnown starts a generator whose runtime sends events, and waits until it has inspected the running pod a. expected becomes
// Config.Expected and may be nil.
func startKnown(t *testing.T, expected func(pod.Hint) bool) *harness {
	t.Helper()
	h := start(t, &world{events: make(chan pod.Hint), expected: expected})
	h.w.set("a", true, pod.StateRunning)
	h.Relist()
	time.Sleep(time.Second)
	h.w.inspections()
	return h
}

// A hint (a CRI event) about a state that the cache shows causes no inspection. A hint about another state causes one at once.
func TestHintOfNewsIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startKnown(t, nil)
		for _, c := range []struct {
			what string
			hint pod.Hint
			want int
		}{
			{"the container runs", pod.Hint{UID: "a", ID: "c-a", Reached: pod.ReachedRunning}, 0},
			{"the sandbox runs", pod.Hint{UID: "a", ID: "s-a", Reached: pod.ReachedRunning}, 0},
			{"an unknown container was removed", pod.Hint{UID: "a", ID: "old", Reached: pod.ReachedRemoval}, 0},
			{"a container of an unknown pod was removed", pod.Hint{UID: "b", ID: "old", Reached: pod.ReachedRemoval}, 0},
			{"an unknown container runs", pod.Hint{UID: "a", ID: "new", Reached: pod.ReachedRunning}, 1},
			{"the container ended", pod.Hint{UID: "a", ID: "c-a", Reached: pod.ReachedEnd}, 1},
			{"the sandbox ended", pod.Hint{UID: "a", ID: "s-a", Reached: pod.ReachedEnd}, 1},
			{"the container was removed", pod.Hint{UID: "a", ID: "c-a", Reached: pod.ReachedRemoval}, 1},
			{"the hint names no state", pod.Hint{UID: "a", ID: "c-a"}, 1},
			{"the hint names no container", pod.Hint{UID: "a", Reached: pod.ReachedRunning}, 1},
		} {
			h.w.events <- c.hint
			synctest.Wait()
			if got := h.w.inspections(); got != c.want {
				t.Errorf("%s: %d inspections, want %d", c.what, got, c.want)
			}
		}
	})
}

// A hint (a CRI event) about the result of an action in flight waits for one second. It then causes no inspection if the inspection
// after the action has shown the change. Without such an inspection, the hint causes one.
func TestExpectedHintWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var expects atomic.Bool
		h := startKnown(t, func(pod.Hint) bool { return expects.Load() })

		expects.Store(true)
		ended := pod.Hint{UID: "a", ID: "c-a", Reached: pod.ReachedEnd}
		h.w.set("a", true, pod.StateExited)
		h.w.events <- ended
		synctest.Wait()
		if got := h.w.inspections(); got != 0 {
			t.Errorf("%d inspections for an expected hint", got)
		}
		h.Inspect("a") // the outcome of the action asks for an inspection
		time.Sleep(2 * expectFor)
		if got := h.w.inspections(); got != 1 {
			t.Errorf("%d inspections for an outcome and its hint, want 1", got)
		}

		h.w.set("a", false, pod.StateExited)
		h.w.events <- pod.Hint{UID: "a", ID: "s-a", Reached: pod.ReachedEnd}
		time.Sleep(2 * expectFor)
		if got := h.w.inspections(); got != 1 {
			t.Errorf("%d inspections for an expected hint whose outcome does not come, want 1", got)
		}
	})
}

// A hint (a CRI event) that comes during an inspection is compared with the result of that inspection.
func TestHintDuringAnInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startKnown(t, nil)
		h.w.slow(time.Second)
		h.Inspect("a")
		time.Sleep(time.Millisecond)
		h.w.events <- pod.Hint{UID: "a", ID: "c-a", Reached: pod.ReachedRunning}
		time.Sleep(5 * time.Second)
		if got := h.w.inspections(); got != 1 {
			t.Errorf("%d inspections, want 1: the inspection in flight found what the hint announces", got)
		}
		h.Inspect("a")
		time.Sleep(time.Millisecond)
		h.w.events <- pod.Hint{UID: "a", ID: "c-a", Reached: pod.ReachedEnd}
		time.Sleep(5 * time.Second)
		if got := h.w.inspections(); got != 2 {
			t.Errorf("%d inspections, want 2: the container may have ended after the inspection in flight began", got)
		}
	})
}
