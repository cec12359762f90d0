package pleg

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// world is a runtime whose state the test changes.
type world struct {
	mu      sync.Mutex
	pods    map[types.UID]pod.Observed
	hang    map[types.UID]bool
	events  chan pod.Hint // events that Watch delivers; nil: the runtime has no events
	lists   int
	asked   int // number of inspections
	listErr error

	inspectErr error
	hangList   bool
	expected   func(pod.Hint) bool
	delay      time.Duration // duration of an inspection
	hung       func([]pod.Ref)
}

var errNoEvents = errors.New("unimplemented")

func (w *world) List(ctx context.Context) ([]pod.Observed, error) {
	w.mu.Lock()
	if w.hangList {
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		w.lists++
		defer w.mu.Unlock()
		return nil, ctx.Err()
	}
	defer w.mu.Unlock()
	w.lists++
	if w.listErr != nil {
		return nil, w.listErr
	}
	var out []pod.Observed
	for _, p := range w.pods {
		out = append(out, p)
	}
	return out, nil
}

func (w *world) listed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists
}

func (w *world) Inspect(ctx context.Context, uid types.UID, _ *pod.Observed) (pod.Observed, error) {
	began := time.Now()
	w.mu.Lock()
	p, hang, err := w.pods[uid], w.hang[uid], w.inspectErr
	w.asked++
	delay := w.delay
	w.mu.Unlock()
	time.Sleep(delay)
	if err != nil {
		return pod.Observed{}, err
	}
	if hang {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // cri.Client has the same timeout
		defer cancel()
		<-ctx.Done()
		return pod.Observed{}, ctx.Err()
	}
	p.Ref.UID, p.Began = uid, began
	return p, nil
}

func (w *world) Watch(ctx context.Context, subscribed func(), hint func(pod.Hint), ended func(error)) {
	if w.events == nil {
		ended(errNoEvents)
		return
	}
	subscribed()
	go func() {
		for {
			select {
			case <-ctx.Done():
				ended(ctx.Err())
				return
			case h := <-w.events:
				hint(h)
			}
		}
	}()
}

func (w *world) set(uid types.UID, ready bool, st pod.ContainerState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[uid] = pod.Observed{Ref: pod.Ref{UID: uid},
		Sandboxes:  []pod.Sandbox{{ID: "s-" + string(uid), Ready: ready}},
		Containers: []pod.Container{{ID: "c-" + string(uid), Name: "app", State: st}}}
}

type harness struct {
	*Generator
	w        *world
	mu       sync.Mutex
	notified []types.UID
	events   []string
}

// seen returns the pods for which Notify was called, and the events so far.
func (h *harness) seen() (notified []types.UID, events []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.notified), slices.Clone(h.events)
}

// setEnd replaces the container of a pod by c, which has ended. The replaced container's ID and name stay; those of c are ignored.
func (w *world) setEnd(uid types.UID, c pod.Container) {
	w.set(uid, true, c.State)
	w.mu.Lock()
	defer w.mu.Unlock()
	c.ID, c.Name = "c-"+string(uid), "app"
	w.pods[uid].Containers[0] = c
}

func start(t *testing.T, w *world) *harness {
	t.Helper()
	return startWith(t, w, func(*world) {}, slog.New(slog.DiscardHandler))
}

// startWith calls the function before with the world (a runtime whose state the test changes), and then starts a generator.
func startWith(t *testing.T, w *world, before func(*world), log *slog.Logger) *harness {
	t.Helper()
	w.pods, w.hang = map[types.UID]pod.Observed{}, map[types.UID]bool{}
	before(w)
	h := &harness{w: w}
	h.Generator = New(Config{Runtime: w, OnHung: w.hung, Log: log, Expected: w.expected,
		Unsupported: func(err error) bool { return errors.Is(err, errNoEvents) },
		Notify:      func(uid types.UID) { h.mu.Lock(); h.notified = append(h.notified, uid); h.mu.Unlock() },
		OnEvent:     func(e Event) { h.mu.Lock(); h.events = append(h.events, e.String()); h.mu.Unlock() }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return h
}

func TestRelistFindsAContainerThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{})
		h.w.set("a", true, pod.StateRunning)
		time.Sleep(1500 * time.Millisecond)
		h.w.set("a", false, pod.StateExited)
		time.Sleep(time.Second)
		want := []string{"&{a ContainerStarted s-a}", "&{a ContainerStarted c-a}", "&{a ContainerDied s-a}", "&{a ContainerDied c-a}"}
		_, events := h.seen()
		if d := cmp.Diff(want, events); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

func TestAnEventIsAHintAndRelistsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{events: make(chan pod.Hint)})
		time.Sleep(time.Second)
		before := h.w.listed()
		h.w.set("a", true, pod.StateRunning)
		h.w.events <- pod.Hint{UID: "a"}
		synctest.Wait()
		if o, _ := h.Get("a"); len(o.Containers) != 1 {
			t.Fatalf("the hint was not followed: %+v", o)
		}
		time.Sleep(30 * time.Second)
		if got := h.w.listed() - before; got > 1 {
			t.Errorf("%d relists in 30 s with events", got)
		}
	})
}

// The stamp of an entry is the time when its inspection began, and a call of Inspect always leads to a newer stamp.
func TestAskingAdvancesTheStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{events: make(chan pod.Hint)})
		time.Sleep(time.Second)
		asked := time.Now()
		time.Sleep(time.Millisecond)
		h.Inspect("nobody")
		synctest.Wait()
		if _, stamp := h.Get("nobody"); !stamp.After(asked) {
			t.Errorf("stamp %v is not after %v", stamp, asked)
		}
		notified, _ := h.seen()
		if d := cmp.Diff([]types.UID{"", "nobody"}, notified); d != "" {
			t.Errorf("notified (-want +got):\n%s", d)
		}
	})
}

