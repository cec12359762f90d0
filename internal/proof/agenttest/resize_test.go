package agenttest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// cpu sets the CPU request of the pod's first container, and applies the options.
func cpu(request string, options ...func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
		for _, o := range options {
			o(p)
		}
	}
}

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

// resize changes the CPU request of a pod's first container.
func (w *World) resize(name, cpu string) {
	w.Helper()
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
	if _, err := w.Admin.CoreV1().Pods(Namespace).Patch(context.Background(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err != nil {
		w.Fatalf("resize %s: %v", name, err)
	}
}

// resizing returns the state of a resize in one line: the conditions of the resize, and the allocated and actual CPUs.
func (w *World) resizing(name string) string {
	p := w.Kube.Pod(Namespace, name)
	var out []string
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			out = append(out, fmt.Sprintf("%s %s %d", c.Type, c.Reason, c.ObservedGeneration))
		}
	}
	st := p.Status.ContainerStatuses[0]
	return strings.Join(append(out, fmt.Sprintf("allocated=%s actual=%s", st.AllocatedResources.Cpu(), st.Resources.Requests.Cpu())), ", ")
}

func (w *World) awaitResizing(name, want string) {
	w.Helper()
	for range 500 {
		if w.resizing(name) == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.Errorf("%s: %s, want %s", name, w.resizing(name), want)
}

func (w *World) shares(name string) int64 {
	r, err := w.Runtime.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: w.Witness.Running(Namespace, name, "main")})
	if err != nil {
		w.Fatal(err)
	}
	return r.GetStatus().GetResources().GetLinux().GetCpuShares()
}

// A resize that fits is carried out without a restart. A resize that does not fit yet is deferred, and stays so after a restart of the
// agent. When another pod leaves, the deferred resize of the pod with the highest priority is carried out first. A resize that can never
// fit is infeasible.
func TestResize(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) { // the simulated machine has 100 CPUs
		low := w.Create(Pod("low", cpu("10", priority(1))))
		high := w.Create(Pod("high", cpu("10", priority(9))))
		w.Create(Pod("other", cpu("60")))
		w.WaitReady("low", "high", "other")

		w.resize("low", "15")
		w.awaitResizing("low", "allocated=15 actual=15")
		if got := w.shares("low"); got != 15*1024 {
			t.Errorf("the container has %d shares", got)
		}
		if n := w.Runtime.Calls("UpdatePodSandboxResources"); n != 1 {
			t.Errorf("the runtime got the pod's size %d times", n)
		}

		w.resize("low", "40") // only 15 CPUs are free
		w.awaitResizing("low", "PodResizePending Deferred 3, allocated=15 actual=15")
		w.resize("high", "50")
		w.awaitResizing("high", "PodResizePending Deferred 2, allocated=10 actual=10")
		w.resize("other", "200")
		w.awaitResizing("other", "PodResizePending Infeasible 2, allocated=60 actual=60")

		w.RestartAgent(time.Minute)
		time.Sleep(time.Minute)
		w.awaitResizing("low", "PodResizePending Deferred 3, allocated=15 actual=15")
		if got := w.shares("low"); got != 15*1024 {
			t.Errorf("after a restart of the agent the container has %d shares", got)
		}
		// Ten CPUs are not allocated; a deferred resize has no claim to them.
		w.Create(Pod("new", cpu("10")))
		w.WaitReady("new")
		w.Delete("new", 0)

		w.Delete("other", 0) // now there is room for both resizes
		w.awaitResizing("high", "allocated=50 actual=50")
		w.awaitResizing("low", "allocated=40 actual=40")
		for name, uid := range map[string]types.UID{"low": low, "high": high} {
			if n := len(w.Witness.StartsOf(uid, "main")); n != 1 {
				t.Errorf("%s was started %d times", name, n)
			}
		}
	})
}

