package nodeshutdown_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
	"github.com/wherry-node/wherry/internal/node/nodeshutdown"
)

// world is a fake logind and the pods of a node. It records what happens, with the second in which it happens.
type world struct {
	mu            sync.Mutex
	began         time.Time
	lines         []string
	event         string // the newest event
	signals       chan struct{}
	unknown       bool // not every source has answered
	longest       time.Duration
	preparing     bool
	openFails     int
	pods          []*v1.Pod
	takes         map[types.UID]time.Duration // how long a pod takes to end; absent: it never ends
	ends          map[types.UID]time.Time
	reportedAfter time.Duration // how long after a pod's end the API server has its status
}

func newWorld() *world {
	return &world{began: time.Now(), signals: make(chan struct{}), longest: time.Hour, takes: map[types.UID]time.Duration{}, ends: map[types.UID]time.Time{}}
}

func (o *world) say(format string, args ...any) {
	o.set(func() {
		o.lines = append(o.lines, fmt.Sprintf("%g ", time.Since(o.began).Round(100*time.Millisecond).Seconds())+fmt.Sprintf(format, args...))
	})
}

func (o *world) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *world) pod(name string, priority int32, grace int64, takes time.Duration) {
	p := &v1.Pod{}
	p.UID, p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = types.UID(name), &priority, &grace
	o.pods = append(o.pods, p)
	if takes >= 0 {
		o.takes[p.UID] = takes
	}
}

func (o *world) Shutdowns() <-chan struct{} { o.mu.Lock(); defer o.mu.Unlock(); return o.signals }
func (o *world) Preparing(context.Context) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.preparing, nil
}
func (o *world) MaxDelay(context.Context) (time.Duration, error) { return o.longest, nil }
func (o *world) Delay(_ context.Context, d time.Duration) error  { o.say("delay %s", d); return nil }
func (o *world) Inhibit(context.Context) (io.Closer, error)      { o.say("inhibit"); return holder{o}, nil }
func (o *world) Close() error                                    { return nil }
func (o *world) Known() bool                                     { o.mu.Lock(); defer o.mu.Unlock(); return !o.unknown }
func (o *world) Active() []*v1.Pod {
	if !o.Known() {
		return nil
	}
	return o.pods
}

// breaks ends the connection to logind, and calls change while there is no connection.
func (o *world) breaks(change func()) {
	o.set(func() {
		close(o.signals)
		o.signals = make(chan struct{})
		change()
	})
}

// logind starts or cancels a shutdown.
func (o *world) logind(begins bool) {
	var signals chan struct{}
	o.set(func() { o.preparing, signals = begins, o.signals })
	signals <- struct{}{}
}

type holder struct{ o *world }

func (h holder) Close() error { h.o.say("release"); return nil }

func (o *world) End(uid types.UID, why *decide.Stop) {
	o.say("end %s within %s for %s", uid, *why.Grace, why.Reason)
	o.set(func() {
		if takes, ends := o.takes[uid]; ends {
			o.ends[uid] = time.Now().Add(takes)
		}
	})
}

func (o *world) Ended(uid types.UID) bool    { return o.since(uid, 0) }
func (o *world) Reported(uid types.UID) bool { return o.since(uid, o.reportedAfter) }

func (o *world) since(uid types.UID, d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ends := o.ends[uid]
	return ends && !time.Now().Before(at.Add(d))
}

// open connects to logind. The first openFails calls fail.
func (o *world) open(context.Context) (nodeshutdown.Bus, error) {
	fails := false
	o.set(func() {
		if fails = o.openFails > 0; fails {
			o.openFails--
		}
	})
	if fails {
		o.say("no bus")
		return nil, errors.New("no bus")
	}
	return o, nil
}

// play runs a Watch in virtual time, with 30 s for all pods, of which the critical ones get 10 s. prepare changes the world before the
// Watch runs, and script acts while it runs. Then play compares what happened with want.
func play(t *testing.T, prepare, script func(*world), want string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := newWorld()
		prepare(o)
		var w *nodeshutdown.Watch
		w = nodeshutdown.New(nodeshutdown.Config{
			Policy: shutdown.New(nil, 30*s, 10*s), Pods: o, Log: slog.New(slog.DiscardHandler), Open: o.open,
			Event:   func(m string) { o.set(func() { o.event = m }) },
			Changed: func() { o.say("%s, down: %t", o.event, w.Down()) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		script(o)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
		if got, want := strings.Join(o.lines, "\n"), strings.TrimSpace(want); got != want {
			t.Errorf("what happened:\n%s\nwant:\n%s", got, want)
		}
	})
}

const s = time.Second

// Critical pods end after the others. The machine goes down when all have ended and the API server has their statuses.
func TestGroupsEndOneAfterTheOther(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) {
		o.longest, o.reportedAfter = 5*s, 2*s
		o.pod("web", 0, 30, 3*s)
		o.pod("dns", 2_000_000_000, 30, s)
		o.pod("job", 0, 5, 2*s)
	}, func(o *world) {
		time.Sleep(10 * s)
		o.logind(true)
		time.Sleep(time.Minute)
	}, `
0 delay 30s
0 inhibit
10 Shutdown manager detected shutdown event, down: true
10 end web within 20s for Terminated
10 end job within 5s for Terminated
13 end dns within 10s for Terminated
16 release`)
}

