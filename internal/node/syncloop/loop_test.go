package syncloop

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// bare is a node that performs every action at once and has no volumes or cgroups.
type bare struct {
	mu      sync.Mutex
	done    []string
	events  []string
	node    bool
	fits    func(p *v1.Pod, others []*v1.Pod) admit.Result
	since   func(time.Time) bool
	files   func(types.UID) (volume.FilesUsage, error)
	disk    func(context.Context, *v1.Pod) (StorageUse, error)
	holds   []*pod.Observed // the pods that exist in the runtime
	load    func(types.UID) (*decide.Memory, error)
	onHolds func(context.Context, []*v1.Pod) // called with the pods that hold resources of the node
	left    func(func(types.UID) bool) ([]types.UID, error)
	fresh   func(context.Context)
	grows   func(p, allocated *v1.Pod, others []*v1.Pod) admit.ResizeResult
	meter   Meter                   // nil: nothing counts
	fails   func(job pod.Job) error // nil: every action succeeds
	log     *slog.Logger            // nil: nothing is logged
	forgets func(types.UID)         // called when the state about a pod is dropped
}

func (b *bare) Get(uid types.UID) (*pod.Observed, time.Time) {
	for _, o := range b.List() {
		if o.Ref.UID == uid {
			return o, time.Now().Add(time.Hour)
		}
	}
	return &pod.Observed{Ref: pod.Ref{UID: uid}}, time.Now().Add(time.Hour)
}
func (b *bare) Inspect(types.UID) time.Time { return time.Now() }
func (b *bare) List() []*pod.Observed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.holds)
}
func (b *bare) Synced() bool                                                      { return true }
func (b *bare) Sync(*v1.Pod, *pod.Observed, *decide.Memory, *decide.ProbeResults) {}
func (b *bare) Track(*v1.Pod)                                                     {}
func (b *bare) Turn(*podworker.Turn)                                              {}
func (b *bare) Save(types.UID, *decide.Memory) error                              { return nil }
func (b *bare) Event(p *v1.Pod, _, _, reason, message string)                     { b.note(&b.events, reason+" "+p.Name) }
func (b *bare) Do(ctx context.Context, job pod.Job) pod.Outcome {
	b.note(&b.done, job.Action.Op.String()+" "+job.Ref.Name)
	if job.Action.Op == pod.OpPullImage {
		<-ctx.Done()
	}
	if b.fails != nil {
		return pod.Outcome{Err: b.fails(job)}
	}
	return pod.Outcome{Err: ctx.Err()}
}

func (b *bare) Forget(uid types.UID) {
	if b.forgets != nil {
		b.forgets(uid)
	}
}

func (b *bare) Load(uid types.UID) (*decide.Memory, error) {
	if b.load == nil {
		return nil, nil
	}
	return b.load(uid)
}

func (b *bare) note(to *[]string, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, what)
}

func (b *bare) count(in *[]string, what string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range *in {
		if s == what {
			n++
		}
	}
	return n
}

// run runs a loop in a synctest bubble until f returns.
func run(t *testing.T, b *bare, f func(set *podset.Set)) {
	t.Helper()
	runLoop(t, b, func(_ *Loop, set *podset.Set) { f(set) })
}

// runLoop does the same as run, but also passes the loop to f.
func runLoop(t *testing.T, b *bare, f func(l *Loop, set *podset.Set)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		policy := decide.DefaultPolicy()
		if b.log == nil {
			b.log = slog.New(slog.DiscardHandler)
		}
		var l *Loop
		set := podset.New("node", []pod.Source{pod.SourceAPI}, func(uid types.UID) { l.Look(uid, "source") })
		l = New(Config{
			Pods: set, Cache: b, Performer: b, Checkpoints: b, Prober: b, Reporter: b, Recorder: b, Objects: b, Policy: func() *decide.Policy { return &policy },
			Hash: func(*v1.Pod, *v1.Container) string { return "" }, Admit: b.fits, StartSlots: 10, Log: b.log, Meter: b.meter,
			NodeKnown: func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.node }, NodeSince: b.since,
			Holds: b.onHolds, Leftovers: b.left, Refresh: b.fresh, Resize: b.grows, PodFiles: b.files, Storage: b.disk,
		})
		l.SetNetwork(Network{Ready: true})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		f(l, set)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		l.Look("late", "after the end")
		set.Upsert(pod.SourceAPI, named("later"))
		synctest.Wait()
		if n := b.count(&b.done, "set-up later"); n != 0 {
			t.Error("something began after Run had returned")
		}
	})
}

func named(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
}

// An agent that has just started must not refuse a pod because of Node labels that it has not read yet.
func TestAdmissionWaitsForTheNode(t *testing.T) {
	t.Parallel()
	b := &bare{}
	b.fits = func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: b.node, Reason: "NodeAffinity"} }
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{named("web")})
		time.Sleep(10 * time.Second)
		if n := b.count(&b.done, "set-up web"); n != 0 || len(b.events) != 0 {
			t.Fatalf("done %q, events %q before the Node is known", b.done, b.events)
		}
		b.mu.Lock()
		b.node = true
		b.mu.Unlock()
		time.Sleep(2 * time.Second)
		if n := b.count(&b.done, "set-up web"); n != 1 {
			t.Errorf("done %q, events %q", b.done, b.events)
		}
	})
}

