package agenttest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// journal records how pods change in the API, as lines of text.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) onChange(typ watch.EventType, old, obj runtime.Object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch o := obj.(type) {
	case *v1.Event:
		if o.InvolvedObject.Kind == "Pod" {
			j.lines = append(j.lines, "event "+o.InvolvedObject.Name+" "+o.Reason)
		}
	case *v1.Pod:
		if typ == watch.Modified && Ready(old.(*v1.Pod)) != Ready(o) {
			j.lines = append(j.lines, fmt.Sprintf("pod %s ready=%v", o.Name, Ready(o)))
		}
	}
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.lines
	j.lines = nil
	return out
}

// ids returns the ID and the restart count of each running container, by pod and container.
func (w *World) ids() map[string]string {
	out := map[string]string{}
	for _, c := range w.Witness.Containers() {
		if c.Running {
			out[c.Pod+"/"+c.Name] = fmt.Sprint(c.ID, " ", c.Attempt)
		}
	}
	return out
}

// A new agent changes nothing, whether it finds checkpoints or not.
func TestRestartOfTheAgent(t *testing.T) {
	t.Parallel()
	for name, forgetful := range map[string]bool{"checkpoints": false, "nothing kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := &journal{}
			Run(t, Config{Forgetful: forgetful, Runtime: simcri.Config{Latency: latencies()}, Kube: simkube.Config{OnChange: j.onChange}}, func(w *World) {
				w.Create(Pod("plain"))
				w.Create(Pod("probed", func(p *v1.Pod) {
					p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = httpProbe(5, 2), httpProbe(10, 3)
					p.Spec.Containers[0].StartupProbe = httpProbe(1, 30)
				}))
				w.Create(Pod("hooked", func(p *v1.Pod) {
					p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
				}))
				w.WaitReady("plain", "probed", "hooked")
				w.Kill("plain", "main", 1, "")
				time.Sleep(30 * time.Second)
				w.WaitReady("plain", "probed", "hooked")
				before, starts := w.ids(), w.Witness.Starts()
				j.take()
				execs := w.Runtime.Calls("ExecSync")
				for range 3 {
					w.RestartAgent(time.Minute)
					time.Sleep(time.Minute)
				}
				if d := cmp.Diff(before, w.ids()); d != "" {
					t.Errorf("the containers changed:\n%s", d)
				}
				if n := w.Witness.Starts(); n != starts {
					t.Errorf("%d containers were started", n-starts)
				}
				if n := w.Runtime.Calls("ExecSync"); n != execs {
					t.Errorf("%d hooks ran again", n-execs)
				}
				if lines := j.take(); len(lines) > 0 {
					t.Errorf("the API shows the restart:\n%q", lines)
				}
				if r := w.NodeReady(); r.Status != v1.ConditionTrue {
					t.Errorf("node %+v", r)
				}
			})
		})
	}
}

// While the API server is unreachable, containers continue and crashed ones restart. Afterwards the API shows their state.
func TestAPIOutage(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		for i := range 5 {
			w.Create(Pod(fmt.Sprintf("p%d", i)))
		}
		w.WaitReady("p0", "p1", "p2", "p3", "p4")
		time.Sleep(15 * time.Minute)
		w.SetOutage(true)
		time.Sleep(10 * time.Minute)
		before := w.Witness.Starts()
		w.Kill("p0", "main", 1, "")
		time.Sleep(50 * time.Minute)
		if n := w.Witness.Starts() - before; n != 1 {
			t.Errorf("%d containers started during the outage, want the one that crashed", n)
		}
		w.Admin = nil // the API server cannot be reached by the test either
		w.SetOutage(false)
		w.Await("the restart is in the API", 2*time.Minute, func() bool {
			return w.Kube.Pod(Namespace, "p0").Status.ContainerStatuses[0].RestartCount == 1
		})
		w.WaitConverged(time.Minute)
		w.Await("the node is Ready", 2*time.Minute, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
	})
}