// A pod that does not end delays its group by no more than the group's time, and the shutdown by no more than the policy's time.
func TestPodsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) {
		o.pod("stuck", 0, 600, -1)
		o.pod("dns", 2_000_000_000, 600, -1)
	}, func(o *world) {
		o.logind(true)
		time.Sleep(time.Minute)
	}, `
0 inhibit
0 Shutdown manager detected shutdown event, down: true
0 end stuck within 20s for Terminated
20 end dns within 10s for Terminated
31 release`)
}

// After a cancelled shutdown no further group is ended, and the next shutdown is delayed again.
func TestCancelled(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) {
		o.pod("stuck", 0, 600, -1)
		o.pod("dns", 2_000_000_000, 600, s)
	}, func(o *world) {
		o.logind(true)
		time.Sleep(5 * s)
		o.logind(false)
		time.Sleep(time.Minute)
		o.set(func() { o.takes["stuck"] = s })
		o.logind(true)
		time.Sleep(time.Minute)
		o.logind(false)
		time.Sleep(s)
	}, `
0 inhibit
0 Shutdown manager detected shutdown event, down: true
0 end stuck within 20s for Terminated
5 Shutdown manager detected shutdown cancellation, down: false
65 Shutdown manager detected shutdown event, down: true
65 end stuck within 20s for Terminated
66 end dns within 10s for Terminated
67 release
125 Shutdown manager detected shutdown cancellation, down: false
125 inhibit
126 release`)
}

// An agent that starts while the machine goes down ends the pods at once, because it cannot delay the shutdown any more.
func TestStartInAShutdown(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) {
		o.preparing = true
		o.pod("web", 0, 5, s)
	}, func(*world) { time.Sleep(time.Minute) }, `
0 Shutdown manager detected shutdown event, down: true
0 end web within 5s for Terminated`)
}

// If the Watch cannot connect to logind, it tries again, at growing intervals. If a connection ends, the Watch opens another one.
func TestTheBusComesAndGoes(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) { o.openFails = 3 }, func(o *world) {
		time.Sleep(100 * s)
		o.breaks(func() {})
		time.Sleep(10 * s)
	}, `
0 no bus
1 no bus
3 no bus
7 inhibit
101 inhibit
101 release
110 release`)
}

// If the connection to logind ends during a shutdown, the machine still waits, and the pods continue to end. When the next connection
// opens, no pod is ended a second time.
func TestTheBusEndsInAShutdown(t *testing.T) {
	t.Parallel()
	play(t, twoGroups, func(o *world) {
		o.logind(true)
		time.Sleep(5 * s)
		o.breaks(func() { o.openFails = 2 })
		time.Sleep(time.Minute)
	}, `
0 inhibit
0 Shutdown manager detected shutdown event, down: true
0 end web within 20s for Terminated
6 no bus
8 no bus
15 end dns within 10s for Terminated
16 release`)
}

// twoGroups adds a pod that takes long to end, and a critical one.
func twoGroups(o *world) {
	o.pod("web", 0, 30, 15*s)
	o.pod("dns", 2_000_000_000, 30, s)
}

// If a shutdown is cancelled while there is no connection to logind, the Watch notices this with the next connection.
func TestCancelledWithoutABus(t *testing.T) {
	t.Parallel()
	play(t, twoGroups, func(o *world) {
		o.logind(true)
		time.Sleep(5 * s)
		o.breaks(func() { o.preparing = false })
		time.Sleep(time.Minute)
	}, `
0 inhibit
0 Shutdown manager detected shutdown event, down: true
0 end web within 20s for Terminated
6 Shutdown manager detected shutdown cancellation, down: false
6 inhibit
6 release
65 release`)
}

// A signal that logind did not send, or that it sent before the shutdown was cancelled, ends no pod.
func TestASignalAloneIsNotBelieved(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) { o.pod("web", 0, 30, s) }, func(o *world) {
		o.signals <- struct{}{}
		time.Sleep(time.Minute)
	}, `
0 inhibit
60 release`)
}

// An agent that starts while the machine goes down waits until it knows its pods, for a bounded time.
func TestPodsThatAreNotKnownYet(t *testing.T) {
	t.Parallel()
	play(t, func(o *world) {
		o.preparing, o.unknown = true, true
		o.pod("web", 0, 5, s)
	}, func(o *world) {
		time.Sleep(3*s - 30*time.Millisecond)
		o.set(func() { o.unknown = false })
		time.Sleep(time.Minute)
	}, `
0 Shutdown manager detected shutdown event, down: true
3 end web within 5s for Terminated`)
}
