package agenttest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

const (
	busyPods = 500
	newPods  = 20
	// newWait is how long a new pod may take to be Ready on the busy node. On an idle node it takes about a second.
	newWait = 10 * time.Second
)

// busyMachine configures a runtime on two CPUs. The start of a pod takes a quarter of a second of CPU time, and a command in a container 20
// ms. So the machine can run 100 commands a second if it does nothing else. The exec probes of the test's 500 pods would need 500 a second.
func busyMachine() simcri.Config {
	ms := time.Millisecond
	return simcri.Config{Processors: 2, Latency: latencies(), CPU: map[string]time.Duration{
		"RunPodSandbox": 150 * ms, "CreateContainer": 40 * ms, "StartContainer": 60 * ms, "StopPodSandbox": 30 * ms,
		"StopContainer": 20 * ms, "RemoveContainer": 10 * ms, "RemovePodSandbox": 10 * ms, "ExecSync": 20 * ms,
	}}
}

func asked(p *v1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1, TimeoutSeconds: 1}
}

// busyNode runs 500 pods with an exec probe every second, and then creates 20 more pods. It returns how long each of the 20 took to be
// Ready. It waits at most for the time patience. shares is agent.Config.WorkShares.
func busyNode(t *testing.T, shares map[string]float64, patience time.Duration, then func(w *World)) (took []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Runtime: busyMachine(), Agent: func(c *agent.Config) {
			c.Processors, c.StartSlots, c.WorkShares, c.Kubelet.MaxPods = 2, 6, shares, 2*busyPods
			c.Kubelet.ClusterDNS = []string{"10.96.0.10"} // without a cluster DNS the node would record an event for each pod
		}})
		defer func() {
			w.quiet = true
			w.close()
		}()
		w.StartAgent()
		for i := range busyPods {
			w.Create(Pod(fmt.Sprint("old-", i), asked, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }))
		}
		ready := func(prefix string, n int) func() bool {
			return func() bool {
				for i := range n {
					if !Ready(w.Kube.Pod(Namespace, fmt.Sprint(prefix, i))) {
						return false
					}
				}
				return true
			}
		}
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end) && !ready("old-", busyPods)(); {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		began := time.Now()
		for i := range newPods {
			w.Create(Pod(fmt.Sprint("new-", i), asked))
		}
		for time.Since(began) < patience && !ready("new-", newPods)() {
			time.Sleep(100 * time.Millisecond)
		}
		for i := range newPods {
			p, at := w.Kube.Pod(Namespace, fmt.Sprint("new-", i)), patience
			if Ready(p) {
				at = readySince(p).Sub(began)
			}
			took = append(took, at)
		}
		if then != nil {
			then(w)
		}
	})
	return took
}

func readySince(p *v1.Pod) metav1.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// The probes of 500 pods, one command a second each, need five times what the machine can do. Nevertheless new pods are soon Ready, the
// readiness of no pod flaps, every old pod is still probed, and the node reports once that probes are late.
func TestBusyNodeStartsPods(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it simulates minutes of 500 pods: not with -short")
	}
	took := busyNode(t, nil, 2*newWait, func(w *World) {
		for i := range busyPods {
			if name := fmt.Sprint("old-", i); !Ready(w.Kube.Pod(Namespace, name)) {
				t.Errorf("%s is not ready any more", name)
			}
		}
		behind := 0
		for _, e := range w.Kube.Events("", NodeName) {
			if e.Reason == "ProbesLate" {
				behind += int(max(1, e.Count))
				if !strings.Contains(e.Message, "began late") {
					t.Errorf("the event is %q", e.Message)
				}
			}
		}
		if behind != 1 {
			t.Errorf("%d events that probes are late, want one", behind)
		}
		calls := w.Runtime.Calls("ExecSync")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.Runtime.Calls("ExecSync") - calls; n < 4000 {
			t.Errorf("%d commands in a minute, want the capacity of the machine: about 6000", n)
		}
	})
	for i, d := range took {
		if d > newWait {
			t.Errorf("new-%d: %v until it was ready, want at most %v", i, d, newWait)
		}
	}
	t.Log(took)
}

// TestPlantedStarvation shows that TestBusyNodeStartsPods can fail. Because of a planted bug, the commands of new pods get no share in the
// scheduler of package work, and these pods are not Ready in time.
func TestPlantedStarvation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it simulates minutes of 500 pods: not with -short")
	}
	took := busyNode(t, map[string]float64{"first": 0}, 2*newWait, nil)
	for _, d := range took {
		if d > newWait {
			return
		}
	}
	t.Errorf("a class without a share does not starve: %v", took)
}

