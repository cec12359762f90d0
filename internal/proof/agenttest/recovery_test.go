package agenttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// manyParts returns a pod with an init container, a sidecar, a hook and a main container.
func manyParts(name string) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	return Pod(name, Annotate(simcri.AnnotationStopAfter, "2s"), func(p *v1.Pod) {
		p.Spec.InitContainers = []v1.Container{
			{Name: "first", Image: "i:1", Command: []string{"sh", "-c", "sleep 1"}},
			{Name: "side", Image: "i:1", RestartPolicy: &always},
		}
		p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "sleep 1"}}}}
	})
}

// An agent is killed at each of the actions with which it starts or ends a pod. The next agent continues: nothing runs twice, and nothing
// is left.
func TestKilledAtAnyAction(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for kind := range 4 {
			done, goesOn := kind&1 > 0, kind&2 > 0
			t.Run(fmt.Sprintf("action %d done=%v goes-on=%v", n, done, goesOn), func(t *testing.T) {
				t.Parallel()
				Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
					w.CrashAfter(n, done, goesOn)
					uid := w.Create(manyParts("a"))
					time.Sleep(10 * time.Second)
					w.revive()
					w.WaitReady("a")
					for _, c := range []string{"first", "side", "main"} {
						if starts := len(w.Witness.StartsOf(uid, c)); starts != 1 {
							t.Errorf("container %s was started %d times", c, starts)
						}
					}
					w.CrashAfter(n, done, goesOn)
					w.Delete("a", -1)
					time.Sleep(10 * time.Second)
					w.revive()
					w.WaitGone("a")
					w.Await("the machine keeps nothing", 5*time.Second, func() bool { return w.MachineHolds() == 0 })
				})
			})
		}
	}
}

// revive starts an agent if the last one was killed.
func (w *World) revive() {
	if !w.Alive() {
		w.StopAgent()
		w.StartAgent()
	}
}

// Agents are killed and replaced several times while the pods are idle. Readiness does not flap, no event is recorded, and no container
// changes.
func TestKilledAtRest(t *testing.T) {
	t.Parallel()
	j := &journal{}
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}, Kube: simkube.Config{OnChange: j.onChange}}, func(w *World) {
		w.Create(manyParts("parts"))
		w.Create(Pod("probed", func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].StartupProbe = httpProbe(5, 1), httpProbe(1, 30)
		}))
		w.WaitReady("parts", "probed")
		time.Sleep(time.Minute)
		before := w.ids()
		j.take()
		for i := range 5 {
			w.CrashAgent(i%2 == 0)
			time.Sleep(time.Duration(i) * 20 * time.Second)
			w.StartAgent()
			time.Sleep(time.Duration(i) * 7 * time.Second)
		}
		time.Sleep(time.Minute)
		if d := cmp.Diff(before, w.ids()); d != "" {
			t.Errorf("the containers changed:\n%s", d)
		}
		if lines := j.take(); len(lines) > 0 {
			t.Errorf("the API shows the restarts:\n%q", lines)
		}
	})
}

// While no agent runs, a pod is deleted and another one with its name is created, as a StatefulSet does. The new pod starts when nothing of
// the old one is left, even if the agent learns of the new pod before it sees the old one in the runtime.
func TestMadeAgainWhileNoAgentRuns(t *testing.T) {
	t.Parallel()
	cfg := Config{Runtime: simcri.Config{Latency: latencies()}}
	Run(t, cfg, func(w *World) {
		for i := range 8 {
			w.Create(Pod(fmt.Sprint("p", i), Annotate(simcri.AnnotationStopAfter, "3s")))
		}
		w.WaitReady("p0", "p7")
		w.StopAgent()
		for i := range 8 {
			w.Delete(fmt.Sprint("p", i), 0)
			w.Create(Pod(fmt.Sprint("p", i)))
		}
		// Requests for the status of a sandbox or of a container are slow, but lists are fast.
		w.Runtime.Inject(simcri.Fault{Method: "PodSandboxStatus", Effect: simcri.Slow, Delay: 2 * time.Second, Times: 8})
		w.Runtime.Inject(simcri.Fault{Method: "ContainerStatus", Effect: simcri.Slow, Delay: 2 * time.Second, Times: 8})
		w.StartAgent()
		w.WaitReady("p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
		w.WaitConverged(time.Minute)
		// What the old pods have left in the runtime is removed after the new pods have started.
		w.Await("nothing is left of the first pods", 30*time.Second, func() bool { return w.MachineHolds() == 8 })
	})
}

// While no agent runs, a pod is deleted from the API and comes back with its UID, as from a backup. Its containers still belong to the pod
// and continue.
func TestRestoredWhileNoAgentRuns(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		before, kept := w.ids(), w.Kube.Pod(Namespace, "a")
		w.CrashAgent(false)
		w.Witness.force(kept.UID)
		if err := w.Admin.CoreV1().Pods(Namespace).Delete(t.Context(), "a", deleteNow()); err != nil {
			t.Fatal(err)
		}
		w.Kube.Restore(kept)
		w.StartAgent()
		time.Sleep(time.Minute)
		if d := cmp.Diff(before, w.ids()); d != "" {
			t.Error(d)
		}
		w.WaitReady("a")
		w.Delete("a", 2)
		w.WaitGone("a")
	})
}

