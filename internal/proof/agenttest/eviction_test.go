package agenttest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

const mi = 1 << 20

// thresholds sets the agent's evictionHard, and an evictionPressureTransitionPeriod of a minute.
func thresholds(hard map[string]string) func(*agent.Config) {
	return func(c *agent.Config) {
		c.Kubelet.EvictionHard = hard
		c.Kubelet.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Minute}
	}
}

// using sets how much memory a pod uses, in MiB, and how fast that grows, in MiB per second.
func using(memory, grows int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[simcri.AnnotationMemory] = strconv.Itoa(memory * mi)
		p.Annotations[simcri.AnnotationMemoryGrows] = strconv.Itoa(grows * mi)
	}
}

// writing sets how much a pod has written into its writable layer, in MiB, and how fast that grows, in MiB per second.
func writing(disk, grows int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[simcri.AnnotationDisk] = strconv.Itoa(disk * mi)
		p.Annotations[simcri.AnnotationDiskGrows] = strconv.Itoa(grows * mi)
	}
}

func requesting(memory string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	}
}

func withPriority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

// shortOfMemory and shortOfDisk are values for Config.Short, and match the memory, disk and thresholds of the tests: the machine is short
// if less than a GiB of memory, or of disk space, is left. The arguments are the bytes in use.
func shortOfMemory(memory, _ int64) bool { return memory > 3<<30 }
func shortOfDisk(_, disk int64) bool     { return disk > 9<<30 }

// condition returns the status of a condition of the Node; "" if the Node lacks the condition.
func (w *World) condition(kind v1.NodeConditionType) v1.ConditionStatus {
	n, err := w.Admin.CoreV1().Nodes().Get(context.Background(), NodeName, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// awaitCondition waits until a condition of the Node has the status want, and returns how long that took.
func (w *World) awaitCondition(kind v1.NodeConditionType, want v1.ConditionStatus, within time.Duration) time.Duration {
	w.Helper()
	began := time.Now()
	w.Await(string(kind)+" "+string(want), within, func() bool { return w.condition(kind) == want })
	return time.Since(began)
}

// evicted reports whether the API shows that a pod was evicted.
func (w *World) evicted(name string) bool {
	p := w.Kube.Pod(Namespace, name)
	return p != nil && p.Status.Phase == v1.PodFailed && p.Status.Reason == "Evicted"
}

// runs returns how many of the named pods are in the phase Running.
func (w *World) runs(names ...string) (n int) {
	for _, name := range names {
		if p := w.Kube.Pod(Namespace, name); p != nil && p.Status.Phase == v1.PodRunning {
			n++
		}
	}
	return n
}

// A pod that is already ending with a grace period of an hour uses up the memory. The eviction shortens its grace period to 0. No other pod
// is evicted, and the status keeps the first reason of the end.
func TestEvictionOfAPodThatEndsSlowly(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 1, Memory: "4Gi", Short: shortOfMemory, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("other", using(1000, 0)))
		w.Create(Pod("eater", using(1000, 20), Annotate(simcri.AnnotationStopAfter, "never"), func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds, p.Spec.ActiveDeadlineSeconds = new(int64(3600)), new(int64(10))
		}))
		w.Await("the eater is gone", 5*time.Minute, func() bool { return w.Kube.Pod(Namespace, "eater").Status.Phase == v1.PodFailed })
		if reason := w.Kube.Pod(Namespace, "eater").Status.Reason; reason != "DeadlineExceeded" {
			t.Errorf("the eater failed for %s, want the first reason", reason)
		}
		w.awaitCondition(v1.NodeMemoryPressure, v1.ConditionFalse, 5*time.Minute)
		if w.runs("other") != 1 {
			t.Error("the other pod went, too")
		}
	})
}

// A pod uses up the memory. Within a second after the threshold is crossed, the agent evicts this pod and no other. The MemoryPressure
// condition becomes True at once and stays for the transition period.
func TestEvictionForMemory(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 1, Memory: "4Gi", Short: shortOfMemory, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		names := []string{"modest", "important", "eater", "within"}
		w.Create(Pod("modest", using(300, 0)))
		w.Create(Pod("important", using(1000, 0), withPriority(1000)))
		w.Create(Pod("within", using(900, 0), requesting("1Gi")))
		w.Create(Pod("eater", using(400, 10)))
		w.Await("all run", time.Minute, func() bool { return w.runs(names...) == 4 })
		// 3072 MiB may be used and 2600 MiB are, so the threshold is crossed after 47 s.
		crossed := w.Kube.Pod(Namespace, "eater").Status.ContainerStatuses[0].State.Running.StartedAt.Add(47 * time.Second)
		w.Await("the eater is gone", 2*time.Minute, func() bool { return w.evicted("eater") })
		p := w.Kube.Pod(Namespace, "eater")
		if late := time.Since(crossed); late < 0 || late > 5*time.Second {
			t.Errorf("the eater is gone %v after the threshold", late)
		}
		if !strings.HasPrefix(p.Status.Message, "The node was low on resource: memory. Threshold quantity: 1Gi, available: ") ||
			!strings.Contains(p.Status.Message, "Container main was using ") {
			t.Errorf("message %q", p.Status.Message)
		}
		if c := podCondition(p, v1.DisruptionTarget); c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonTerminationByKubelet {
			t.Errorf("condition %+v", c)
		}
		if took := w.awaitCondition(v1.NodeMemoryPressure, v1.ConditionTrue, 10*time.Second); took > 2*time.Second {
			t.Errorf("the condition took %v", took)
		}
		if took := w.awaitCondition(v1.NodeMemoryPressure, v1.ConditionFalse, 3*time.Minute); took < 50*time.Second || took > 75*time.Second {
			t.Errorf("the node was under pressure for %v, the transition period is 1m", took)
		}
		time.Sleep(10 * time.Minute)
		if n := w.runs("modest", "important", "within"); n != 3 {
			t.Errorf("%d of 3 others run", n)
		}
		if n := w.events("Evicted"); n != 1 {
			t.Errorf("%d Evicted events", n)
		}
		if n := w.events("EvictionThresholdMet"); n != 1 {
			t.Errorf("%d EvictionThresholdMet events", n)
		}
	})
}