// After an outage of the API server, however long it was, the agent soon learns of changes.
func TestAfterAnOutageTheAgentKnowsSoon(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == "True" })
		for i := range 5 {
			w.SetOutage(true)
			time.Sleep(20 * time.Minute)
			w.SetOutage(false)
			name, began := fmt.Sprint("late", i), time.Now()
			w.Create(Pod(name))
			w.WaitReady(name)
			if took := time.Since(began); took > 25*time.Second {
				t.Errorf("%s was Ready %v after the outage", name, took)
			}
			time.Sleep(5 * time.Minute)
		}
	})
}

// If a watch ends, breaks, or is too old, the agent only lists the pods again.
func TestWatchTrouble(t *testing.T) {
	t.Parallel()
	Run(t, Config{Kube: simkube.Config{Latency: 20 * time.Millisecond, WatchLatency: 50 * time.Millisecond}, Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("keep"))
		w.Create(Pod("go"))
		w.WaitReady("keep", "go")
		before := w.ids()["keep/main"]
		for range 5 {
			w.Kube.CutWatches()
			w.Kube.Compact()
			time.Sleep(10 * time.Minute)
		}
		w.Kube.SetOutage(true)
		time.Sleep(time.Second)
		w.Kube.Compact()
		w.Kube.SetOutage(false)
		w.Delete("go", 3)
		w.WaitGone("go")
		if got := w.ids()["keep/main"]; got != before {
			t.Errorf("container %s became %s", before, got)
		}
	})
}

// While the runtime hangs, the node is not Ready; when it answers, the node is Ready again. No container changes.
func TestRuntimeHangs(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		time.Sleep(time.Minute)
		before := w.ids()
		back := w.Runtime.Inject(simcri.Fault{Effect: simcri.Hang})
		w.Await("the node is NotReady", 10*time.Minute, func() bool { return w.NodeReady().Status == v1.ConditionFalse })
		time.Sleep(10 * time.Minute)
		back()
		// The calls that hang end by their own timeouts, at most two minutes long.
		w.Await("the node is Ready", 130*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		w.Create(Pod("b"))
		w.WaitReady("b")
		after := w.ids()
		delete(after, "b/main")
		if d := cmp.Diff(before, after); d != "" {
			t.Error(d)
		}
	})
}

// When the runtime restarts, event streams break and calls fail for a while. No container changes.
func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.Create(Pod("b"))
		w.WaitReady("a", "b")
		before := w.ids()
		back := w.Runtime.Inject(simcri.Fault{Effect: simcri.Refuse, Err: status.Error(codes.Unavailable, "connection refused")})
		w.Runtime.Disconnect()
		w.Await("the node is NotReady", 2*time.Minute, func() bool { return w.NodeReady().Status == v1.ConditionFalse })
		back()
		w.Await("the node is Ready", 30*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		if d := cmp.Diff(before, w.ids()); d != "" {
			t.Error(d)
		}
		w.Kill("a", "main", 1, "")
		w.Await("a runs again", 5*time.Second, func() bool { return w.Witness.Running(Namespace, "a", "main") != "" })
		w.WaitReady("a", "b")
	})
}

// If the inspection of one pod hangs, other pods are not affected.
func TestHungPod(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		for _, m := range []string{"PodSandboxStatus", "ContainerStatus", "StopContainer"} {
			w.Runtime.Inject(simcri.Fault{Method: m, Pod: "a", Effect: simcri.Hang})
		}
		w.Kill("a", "main", 1, "")
		for range 15 {
			time.Sleep(time.Minute)
			if r := w.NodeReady(); r.Status != v1.ConditionTrue {
				t.Fatalf("node %s: %s", r.Reason, r.Message)
			}
		}
		events, err := w.Admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return e.Reason == "PodInspectionHangs" && e.InvolvedObject.Kind == "Node" && strings.Contains(e.Message, Namespace+"/a")
		}) {
			t.Errorf("no event on the node names the pod that hangs")
		}
		w.Create(Pod("b"))
		w.WaitReady("b")
		w.Delete("b", 2)
		w.WaitGone("b")
	})
}

