package agenttest

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// latencies returns durations of runtime calls that are similar to those of containerd on a busy machine.
func latencies() map[string]simcri.Latency {
	ms := func(mean, jitter int) simcri.Latency {
		return simcri.Latency{Mean: time.Duration(mean) * time.Millisecond, Jitter: time.Duration(jitter) * time.Millisecond}
	}
	return map[string]simcri.Latency{
		"RunPodSandbox": ms(170, 60), "CreateContainer": ms(45, 20), "StartContainer": ms(60, 20), "StopPodSandbox": ms(60, 20),
		"StopContainer": ms(10, 5), "RemoveContainer": ms(15, 5), "RemovePodSandbox": ms(20, 10),
		"PodSandboxStatus": ms(1, 0), "ContainerStatus": ms(1, 0), "ListContainers": ms(2, 1), "ListPodSandbox": ms(2, 1),
	}
}

func TestNodeReady(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		w.Await("the lease is there", 5*time.Second, func() bool { return w.Kube.Count("create leases")+w.Kube.Count("update leases") > 0 })
		before, updates := w.Kube.Total(), w.Kube.Count("update leases")
		time.Sleep(10 * time.Minute)
		if n := w.Kube.Count("update leases") - updates; n < 50 || n > 70 {
			t.Errorf("%d renewals of the lease in 10 minutes, want one in 10 s", n)
		}
		if n := w.Kube.Total() - before; n > 130 {
			t.Errorf("%d requests of an idle node in 10 minutes, want one renewal of the lease and one look at the Node in 10 s", n)
		}
	})
}

// The Node lists the features that the agent has (status.declaredFeatures), because the scheduler places pods that need a feature only on
// Nodes that list it. A feature whose gate is off is not listed.
func TestDeclaredFeatures(t *testing.T) {
	t.Parallel()
	all := []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	for _, c := range []struct {
		off  string
		want []string
	}{{"", all}, {"NodeDeclaredFeatures", nil}, {all[0], all[1:]}} {
		Run(t, Config{Agent: func(cfg *agent.Config) {
			if c.off != "" {
				cfg.Kubelet.FeatureGates = map[string]bool{c.off: false}
			}
		}}, func(w *World) {
			w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
			if got := w.Kube.Node(NodeName).Status.DeclaredFeatures; !slices.Equal(got, c.want) {
				t.Errorf("gate %q off: declared features %q, want %q", c.off, got, c.want)
			}
		})
	}
}

func TestPodRunsAndIsDeleted(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		p := w.Kube.Pod(Namespace, "a")
		if p.Status.PodIP == "" || p.Status.StartTime == nil || !p.Status.ContainerStatuses[0].Ready {
			t.Errorf("status %+v", p.Status)
		}
		w.Delete("a", 10)
		w.WaitGone("a")
		if n := w.Kube.Count("get pods"); n != 0 {
			t.Errorf("%d GETs of pods; the watch already has all changes", n)
		}
		w.Await("the machine keeps nothing", 5*time.Second, func() bool { return w.MachineHolds() == 0 })
	})
}

// A source may report its pods while a worker, in its first turn, reads the pod's checkpoint. When the turn began, no source had the pod;
// when the turn continues, all sources have answered. The pod must not count as unwanted.
func TestSourceThatAnswersInATurn(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("web"))
		w.WaitReady("web")
		id := w.running("web")
		w.SetDiskSlow(2 * time.Second)
		for i := range 20 {
			w.restartBeforeTheAPI(time.Duration(i) * 100 * time.Millisecond)
			time.Sleep(time.Minute)
		}
		if now := w.running("web"); now != id || w.Witness.Starts() != 1 {
			t.Errorf("container %s, %d starts, want %s and one", now, w.Witness.Starts(), id)
		}
	})
}