// A pod that ignores SIGTERM and has a preStop hook eats memory so fast that nothing would be left two seconds after the threshold. The agent
// kills its container at once, without the hook, so that most of the reserve is left.
func TestEvictionForMemoryKillsAtOnce(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 1, Memory: "4Gi", Short: shortOfMemory, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("other", using(1000, 0)))
		w.Create(Pod("eater", using(400, 500), Annotate(simcri.AnnotationStopAfter, "never"), func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sleep", "10"}}}}
		}))
		most := int64(0)
		for began := time.Now(); !w.evicted("eater") && time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
			used, _, _ := w.Runtime.Used()
			most = max(most, used/mi)
		}
		if end := w.Kube.Pod(Namespace, "eater").Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 {
			t.Errorf("the container of the eater ended as %+v, want killed", end)
		}
		if most < 3072 || most > 3072+200 {
			t.Errorf("the pods have used %d MiB, want little more than 3072, from where the machine of 4096 MiB is short", most)
		}
		time.Sleep(time.Minute)
		if w.runs("other") != 1 {
			t.Error("the other pod went, too")
		}
	})
}

// Two pods eat memory. The first is killed, and its network takes half a minute to go. The second is evicted meanwhile, as soon as memory is short again.
func TestEvictionForMemoryDoesNotWaitForANetwork(t *testing.T) {
	t.Parallel()
	slow := simcri.Config{Latency: map[string]simcri.Latency{"StopPodSandbox": {Mean: 25 * time.Second}}}
	Run(t, Config{Seed: 1, Memory: "4Gi", Short: shortOfMemory, Runtime: slow, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("other", using(100, 0)))
		w.Create(Pod("one", using(400, 200)))
		w.Create(Pod("two", using(300, 200)))
		most := int64(0)
		for began := time.Now(); w.runs("one", "two") > 0 || time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
			used, _, _ := w.Runtime.Used()
			most = max(most, used/mi)
			if time.Since(began) > 10*time.Minute {
				t.Fatal("a pod that eats memory still runs")
			}
		}
		if most < 3072 || most > 3072+150 {
			t.Errorf("the pods have used %d MiB, want little more than 3072, from where the machine of 4096 MiB is short", most)
		}
		w.Await("both are evicted", 5*time.Minute, func() bool { return w.evicted("one") && w.evicted("two") })
		if w.runs("other") != 1 {
			t.Error("the other pod went, too")
		}
	})
}

func podCondition(p *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// events counts the events with this reason in all namespaces.
func (w *World) events(reason string) (n int) {
	list, err := w.Admin.CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Reason == reason {
			n += int(max(1, list.Items[i].Count))
		}
	}
	return n
}

// The agent is killed while an evicted pod is still ending. The next agent evicts no other pod, and the first pod stays evicted.
func TestEvictionSurvivesARestart(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 2, Memory: "4Gi", Short: shortOfMemory, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("other", using(1000, 0)))
		w.Create(Pod("eater", using(1500, 100), Annotate(simcri.AnnotationStopAfter, "never")))
		w.Await("both run", time.Minute, func() bool { return w.runs("other", "eater") == 2 })
		w.Await("it is asked to go", time.Minute, func() bool { return w.events("Evicted") == 1 })
		w.CrashAgent(true)
		time.Sleep(500 * time.Millisecond)
		w.StartAgent()
		w.Await("it is evicted", time.Minute, func() bool { return w.evicted("eater") })
		time.Sleep(10 * time.Minute)
		w.RestartAgent(time.Second)
		time.Sleep(time.Minute)
		if !w.evicted("eater") || w.runs("other") != 1 {
			t.Errorf("eater evicted: %v; others run: %d", w.evicted("eater"), w.runs("other"))
		}
		if n := w.condition(v1.NodeMemoryPressure); n != v1.ConditionFalse {
			t.Errorf("MemoryPressure %s", n)
		}
	})
}

