package syncloop

import (
	"context"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

// running returns a pod that an earlier agent admitted, and whose spec requests CPUs.
func running(name, cpu string) *v1.Pod {
	p := named(name)
	started := metav1.Now()
	p.Status.StartTime = &started
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	return p
}

// After a restart, admission counts the other pods with the resources in their checkpoints, however slow the disk is. Each
// checkpoint is read once.
func TestAdmissionWaitsForTheCheckpointsOfOthers(t *testing.T) {
	t.Parallel()
	b := &bare{node: true}
	var mu sync.Mutex
	loads := map[types.UID]int{}
	b.load = func(uid types.UID) (*decide.Memory, error) {
		mu.Lock()
		loads[uid]++
		mu.Unlock()
		if uid == "new" {
			return nil, nil
		}
		time.Sleep(5 * time.Second)
		return &decide.Memory{Grant: decide.Grant{Admitted: true, Allocated: pod.AllocationOf(running("", "1"))}}, nil
	}
	b.grows = func(_, _ *v1.Pod, _ []*v1.Pod) admit.ResizeResult { return admit.ResizeResult{Reason: "Deferred"} }
	var compared []string
	b.fits = func(p *v1.Pod, others []*v1.Pod) admit.Result {
		for _, o := range others {
			mu.Lock()
			compared = append(compared, o.Name+" "+o.Spec.Containers[0].Resources.Requests.Cpu().String())
			mu.Unlock()
		}
		return admit.Result{OK: true}
	}
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{running("a", "7"), running("b", "8"), named("new")})
		time.Sleep(5*time.Second + time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if len(compared) != 2 || compared[0] != "a 1" || compared[1] != "b 1" {
			t.Errorf("compared against %q, want what the checkpoints say", compared)
		}
		if b.count(&b.done, "set-up new") != 1 {
			t.Errorf("the new pod waits on: done %q", b.done)
		}
		for uid, n := range loads {
			if n != 1 {
				t.Errorf("checkpoint of %s read %d times", uid, n)
			}
		}
	})
}

// A disk that hangs for one pod delays no other pod, neither a new one nor a running one.
func TestCheckpointThatHangsDelaysOnlyItsOwnPod(t *testing.T) {
	t.Parallel()
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
	b.load = func(uid types.UID) (*decide.Memory, error) {
		if uid == "hangs" {
			time.Sleep(time.Hour)
		}
		return nil, nil
	}
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{running("hangs", "1"), named("web")})
		time.Sleep(readWithin + 2*time.Second)
		if b.count(&b.done, "set-up web") != 1 || b.count(&b.done, "set-up hangs") != 0 {
			t.Errorf("done %q", b.done)
		}
		set.Upsert(pod.SourceAPI, named("third"))
		time.Sleep(time.Millisecond)
		if b.count(&b.done, "set-up third") != 1 {
			t.Errorf("a pod that came later waits: done %q", b.done)
		}
	})
}

// Housekeeping may hang: on a directory, on systemd or on a name server. It delays no pod, no other housekeeping and no caller.
func TestHousekeepingThatHangsDelaysNoPod(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
	var mu sync.Mutex
	called, listed, measured := 0, 0, 0
	count := func(n *int) (first bool) {
		mu.Lock()
		defer mu.Unlock()
		*n++
		return *n == 1
	}
	b.onHolds = func(context.Context, []*v1.Pod) { count(&called); time.Sleep(hour) }
	b.left = func(func(types.UID) bool) ([]types.UID, error) { count(&listed); time.Sleep(hour); return nil, nil }
	b.fresh = func(context.Context) {
		if count(&measured) {
			time.Sleep(hour)
		}
	}
	run(t, b, func(set *podset.Set) {
		set.Replace(pod.SourceAPI, []*v1.Pod{named("first")})
		time.Sleep(time.Second)
		set.Upsert(pod.SourceAPI, named("second"))
		time.Sleep(time.Second)
		set.Upsert(pod.SourceAPI, named("third"))
		time.Sleep(time.Second)
		if b.count(&b.done, "set-up second") != 1 || b.count(&b.done, "set-up third") != 1 {
			t.Errorf("pods wait for housekeeping: done %q", b.done)
		}
		if b.count(&b.done, "set-up first") != 0 {
			t.Error("the first pod does not wait for the node to be measured")
		}
		calls := func() (holds, leftovers int) {
			mu.Lock()
			defer mu.Unlock()
			return called, listed
		}
		time.Sleep(10 * time.Minute)
		if holds, leftovers := calls(); holds != 1 || leftovers != 1 {
			t.Errorf("Holds called %d times, Leftovers %d times while the first call hangs", holds, leftovers)
		}
		time.Sleep(hour)
		if holds, leftovers := calls(); b.count(&b.done, "set-up first") != 1 || holds != 2 || leftovers != 2 {
			t.Errorf("done %q, Holds called %d times, Leftovers %d times", b.done, holds, leftovers)
		}
	})
}