// While an agent runs, a pod is deleted from the API and comes back with its UID. The agent has begun to end the pod, and the pod ends. Its
// terminal phase is final, so the pod's owner has to create another pod.
func TestRestoredUnderTheAgent(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}, Kube: simkube.Config{WatchLatency: 5 * time.Millisecond}}, func(w *World) {
		uid := w.Create(Pod("a", Annotate(simcri.AnnotationStopAfter, "1500ms"))) // a forced deletion gives at least 2 s
		w.WaitReady("a")
		kept := w.Kube.Pod(Namespace, "a")
		w.Witness.force(uid)
		if err := w.Admin.CoreV1().Pods(Namespace).Delete(t.Context(), "a", deleteNow()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.Kube.Restore(kept)
		w.WaitPhase("a", v1.PodSucceeded)
		w.WaitConverged(time.Minute)
		if n := w.Witness.Starts(); n != 1 {
			t.Errorf("%d containers were started, want the one", n)
		}
		w.Delete("a", -1)
		w.WaitGone("a")
		w.Await("the machine keeps nothing", 5*time.Second, func() bool { return w.MachineHolds() == 0 })
	})
}

// No checkpoint can be written, because the disk is full. Pods nevertheless start, crash, restart and end, also with later agents. Only
// their back-off is lost.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.SetDiskFull(true)
		uid := w.Create(manyParts("a"))
		w.Create(Pod("crashes", Annotate(simcri.AnnotationExitCode, "1")))
		w.WaitReady("a")
		time.Sleep(2 * time.Minute)
		before := w.ids()["a/main"]
		w.CrashAgent(true)
		w.StartAgent()
		time.Sleep(time.Minute)
		if got := w.ids()["a/main"]; got != before {
			t.Errorf("container %s became %s", before, got)
		}
		w.Kill("a", "main", 1, "")
		w.Await("restarted", time.Minute, func() bool { return len(w.Witness.StartsOf(uid, "main")) == 2 })
		w.WaitReady("a")
		w.SetDiskFull(false)
		w.Delete("a", -1)
		w.Delete("crashes", 1)
		w.WaitGone("a", "crashes")
		w.Await("the machine keeps nothing", 5*time.Second, func() bool { return w.MachineHolds() == 0 })
	})
}

// The machine's clock is changed while no agent runs. Waits still end, no grace period becomes longer, and running containers continue.
func TestClockMoved(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
				crashes := w.Create(Pod("crashes", Annotate(simcri.AnnotationExitCode, "1")))
				w.Create(Pod("runs"))
				w.Create(Pod("ends", Annotate(simcri.AnnotationStopAfter, "never"), func(p *v1.Pod) {
					p.Spec.TerminationGracePeriodSeconds = new(int64(100))
					p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
				}))
				w.Create(Pod("slow", Annotate(simcri.AnnotationReadyAfter, "11m"), func(p *v1.Pod) {
					p.Spec.Containers[0].StartupProbe = httpProbe(10, 1000)
				}))
				w.WaitReady("runs", "ends")
				time.Sleep(10 * time.Minute)
				before, starts := w.ids()["runs/main"], len(w.Witness.StartsOf(crashes, "main"))
				w.Delete("ends", -1)
				time.Sleep(5 * time.Second)
				w.CrashAgent(false)
				w.MoveClock(d)
				w.StartAgent()
				w.WaitGone("ends")
				w.Await("it is started again", 6*time.Minute, func() bool { return len(w.Witness.StartsOf(crashes, "main")) > starts })
				w.WaitReady("slow") // the startup probe begins at once, although the container's start time is in the future
				if got := w.ids()["runs/main"]; got != before {
					t.Errorf("container %s became %s", before, got)
				}
			})
		})
	}
}

// The runtime, the agent and the API server fail at the same time. The agent comes back first, the runtime ten minutes later, and the API
// server after an hour. All pods recover, and a container that did not crash is not restarted.
func TestAllGoneAtOnce(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.Create(Pod("b"))
		w.Create(Pod("c", Annotate(simcri.AnnotationStopAfter, "1s")))
		w.WaitReady("a", "b", "c")
		before := w.ids()
		w.CrashAgent(false)
		back := w.Runtime.Inject(simcri.Fault{Effect: simcri.Refuse})
		w.Runtime.Disconnect()
		w.SetOutage(true)
		w.StartAgent()
		time.Sleep(10 * time.Minute)
		w.Kill("b", "main", 1, "")
		back()
		time.Sleep(50 * time.Minute)
		w.SetOutage(false)
		w.Delete("c", -1)
		w.WaitGone("c")
		w.WaitReady("a", "b")
		w.WaitConverged(time.Minute)
		if got := w.ids()["a/main"]; got != before["a/main"] {
			t.Errorf("container %s became %s", before["a/main"], got)
		}
	})
}

func deleteNow() metav1.DeleteOptions {
	return metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
}