// The scheduler may bind a pod because of a label that was just set, a taint that was just removed, or a resource that just
// appeared. The agent reads the Node again before it refuses such a pod. While the API server does not return the Node, the
// agent refuses no pod and preempts none.
func TestRefusalWaitsForANewerNode(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{admit.ReasonNodeAffinity, admit.ReasonTaint, admit.ReasonGroupsPolicy, admit.ReasonOutOf + "example.com/gpu", admit.ReasonUnexpected} {
		b := &bare{node: true}
		var (
			read    atomic.Int64 // when the newest Node was read, in nanoseconds; 0: never
			answers atomic.Bool
		)
		b.since = func(at time.Time) bool {
			if read.Load() > at.UnixNano() {
				return true
			}
			if answers.Load() {
				read.Store(time.Now().UnixNano())
			}
			return false
		}
		b.fits = func(p *v1.Pod, _ []*v1.Pod) admit.Result {
			return admit.Result{OK: p.Name == "web" && read.Load() != 0, Reason: reason}
		}
		run(t, b, func(set *podset.Set) {
			set.Replace(pod.SourceAPI, []*v1.Pod{named("web"), named("other")})
			time.Sleep(time.Hour)
			if b.count(&b.done, "set-up web") != 0 || b.count(&b.events, reason+" web")+b.count(&b.events, reason+" other") != 0 {
				t.Errorf("%s: decided by the old Node: done %q, events %q", reason, b.done, b.events)
			}
			answers.Store(true)
			time.Sleep(time.Minute)
			if n := b.count(&b.done, "set-up web"); n != 1 || b.count(&b.events, reason+" web") != 0 {
				t.Errorf("%s: done %q, events %q", reason, b.done, b.events)
			}
			if n := b.count(&b.events, reason+" other"); n != 1 {
				t.Errorf("%s: events %q", reason, b.events)
			}
		})
	}
}

// Preemption ends each victim once, also if a victim has no worker yet. Then the critical pod starts.
func TestPreemptionEndsItsVictimsOnce(t *testing.T) {
	t.Parallel()
	b := &bare{node: true}
	victim, critical := named("victim"), named("critical")
	started := metav1.Now()
	victim.Status.StartTime = &started // an earlier agent admitted the victim
	b.fits = func(p *v1.Pod, others []*v1.Pod) admit.Result {
		if p.Name == "critical" && len(others) > 0 {
			return admit.Result{Reason: "OutOfcpu", Preempt: others}
		}
		return admit.Result{OK: true}
	}
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{critical, victim})
		time.Sleep(10 * time.Second)
		if n := b.count(&b.events, admit.ReasonPreempting+" victim"); n != 1 {
			t.Errorf("events %q", b.events)
		}
		if n := b.count(&b.done, "set-up critical"); n != 1 {
			t.Errorf("the critical pod did not get its room: done %q", b.done)
		}
	})
}

// A source may delete a pod and add it again with the same UID, before or after the agent has removed what was left of it. The pod must
// start again in both cases.
func TestSameUIDComesBack(t *testing.T) {
	t.Parallel()
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{named("web")})
		synctest.Wait()
		set.Delete(pod.SourceAPI, named("web"))
		set.Upsert(pod.SourceAPI, named("web"))
		time.Sleep(5 * time.Second)
		if b.count(&b.done, "set-up web") == 0 {
			t.Errorf("done %q", b.done)
		}
		set.Delete(pod.SourceAPI, named("web"))
		synctest.Wait()
		time.Sleep(time.Second)
		if b.count(&b.done, "forget web") == 0 {
			t.Errorf("not forgotten: %q", b.done)
		}
		before := b.count(&b.done, "set-up web")
		set.Upsert(pod.SourceAPI, named("web"))
		time.Sleep(5 * time.Second)
		if b.count(&b.done, "set-up web") <= before {
			t.Errorf("did not begin anew: %q", b.done)
		}
	})
}

// An agent that has just started may create the worker of a pod before that of its predecessor, which still runs. The pod must not start,
// and the predecessor is stopped.
func TestPredecessorThatNobodyLookedAt(t *testing.T) {
	t.Parallel()
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
	next := named("web")
	old := &pod.Observed{Ref: pod.Ref{Namespace: next.Namespace, Name: "web", UID: "old"}, Began: time.Now(),
		Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}, Containers: []pod.Container{{ID: "c", Name: "main", SandboxID: "s", State: pod.StateRunning}}}
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, nil)
		synctest.Wait()
		b.mu.Lock()
		b.holds = []*pod.Observed{old} // the cache has the old pod, but nobody has called Look for it
		b.mu.Unlock()
		set.Upsert(pod.SourceAPI, next)
		time.Sleep(30 * time.Second)
		if b.count(&b.done, "run-sandbox web") != 0 || b.count(&b.done, "stop-container web") == 0 {
			t.Errorf("done %q while the old one runs", b.done[:min(len(b.done), 10)])
		}
		b.mu.Lock()
		b.holds = nil
		b.mu.Unlock()
		time.Sleep(time.Hour)
		if b.count(&b.done, "run-sandbox web") == 0 {
			t.Errorf("the old one is gone and the new one waits: done %q", b.done[:min(len(b.done), 20)])
		}
	})
}