// Without a checkpoint, the agent takes the allocated resources of a pod from the API. A resize that was requested while no agent ran is
// decided as usual.
func TestResizeAfterALostCheckpoint(t *testing.T) {
	t.Parallel()
	Run(t, Config{Forgetful: true}, func(w *World) {
		w.Create(Pod("a", cpu("10")))
		w.Create(Pod("b", cpu("20")))
		w.WaitReady("a", "b")
		time.Sleep(time.Minute)
		w.StopAgent()
		w.resize("a", "500")
		w.resize("b", "30")
		w.StartAgent()
		w.awaitResizing("a", "PodResizePending Infeasible 2, allocated=10 actual=10")
		w.awaitResizing("b", "allocated=30 actual=30")
		if got := w.shares("a"); got != 10*1024 {
			t.Errorf("the container has %d shares", got)
		}
	})
}

// If a critical pod is resized and there is no room, the node preempts other pods.
func TestResizeOfACriticalPodPreempts(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("critical", cpu("10", priority(2000000000))))
		small, big := w.Create(Pod("small", cpu("20"))), w.Create(Pod("big", cpu("60")))
		w.WaitReady("critical", "small", "big")
		w.Witness.force(small)
		w.resize("critical", "30")
		w.awaitResizing("critical", "allocated=30 actual=30")
		if p := w.Kube.Pod(Namespace, "small"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Preempting" {
			t.Errorf("small is %s %s", p.Status.Phase, p.Status.Reason)
		}
		if p := w.Kube.Pod(Namespace, "big"); !Ready(p) || len(w.Witness.StartsOf(big, "main")) != 1 {
			t.Errorf("big is %s %s", p.Status.Phase, p.Status.Reason)
		}
	})
}

// "Resizes are retried by the pod's priority": when there is room for one deferred resize, the pod with the highest priority gets it, even
// if the resize of another pod was requested earlier.
func TestDeferredResizesAreInOrder(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("low", cpu("10", priority(1))))
		w.Create(Pod("high", cpu("10", priority(9))))
		w.Create(Pod("other", cpu("75")))
		w.WaitReady("low", "high", "other")
		w.resize("low", "80")
		w.awaitResizing("low", "PodResizePending Deferred 2, allocated=10 actual=10")
		time.Sleep(time.Minute)
		w.resize("high", "80")
		w.awaitResizing("high", "PodResizePending Deferred 2, allocated=10 actual=10")
		w.Delete("other", 0)
		w.awaitResizing("high", "allocated=80 actual=80")
		w.awaitResizing("low", "PodResizePending Deferred 2, allocated=10 actual=10")
		w.resize("low", "10") // setting the earlier request again withdraws the resize
		w.awaitResizing("low", "allocated=10 actual=10")
	})
}

// If the runtime refuses to update a container for a resize, the API shows the error, and the agent tries again. The next agent tries again
// too.
func TestResizeThatFails(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		uid := w.Create(Pod("a", cpu("1")))
		w.WaitReady("a")
		heal := w.Runtime.Inject(simcri.Fault{Method: "UpdateContainerResources", Pod: "a", Err: status.Error(codes.Unknown, "device or resource busy")})
		w.resize("a", "2")
		w.awaitResizing("a", "PodResizeInProgress Error 2, allocated=2 actual=1")
		w.RestartAgent(time.Minute)
		time.Sleep(time.Minute)
		w.awaitResizing("a", "PodResizeInProgress Error 2, allocated=2 actual=1")
		heal()
		time.Sleep(3 * time.Minute)
		w.awaitResizing("a", "allocated=2 actual=2")
		if n := len(w.Witness.StartsOf(uid, "main")); n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

// With the resizePolicy RestartContainer, each resize restarts the container at once, without a back-off.
func TestResizeRestartsTheContainer(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		uid := w.Create(Pod("a", cpu("1"), func(p *v1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		}))
		w.WaitReady("a")
		for i := 2; i < 6; i++ {
			began := time.Now()
			w.resize("a", fmt.Sprint(i))
			w.Await("restarted", time.Minute, func() bool { return len(w.Witness.StartsOf(uid, "main")) == i })
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("the restart for resize %d took %s", i-1, took)
			}
			w.awaitResizing("a", fmt.Sprintf("allocated=%d actual=%d", i, i))
		}
	})
}