// allReady creates pods at the same time on a node with the given runtime. It returns the times from the creation until the last pod, and
// until half of the pods, were Ready. places is how many pods may start at the same time; 0: the agent adapts that number.
func allReady(t *testing.T, runtime simcri.Config, pods, places int) (last, half time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Runtime: runtime, Agent: func(c *agent.Config) {
			c.Processors, c.StartSlots, c.Kubelet.ClusterDNS = 2, places, []string{"10.96.0.10"}
		}})
		defer w.close()
		w.StartAgent()
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		began, names := time.Now(), make([]string, pods)
		for i := range names {
			names[i] = fmt.Sprint("p", i)
			w.Create(Pod(names[i]))
		}
		var each []time.Duration
		for end := began.Add(5 * time.Minute); len(each) < pods && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			ready := 0
			for _, name := range names {
				if Ready(w.Kube.Pod(Namespace, name)) {
					ready++
				}
			}
			for len(each) < ready {
				each = append(each, time.Since(began))
			}
		}
		if len(each) < pods {
			t.Fatalf("%d of %d pods are Ready after %v", len(each), pods, time.Since(began))
		}
		last, half = each[pods-1], each[pods/2]
	})
	return last, half
}

// The number of pods that start at the same time adapts to the runtime. If each sandbox waits two seconds for its network, a number that
// fits the CPUs would leave the machine idle. If starts use the CPU, a number that fits a slow network would let nearly all pods become
// Ready only at the end.
func TestStartsFollowWhatTheRuntimeBears(t *testing.T) {
	t.Parallel()
	const pods = 80
	network := simcri.Config{Latency: latencies()}
	network.Latency["RunPodSandbox"] = simcri.Latency{Mean: 2 * time.Second, Jitter: 500 * time.Millisecond}
	last, _ := allReady(t, network, pods, 0)
	if few, _ := allReady(t, network, pods, 6); last > few/2 {
		t.Errorf("%d pods whose network takes 2 s: %v, with six at a time %v", pods, last, few)
	}
	last, half := allReady(t, busyMachine(), pods, 0)
	fewLast, fewHalf := allReady(t, busyMachine(), pods, 6)
	_, manyHalf := allReady(t, busyMachine(), pods, 64)
	if last > fewLast*21/20 || half > fewHalf*5/4 {
		t.Errorf("%d pods that take the processors' time: all after %v, half after %v; with six at a time %v, %v", pods, last, half, fewLast, fewHalf)
	}
	if manyHalf < fewHalf*5/4 {
		t.Errorf("with 64 at a time half of them are Ready after %v, with six after %v: nothing shows what too many cost", manyHalf, fewHalf)
	}
}

// Eighty pods are deleted by force. Stopping all their sandboxes keeps both CPUs busy for eight seconds. A pod that is created in this time
// is Ready within four seconds, because only a few sandboxes are stopped at the same time.
func TestAPodStartsBesideDeletions(t *testing.T) {
	t.Parallel()
	const pods = 80
	synctest.Test(t, func(t *testing.T) {
		rt := busyMachine()
		rt.CPU["StopPodSandbox"] = 200 * time.Millisecond
		w := newWorld(t, Config{Runtime: rt, Agent: func(c *agent.Config) { c.Processors = 2 }})
		defer w.close()
		w.StartAgent()
		name := func(i int) string { return fmt.Sprint("old-", i) }
		for i := range pods {
			w.Create(Pod(name(i)))
		}
		w.Await("the last of the old pods is Ready", 2*time.Minute, func() bool { return Ready(w.Kube.Pod(Namespace, name(pods-1))) })
		time.Sleep(30 * time.Second)
		for i := range pods {
			w.Delete(name(i), 0)
		}
		for began := w.Runtime.Calls("StopPodSandbox"); w.Runtime.Calls("StopPodSandbox") == began; {
			time.Sleep(100 * time.Millisecond)
		}
		began := time.Now()
		w.Create(Pod("new"))
		w.Await("the new pod is Ready", time.Minute, func() bool { return Ready(w.Kube.Pod(Namespace, "new")) })
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("a pod beside %d that are taken down is Ready after %v, want at most 4 s", pods, took)
		}
	})
}