// Pods are deleted while no agent runs. The next agent ends them with the grace period from their containers' annotations.
func TestDeletedWhileTheAgentIsDown(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		slow := func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(40)) }
		uid := w.Create(Pod("gone", slow, Annotate(simcri.AnnotationStopAfter, "30s")))
		w.Create(Pod("deleted", slow, Annotate(simcri.AnnotationStopAfter, "5s")))
		w.Create(Pod("stays"))
		w.WaitReady("gone", "deleted", "stays")
		stays := w.ids()["stays/main"]
		w.StopAgent()
		w.Delete("gone", 0)
		w.Delete("deleted", -1)
		time.Sleep(10 * time.Minute)
		w.StartAgent()
		w.WaitGone("gone", "deleted")
		if code, _ := w.Witness.LastExit(uid, "main"); code != 0 {
			t.Errorf("exit code %d: the container did not get its grace period of 40 s", code)
		}
		if got := w.ids()["stays/main"]; got != stays {
			t.Errorf("container %s became %s", stays, got)
		}
		w.Await("the machine keeps something of one pod", 5*time.Second, func() bool { return w.MachineHolds() == 1 })
	})
}

// An agent that starts while the API server is unreachable stops nothing until the API server has answered.
func TestAgentStartsDuringAnOutage(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		before := w.ids()
		w.StopAgent()
		w.SetOutage(true)
		w.StartAgent()
		time.Sleep(30 * time.Minute)
		if d := cmp.Diff(before, w.ids()); d != "" {
			t.Error(d)
		}
		w.SetOutage(false)
		w.Await("the node is Ready", 2*time.Minute, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		w.Create(Pod("b"))
		w.WaitReady("a", "b")
	})
}

// If a runtime event or the answer of a call is lost, the pod still starts, restarts and ends, only later.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, m := range []string{simcri.MethodEvent, "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox", "PullImage"} {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
				times := 2
				if m == simcri.MethodEvent {
					times = 0
				}
				w.Runtime.Inject(simcri.Fault{Method: m, Effect: simcri.Lost, Delay: time.Second, Times: times, Err: status.Error(codes.DeadlineExceeded, "lost")})
				uid := w.Create(Pod("a"))
				w.WaitReady("a")
				w.Kill("a", "main", 1, "")
				w.Await("restarted", 3*time.Minute, func() bool { return len(w.Witness.StartsOf(uid, "main")) > 1 })
				w.WaitReady("a")
				w.Delete("a", 2)
				w.WaitGone("a")
			})
		})
	}
}

// After a reboot of the machine all sandboxes are dead, and every pod starts again in a new sandbox.
func TestReboot(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		uid := w.Create(Pod("a", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "first", Image: "i:1", Command: []string{"true"}}}
		}))
		w.WaitReady("a")
		w.StopAgent()
		w.KillSandboxes()
		w.StartAgent()
		w.Await("restarted", time.Minute, func() bool { return len(w.Witness.StartsOf(uid, "main")) > 1 })
		w.WaitReady("a")
		if n := len(w.Witness.StartsOf(uid, "first")); n != 2 {
			t.Errorf("the init container ran %d times, want again in the new sandbox", n)
		}
	})
}

// If the API server does not answer the request with the status of one pod, the statuses of other pods are not delayed.
func TestStatusRefused(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		remove := w.Kube.Inject(simkube.Fault{Verb: "patch", Resource: "pods/status", Name: "a", Effect: simkube.Hang})
		w.Create(Pod("a"))
		w.Create(Pod("b"))
		w.WaitReady("b")
		// The pod starts although its status cannot be written.
		w.Await("a to run", time.Second, func() bool { return w.Witness.Running(Namespace, "a", "main") != "" })
		remove()
		w.WaitReady("a")
	})
}

// If an administrator deletes the Node object, the containers of its pods continue.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		time.Sleep(time.Minute)
		if err := w.Admin.CoreV1().Nodes().Delete(t.Context(), NodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if w.Witness.Running(Namespace, "a", "main") == "" {
			t.Error("the container ended with the Node object")
		}
	})
}