// A critical pod uses up the memory. The agent evicts all other pods, one after another, although that does not free enough memory. It
// never evicts the critical pod.
func TestEvictionSparesCriticalPods(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 3, Memory: "4Gi", Short: shortOfMemory, Agent: thresholds(map[string]string{"memory.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("critical", using(2000, 100), withPriority(2_000_000_000)))
		w.Create(Pod("a", using(200, 0)))
		w.Create(Pod("b", using(100, 0)))
		w.Await("all run", time.Minute, func() bool { return w.runs("critical", "a", "b") == 3 })
		w.Await("the others are gone", time.Minute, func() bool { return w.evicted("a") && w.evicted("b") })
		time.Sleep(5 * time.Minute)
		if w.runs("critical") != 1 || w.condition(v1.NodeMemoryPressure) != v1.ConditionTrue {
			t.Errorf("critical runs: %d, MemoryPressure %s", w.runs("critical"), w.condition(v1.NodeMemoryPressure))
		}
	})
}

// A pod fills the disk. The agent evicts it and removes its containers, so that the disk has space again.
func TestEvictionForDisk(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 4, Storage: "10Gi", Short: shortOfDisk, Runtime: late(), Agent: thresholds(map[string]string{"nodefs.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("modest", writing(500, 0)))
		w.Create(Pod("writer", writing(5000, 100)))
		w.Await("both run", time.Minute, func() bool { return w.runs("modest", "writer") == 2 })
		w.Await("the writer is gone", 5*time.Minute, func() bool { return w.evicted("writer") })
		if m := w.Kube.Pod(Namespace, "writer").Status.Message; !strings.HasPrefix(m, "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: ") {
			t.Errorf("message %q", m)
		}
		w.awaitCondition(v1.NodeDiskPressure, v1.ConditionFalse, 5*time.Minute)
		time.Sleep(5 * time.Minute)
		if !w.evicted("writer") || w.runs("modest") != 1 {
			t.Errorf("writer evicted: %v; modest runs: %d", w.evicted("writer"), w.runs("modest"))
		}
	})
}

// late is a runtime that measures layers every 10 s and deletes files a second after its answer, as containerd does.
func late() simcri.Config {
	return simcri.Config{Lag: simcri.Lag{Layers: 10 * time.Second, Deletion: time.Second}}
}

// A pod fills the disk within seconds after its start, before the runtime has measured its layer. Another pod has something on the disk, and its end
// would relieve the shortage that has just begun. The agent waits for the measurement and evicts the pod that writes.
func TestEvictionForDiskOfAPodThatIsNotMeasuredYet(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 4, Storage: "10Gi", Short: shortOfDisk, Runtime: late(), Agent: thresholds(map[string]string{"nodefs.available": "1Gi"})}
	Run(t, cfg, func(w *World) {
		w.Create(Pod("ballast", writing(8000, 0), withPriority(2_000_000_000)))
		w.Create(Pod("modest", writing(300, 0)))
		w.Await("both run", time.Minute, func() bool { return w.runs("ballast", "modest") == 2 })
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(21 * time.Second))) // right after a measurement
		w.Create(Pod("writer", writing(0, 200)))
		w.Await("a pod is gone", time.Minute, func() bool { return w.evicted("writer") || w.evicted("modest") })
		w.awaitCondition(v1.NodeDiskPressure, v1.ConditionFalse, 5*time.Minute)
		time.Sleep(5 * time.Minute)
		if !w.evicted("writer") || w.runs("modest") != 1 {
			t.Errorf("writer evicted: %v; modest runs: %d", w.evicted("writer"), w.runs("modest"))
		}
	})
}

// A pod that fills the disk is evicted while the API server is unreachable. Its dead containers are removed anyway, so that no other pod
// has to be evicted. Later the API server gets the last status of the pod, with the exit code.
func TestEvictionForDiskWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	Run(t, Config{Seed: 7, Storage: "10Gi", Short: shortOfDisk, Runtime: late(), Agent: thresholds(map[string]string{"nodefs.available": "1Gi"})}, func(w *World) {
		w.Create(Pod("modest", writing(2000, 0)))
		w.Create(Pod("writer", writing(5000, 100)))
		w.Await("both run", time.Minute, func() bool { return w.runs("modest", "writer") == 2 })
		w.SetOutage(true)
		w.Await("the disk is free again", 5*time.Minute, func() bool {
			_, disk, _ := w.Runtime.Used()
			return disk < 3<<30
		})
		time.Sleep(5 * time.Minute)
		w.SetOutage(false)
		w.Await("the writer is evicted", time.Minute, func() bool { return w.evicted("writer") })
		if end := w.Kube.Pod(Namespace, "writer").Status.ContainerStatuses[0].State.Terminated; end == nil || end.ContainerID == "" || end.Reason != "Completed" {
			t.Errorf("the end of the writer's container is reported as %+v", end)
		}
		time.Sleep(5 * time.Minute)
		if w.evicted("modest") || w.runs("modest") != 1 {
			t.Errorf("the other pod went, too: it runs %d", w.runs("modest"))
		}
	})
}
