package pleg

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// With a broken runtime class the inspections of a hundred pods may hang. They delay other pods for a few seconds when they
// hang for the first time, and never after that. OnHung names the pods that hang, and is called again when the runtime answers for
// these pods.
func TestAHundredHungPodsDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 100
		var mu sync.Mutex
		var notified [][]pod.Ref
		h := start(t, &world{hung: func(refs []pod.Ref) {
			mu.Lock()
			defer mu.Unlock()
			notified = append(notified, refs)
		}})
		uids := []types.UID{}
		for i := range pods {
			uids = append(uids, types.UID(fmt.Sprintf("bad-%03d", i)))
			h.w.set(uids[i], true, pod.StateRunning)
		}
		h.w.set("good", true, pod.StateRunning)
		time.Sleep(10 * time.Second)
		h.w.mu.Lock()
		for _, uid := range uids {
			h.w.hang[uid] = true
		}
		h.w.mu.Unlock()
		for _, uid := range uids {
			h.Inspect(uid)
		}
		answered := func() time.Duration {
			began := time.Now()
			at := h.Inspect("good")
			for {
				synctest.Wait()
				if _, stamp := h.Get("good"); stamp.After(at) {
					return time.Since(began)
				}
				if time.Since(began) > time.Minute {
					return time.Since(began)
				}
				time.Sleep(time.Millisecond)
			}
		}
		if took := answered(); took > (pods/16+1)*holdHealthy {
			t.Errorf("the first inspection beside %d that hang took %v", pods, took)
		}
		time.Sleep(20 * time.Second)
		for range 400 {
			if took := answered(); took > 0 {
				t.Fatalf("an inspection beside pods that are known to hang took %v", took)
			}
			time.Sleep(5 * time.Second)
		}
		if err := h.Healthy(); err != nil {
			t.Errorf("pods that hang make the node unhealthy: %v", err)
		}
		mu.Lock()
		if n := len(notified); n == 0 || n > pods/16+1 || len(notified[n-1]) != pods {
			t.Errorf("OnHung was called %d times, and the last call did not have all %d pods", n, pods)
		}
		mu.Unlock()
		if trouble := h.Trouble("bad-000"); trouble.Error == "" && trouble.Hangs == 0 || h.Trouble("good") != (Trouble{}) {
			t.Errorf("trouble of one that hangs %+v, of one that does not %+v", trouble, h.Trouble("good"))
		}

		h.w.mu.Lock()
		clear(h.w.hang)
		h.w.mu.Unlock()
		h.Retry()
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(notified[len(notified)-1]) != 0 || h.Trouble("bad-000") != (Trouble{}) || len(h.slots.healthy.calls)+len(h.slots.suspect.calls) != 0 {
			t.Errorf("all pods answer again, but OnHung has %v, trouble %+v", notified[len(notified)-1], h.Trouble("bad-000"))
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for uid, e := range h.entries {
			if e.suspect() {
				t.Errorf("%s is still a suspect", uid)
			}
		}
	})
}
