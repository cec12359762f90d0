package status

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func aPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Status:     v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBurstable},
	}
}

func running(ready v1.ConditionStatus, message string) v1.PodStatus {
	return v1.PodStatus{Phase: v1.PodRunning, Message: message,
		Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}
}

// rig is a Writer with a fake API server. Each test runs its rig in a synctest bubble.
type rig struct {
	*Writer
	api *api
	log bytes.Buffer

	mu     sync.Mutex
	synced int
}

func inBubble(t *testing.T, a *api, parallel int, f func(t *testing.T, r *rig)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{api: a}
		r.Writer = New(Config{
			Pods: a.podsOf(t), Parallel: parallel, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
			Synced: func(time.Duration) { r.mu.Lock(); r.synced++; r.mu.Unlock() },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		f(t, r)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (r *rig) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, r.api.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestOnePatchNoGet(t *testing.T) {
	p := aPod("a")
	inBubble(t, newAPI(p), 1, func(t *testing.T, r *rig) {
		for range 3 {
			r.Set(Desired{Pod: p, Status: running("True", "")})
			time.Sleep(time.Minute)
		}
		r.Observe(r.api.get("a"))
		r.expect(t, "PATCH a Running ready=True")
		if r.synced != 1 {
			t.Errorf("synced %d times, want 1", r.synced)
		}
		if got := r.api.get("a").Status.QOSClass; got != v1.PodQOSBurstable {
			t.Errorf("QOS class became %q", got)
		}
	})
}

// The status of a pod that got its sandbox is sent together with the start of its containers, or alone if the start takes long.
func TestSandboxIsReportedWithTheStart(t *testing.T) {
	sandbox := func(up v1.ConditionStatus, ip string) v1.PodStatus {
		s := v1.PodStatus{Phase: v1.PodPending, PodIP: ip,
			Conditions: []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: up}, {Type: v1.PodReady, Status: "False"}}}
		if ip != "" {
			s.PodIPs = []v1.PodIP{{IP: ip}}
		}
		return s
	}
	p, q := aPod("quick"), aPod("slow")
	inBubble(t, newAPI(p, q), 4, func(t *testing.T, r *rig) {
		for _, x := range []*v1.Pod{p, q} {
			r.Set(Desired{Pod: x, Status: sandbox("False", "")})
			time.Sleep(300 * time.Millisecond)
			r.Set(Desired{Pod: x, Status: sandbox("True", "10.0.0.1")})
			time.Sleep(300 * time.Millisecond)
			if x == p {
				r.Set(Desired{Pod: x, Status: running("True", "")})
			}
			time.Sleep(time.Minute)
		}
		r.expect(t, "PATCH quick Pending ready=False", "PATCH quick Running ready=True",
			"PATCH slow Pending ready=False", "PATCH slow Pending ready=False")
	})
}

// The status of a pod that is being created is sent together with the start of its containers, or alone if the start takes long,
// counted from when the pod left the start gate. Other changes are sent at once.
func TestAPodIsBegunAndStartedWithOneRequest(t *testing.T) {
	waiting := func(reason, ip string) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodPending, PodIP: ip, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: "False"}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}}}
	}
	begun := func(ip string) v1.PodStatus { return waiting("ContainerCreating", ip) }
	const sec = time.Second
	for name, c := range map[string]struct {
		queued time.Duration // how long the pod waits for others to start first
		say    func(r *rig, p *v1.Pod)
		want   []string // the requests with their times
	}{
		"quick": {0, func(r *rig, p *v1.Pod) {
			r.Set(Desired{Pod: p, Status: begun("10.0.0.1")})
			time.Sleep(sec / 2)
			r.Set(Desired{Pod: p, Status: running("True", "")})
		}, []string{"1.5s PATCH p Running ready=True"}},
		"slow": {0, func(*rig, *v1.Pod) {}, []string{"2s PATCH p Pending ready=False"}},
		"queued, then quick": {8 * sec, func(r *rig, p *v1.Pod) {
			time.Sleep(sec)
			r.Set(Desired{Pod: p, Status: running("True", "")})
		}, []string{"9s PATCH p Running ready=True"}},
		"queued, then slow": {8 * sec, func(*rig, *v1.Pod) {}, []string{"10s PATCH p Pending ready=False"}},
		"queued long":       {time.Minute, func(*rig, *v1.Pod) {}, []string{"10s PATCH p Pending ready=False"}},
		"cannot start": {0, func(r *rig, p *v1.Pod) {
			r.Set(Desired{Pod: p, Status: waiting("ErrImagePull", "")})
		}, []string{"1s PATCH p Pending ready=False"}},
		"deleted": {0, func(r *rig, _ *v1.Pod) {
			p := r.api.change("p", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
			r.Set(Desired{Pod: p, Status: begun("")})
		}, []string{"1s PATCH p Pending ready=False"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPod("p")
			a := newAPI(p)
			inBubble(t, a, 4, func(t *testing.T, r *rig) {
				began := time.Now()
				var got []string
				a.fail = func(method, name string) error {
					got = append(got, time.Since(began).String()+" "+method+" "+name)
					return nil
				}
				r.Set(Desired{Pod: p, Status: begun(""), Queued: c.queued > 0})
				time.Sleep(max(sec, c.queued))
				if c.queued > 0 {
					r.Set(Desired{Pod: p, Status: begun("")})
				}
				c.say(r, p)
				time.Sleep(time.Minute)
				synctest.Wait()
				for i, said := range a.requests() {
					got[i] += strings.TrimPrefix(said, "PATCH p")
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// When a pod is deleted, the change of its observed generation is sent together with the first end of a container, or alone if that
// end takes long. If the pod is not being deleted, a change of the observed generation is sent at once.
func TestADeletionIsSeenWithItsFirstEnd(t *testing.T) {
	seen := func(generation int64, ready v1.ConditionStatus) v1.PodStatus {
		s := running(ready, "")
		s.ObservedGeneration = generation
		for i := range s.Conditions {
			s.Conditions[i].ObservedGeneration = generation
		}
		return s
	}
	p, q, z := aPod("quick"), aPod("slow"), aPod("resized")
	inBubble(t, newAPI(p, q, z), 4, func(t *testing.T, r *rig) {
		for _, x := range []*v1.Pod{p, q, z} {
			r.Set(Desired{Pod: x, Status: seen(1, "True")})
			time.Sleep(time.Second)
			if x != z {
				x = r.api.change(x.Name, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
				r.Observe(x)
			}
			r.Set(Desired{Pod: x, Status: seen(2, "True")})
			time.Sleep(time.Second)
			if x.Name == "quick" {
				r.Set(Desired{Pod: x, Status: seen(2, "False")})
			}
			if x.Name == "resized" {
				r.expect(t, "PATCH quick Running ready=True", "PATCH quick Running ready=False",
					"PATCH slow Running ready=True", "PATCH slow Running ready=True", "PATCH resized Running ready=True", "PATCH resized Running ready=True")
			}
			time.Sleep(time.Minute)
		}
	})
}

// A container that has ended may be started again in the moment in which its pod is deleted. The API hears at once that it runs, because the
// pod is not torn down until the container has been stopped.
func TestStartAfterTheDeletionIsReportedAtOnce(t *testing.T) {
	p := aPod("p")
	a := newAPI(p)
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		status := func(state v1.ContainerState) v1.PodStatus {
			s := running("False", "")
			s.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: state}}
			return s
		}
		r.Set(Desired{Pod: p, Status: status(v1.ContainerState{Running: &v1.ContainerStateRunning{}})})
		time.Sleep(time.Minute)
		p = a.change("p", func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		r.Observe(p)
		r.Set(Desired{Pod: p, Status: status(v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}})})
		time.Sleep(2 * time.Second)
		before := len(a.requests())
		r.Set(Desired{Pod: a.get("p"), Status: status(v1.ContainerState{Running: &v1.ContainerStateRunning{}})})
		synctest.Wait()
		if got := a.requests()[before:]; len(got) != 1 {
			t.Errorf("requests: %q, want one PATCH", got)
		}
	})
}

// When a pod is deleted, the end of its last container and what follows are sent together with the final status. If that takes long, they
// are sent alone: the end of the container soon, changes after it late.
func TestTheLastEndIsReportedWithTheFinalStatus(t *testing.T) {
	ended := func(phase v1.PodPhase, sandbox v1.ConditionStatus) v1.PodStatus {
		return v1.PodStatus{Phase: phase, Conditions: []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: sandbox}, {Type: v1.PodReady, Status: "False"}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137}}}}}
	}
	for _, c := range []struct {
		name          string
		stopped, took time.Duration // from the end to the end of the sandbox, and from there to the final status
		want          []string
	}{
		{"quick", 300 * time.Millisecond, 600 * time.Millisecond, []string{"900ms PATCH p Failed ready=False", "900ms DELETE p"}},
		{"slow volumes", 2 * time.Second, 9 * time.Second, []string{"1s PATCH p Running ready=False", "11s PATCH p Failed ready=False", "11s DELETE p"}},
		{"very slow volumes", 2 * time.Second, time.Minute,
			[]string{"1s PATCH p Running ready=False", "12s PATCH p Running ready=False", "1m2s PATCH p Failed ready=False", "1m2s DELETE p"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := aPod("p")
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			a := newAPI(p)
			inBubble(t, a, 4, func(t *testing.T, r *rig) {
				seen := running("True", "")
				seen.ObservedGeneration = 2
				r.Set(Desired{Pod: p, Status: running("True", "")})
				time.Sleep(time.Minute)
				r.Set(Desired{Pod: r.api.get("p"), Status: seen})
				time.Sleep(5 * time.Second)
				before := len(a.requests())
				began := time.Now()
				var got []string
				a.fail = func(string, string) error {
					got = append(got, time.Since(began).String())
					return nil
				}
				r.Set(Desired{Pod: r.api.get("p"), Status: ended("Running", "True")})
				time.Sleep(c.stopped)
				r.Set(Desired{Pod: r.api.get("p"), Status: ended("Running", "False")})
				time.Sleep(c.took)
				r.Set(Desired{Pod: r.api.get("p"), Status: ended("Failed", "False"), Final: true})
				synctest.Wait()
				for i, said := range a.requests()[before:] {
					got[i] += " " + said
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestNewestWins(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	a.latency = time.Second
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		for i := range 50 {
			r.Set(Desired{Pod: p, Status: running("True", fmt.Sprint("m", i))})
			time.Sleep(70 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		r.expect(t, "PATCH a Running ready=True m0", "PATCH a Running ready=True m14", "PATCH a Running ready=True m28",
			"PATCH a Running ready=True m42", "PATCH a Running ready=True m49")
		if a.overlap {
			t.Error("two requests of one pod were in flight at once")
		}
	})
}

func TestManyPodsInParallelBounded(t *testing.T) {
	a := newAPI()
	a.latency = time.Second
	var pods []*v1.Pod
	for i := range 100 {
		p := aPod(fmt.Sprint("p", i))
		a.pods[p.Name] = p
		pods = append(pods, p)
	}
	inBubble(t, a, 16, func(t *testing.T, r *rig) {
		began := time.Now()
		for _, p := range pods {
			r.Set(Desired{Pod: p, Status: running("True", "")})
		}
		for len(a.requests()) < 100 {
			time.Sleep(time.Second)
		}
		if a.most != 16 {
			t.Errorf("%d requests at once, want 16", a.most)
		}
		if took := time.Since(began); took > 9*time.Second {
			t.Errorf("100 pods took %s at 1 s each and 16 at once", took)
		}
		synctest.Wait()
		r.Writer.mu.Lock()
		defer r.Writer.mu.Unlock()
		if r.workers != 0 {
			t.Errorf("%d workers left at rest", r.workers)
		}
	})
}

func TestReadinessAndDeletionBeforeCosmetics(t *testing.T) {
	a := newAPI()
	a.latency = 10 * time.Millisecond
	pods := map[string]*v1.Pod{}
	for _, n := range []string{"x", "c1", "c2", "c3", "ready", "dead"} {
		p := aPod(n)
		p.Status = *normalize(ptr(running("False", "")), time.Unix(0, 0))
		if n == "dead" {
			now := metav1.Now()
			p.DeletionTimestamp, p.Status.Phase = &now, v1.PodFailed
		}
		a.pods[n], pods[n] = p, p
	}
	inBubble(t, a, 1, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: pods["x"], Status: running("True", "")})
		synctest.Wait() // the only worker is busy with x
		for _, n := range []string{"c1", "c2", "c3"} {
			r.Set(Desired{Pod: pods[n], Status: running("False", "cosmetic")})
		}
		r.Set(Desired{Pod: pods["ready"], Status: running("True", "")})
		r.Set(Desired{Pod: pods["dead"], Status: pods["dead"].Status, Final: true})
		time.Sleep(time.Second)
		r.expect(t, "PATCH x Running ready=True", "PATCH ready Running ready=True", "DELETE dead",
			"PATCH c1 Running ready=False cosmetic", "PATCH c2 Running ready=False cosmetic",
			"PATCH c3 Running ready=False cosmetic")
	})
}

func ptr[T any](v T) *T { return &v }

func TestCosmeticsAreNotStarved(t *testing.T) {
	a := newAPI()
	a.latency = time.Second
	old := aPod("old")
	old.Status = *normalize(ptr(running("False", "")), time.Unix(0, 0))
	a.pods["old"] = old
	inBubble(t, a, 1, func(t *testing.T, r *rig) {
		for i := range 10 {
			p := aPod(fmt.Sprint("p", i))
			a.mu.Lock()
			a.pods[p.Name] = p
			a.mu.Unlock()
			r.Set(Desired{Pod: p, Status: running("True", "")})
			if i == 0 {
				r.Set(Desired{Pod: old, Status: running("False", "cosmetic")})
			}
			time.Sleep(900 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		for i, line := range a.requests() {
			if strings.HasPrefix(line, "PATCH old") {
				if i > 4 {
					t.Errorf("the cosmetic status came as number %d", i)
				}
				return
			}
		}
		t.Error("the cosmetic status was never sent")
	})
}

func TestFinalStatusThenDelete(t *testing.T) {
	p := aPod("a")
	now := metav1.Now()
	p.DeletionTimestamp = &now
	inBubble(t, newAPI(p), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: v1.PodStatus{Phase: v1.PodSucceeded}, Final: true})
		r.expect(t, "PATCH a Succeeded", "DELETE a")
		if !r.hasEnded("uid-a") {
			t.Error("the writer does not consider the pod as ended")
		}
		r.Set(Desired{Pod: p, Status: running("True", ""), Final: true})
		r.expect(t, "PATCH a Succeeded", "DELETE a")
		r.Forget("uid-a")
		if len(r.pods) != 0 {
			t.Errorf("%d pods remembered", len(r.pods))
		}
	})
}

func TestFinalWaitsForDeletionTimestamp(t *testing.T) {
	p := aPod("a")
	inBubble(t, newAPI(p), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: v1.PodStatus{Phase: v1.PodFailed}, Final: true})
		r.expect(t, "PATCH a Failed")
		r.Observe(r.api.change("a", func(p *v1.Pod) { p.DeletionTimestamp = ptr(metav1.Now()) }))
		r.expect(t, "PATCH a Failed", "DELETE a")
	})
}

func TestMirrorIsNotDeleted(t *testing.T) {
	p := aPod("a")
	p.Annotations = map[string]string{"kubernetes.io/config.mirror": "h"}
	p.DeletionTimestamp = ptr(metav1.Now())
	inBubble(t, newAPI(p), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: v1.PodStatus{Phase: v1.PodFailed}, Final: true})
		r.expect(t, "PATCH a Failed")
	})
}

// hasEnded reports whether the writer considers a pod as ended, so that later calls of Set do nothing.
func (w *Writer) hasEnded(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[uid]
	return e != nil && e.ended
}