// A completed relist advances the stamp of every pod, even of a pod that the runtime does not have. It does not advance the stamp of a pod
// whose own inspection failed or hangs.
func TestAHungPodIsNamedAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{})
		h.w.set("bad", true, pod.StateRunning)
		h.w.set("good", true, pod.StateRunning)
		time.Sleep(1500 * time.Millisecond)
		h.w.mu.Lock()
		h.w.hang["bad"] = true
		h.w.mu.Unlock()
		_, badStamp := h.Get("bad")
		h.w.set("bad", true, pod.StateExited)
		h.w.set("good", true, pod.StateExited)
		time.Sleep(10 * time.Second)
		if o, _ := h.Get("good"); o.Containers[0].State != pod.StateExited {
			t.Error("good was not inspected")
		}
		if _, s := h.Get("bad"); s.After(badStamp.Add(2 * time.Second)) {
			t.Errorf("the stamp of a pod that could not be inspected changed from %v to %v", badStamp, s)
		}
		if hung := h.Hung(5 * time.Second); len(hung) != 1 || hung[0].UID != "bad" {
			t.Errorf("hung = %v", hung)
		}
		if err := h.Healthy(); err != nil {
			t.Errorf("one hung pod made the node unhealthy: %v", err)
		}
	})
}

// After a call of Inspect, Notify is called even if the first inspection fails and the next one finds no change.
func TestAskingIsAnsweredAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{events: make(chan pod.Hint)})
		h.w.set("a", true, pod.StateRunning)
		time.Sleep(90 * time.Second)
		h.w.mu.Lock()
		h.w.inspectErr = errors.New("deadline exceeded")
		h.w.mu.Unlock()
		h.Inspect("a")
		h.Inspect("nobody")
		time.Sleep(500 * time.Millisecond)
		h.mu.Lock()
		h.notified = nil
		h.mu.Unlock()
		h.w.mu.Lock()
		h.w.inspectErr = nil
		h.w.mu.Unlock()
		time.Sleep(5 * time.Second)
		notified, _ := h.seen()
		slices.Sort(notified)
		if d := cmp.Diff([]types.UID{"a", "nobody"}, notified); d != "" {
			t.Errorf("notified (-want +got):\n%s", d)
		}
	})
}

func TestARuntimeThatCannotListIsUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{})
		time.Sleep(2 * time.Second)
		h.w.mu.Lock()
		h.w.listErr = errors.New("connection refused")
		h.w.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if err := h.Healthy(); err != nil {
			t.Fatalf("unhealthy before the threshold: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if h.Healthy() == nil {
			t.Error("still healthy after the threshold")
		}
	})
}

// A call that was in flight when the runtime restarted may never get an answer. The call is canceled and repeated when other calls
// succeed.
func TestCallsAreRepeatedWhenTheRuntimeAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{})
		h.w.set("a", true, pod.StateRunning)
		time.Sleep(1500 * time.Millisecond)
		h.w.mu.Lock()
		h.w.hang["a"], h.w.hangList = true, true
		h.w.mu.Unlock()
		h.Inspect("a")
		time.Sleep(10 * time.Minute)
		if h.Healthy() == nil {
			t.Error("healthy while nothing answers")
		}
		h.w.mu.Lock()
		h.w.hang["a"], h.w.hangList = false, false
		h.w.mu.Unlock()
		h.w.set("a", true, pod.StateExited)
		h.Retry()
		time.Sleep(2500 * time.Millisecond)
		if err := h.Healthy(); err != nil {
			t.Error(err)
		}
		if o, _ := h.Get("a"); o.Containers[0].State != pod.StateExited {
			t.Error("the pod was not inspected anew")
		}
	})
}

func TestAPodThatVanishesIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{})
		h.w.set("a", true, pod.StateRunning)
		time.Sleep(1500 * time.Millisecond)
		h.w.mu.Lock()
		delete(h.w.pods, "a")
		h.w.mu.Unlock()
		h.mu.Lock()
		h.notified = nil
		h.mu.Unlock()
		time.Sleep(time.Second)
		notified, _ := h.seen()
		if o, _ := h.Get("a"); !o.Empty() {
			t.Errorf("still cached: %+v", o)
		}
		if d := cmp.Diff([]types.UID{"a"}, notified); d != "" {
			t.Errorf("notified (-want +got):\n%s", d)
		}
	})
}

// The clock may be coarse, and in a synctest bubble it stands still. An inspection that begins at the same instant as the call
// of Inspect has a later stamp than the call. An inspection that began before the call does not.
func TestStampsAreOrderedWithoutAClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := start(t, &world{})
		h.w.set("a", true, pod.StateRunning)
		synctest.Wait()
		first := h.Inspect("a")
		synctest.Wait() // the inspection begins and ends at the same instant
		_, stamp := h.Get("a")
		if !stamp.After(first) {
			t.Errorf("stamp %s is not after the call at %s", stamp, first)
		}
		second := h.Inspect("b")
		third := h.Inspect("a")
		if stamp.After(second) || stamp.After(third) {
			t.Errorf("stamp %s is after a later call at %s", stamp, third)
		}
		synctest.Wait()
		if _, stamp := h.Get("a"); !stamp.After(third) {
			t.Errorf("stamp %s is not after the call at %s", stamp, third)
		}
	})
}
