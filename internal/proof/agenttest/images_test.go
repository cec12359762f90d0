package agenttest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// large configures a runtime in which each image has a size of 2 GiB.
func large() simcri.Config {
	cfg := late()
	cfg.Pull = func(string) simcri.Pull { return simcri.Pull{Took: time.Second, Size: 2 << 30} }
	return cfg
}

func withImage(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Image = name }
}

// present returns how many of the images registry.example/NAME:1 the runtime has.
func (w *World) present(names ...string) (n int) {
	for _, name := range names {
		if w.Runtime.Has("registry.example/" + name + ":1") {
			n++
		}
	}
	return n
}

// oldImages creates and deletes pods with these images. It returns when the pods are gone and the images are old enough to be removed.
func (w *World) oldImages(names ...string) {
	w.Helper()
	for _, name := range names {
		w.Create(Pod("of-"+name, withImage("registry.example/"+name+":1")))
		w.Await(name+" runs", time.Minute, func() bool { return w.runs("of-"+name) == 1 })
		w.Delete("of-"+name, 1)
		w.Await(name+" is gone", time.Minute, func() bool { return w.Kube.Pod(Namespace, "of-"+name) == nil })
	}
	time.Sleep(3 * time.Minute) // longer than imageMinimumGCAge
}

// If unused images fill the disk, the agent removes images and evicts no pod.
func TestImagesGoBeforePods(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 5, Storage: "10Gi", Runtime: large(), Agent: func(c *agent.Config) {
		thresholds(map[string]string{"nodefs.available": "1Gi"})(c)
		c.Kubelet.ImageGCHighThresholdPercent = new(int32(100))
	}}
	Run(t, cfg, func(w *World) {
		w.oldImages("a", "b", "c")
		w.Create(Pod("stays", withImage("registry.example/d:1")))
		w.Await("stays runs", time.Minute, func() bool { return w.runs("stays") == 1 })
		time.Sleep(10 * time.Minute)
		if n := w.present("a", "b", "c", "d"); n != 4 {
			t.Fatalf("%d of 4 images are left without need", n)
		}
		w.Create(Pod("last", withImage("registry.example/e:1")))
		w.Await("the images are gone", time.Minute, func() bool { return w.present("a", "b", "c") == 0 })
		w.awaitCondition(v1.NodeDiskPressure, v1.ConditionFalse, 5*time.Minute)
		if w.present("d", "e") != 2 || w.runs("stays") != 1 || w.events("Evicted") != 0 {
			t.Errorf("images in use: %d of 2; runs: %d; evicted: %d", w.present("d", "e"), w.runs("stays"), w.events("Evicted"))
		}
	})
}

// The agent starts while the API server is unreachable, and then the disk runs full. The agent does not know which pods it has. It removes
// the images that no container uses, and neither ends a container nor removes the image of one. When the API server is back, the pods are as before.
func TestUnusedImagesGoThoughThePodsAreNotKnown(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 8, Storage: "10Gi", Runtime: large(), Agent: func(c *agent.Config) {
		thresholds(map[string]string{"nodefs.available": "1Gi"})(c)
		c.Kubelet.ImageGCHighThresholdPercent = new(int32(100))
	}}
	Run(t, cfg, func(w *World) {
		w.Create(Pod("writer", withImage("registry.example/d:1"), writing(0, 1)))
		w.oldImages("a", "b")
		w.Await("the writer runs", time.Minute, func() bool { return w.runs("writer") == 1 })
		w.restartBeforeTheAPI(time.Hour)
		if w.present("a", "b") != 0 || w.present("d") != 1 {
			t.Errorf("unused images: %d; the image in use: %d", w.present("a", "b"), w.present("d"))
		}
		w.WaitReady("writer")
		if w.events("Evicted") != 0 {
			t.Errorf("%d pods were evicted", w.events("Evicted"))
		}
	})
}

// When the disk is filled to imageGCHighThresholdPercent, the agent removes images until imageGCLowThresholdPercent is reached: first those
// that have been unused for longest. The image of a pod whose container keeps restarting stays.
func TestImagesAreCollectedBySpace(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 6, Storage: "10Gi", Runtime: large(), Agent: func(c *agent.Config) {
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi"}
		c.Kubelet.ImageGCHighThresholdPercent, c.Kubelet.ImageGCLowThresholdPercent = new(int32(75)), new(int32(65))
		c.KeepImages = []string{"registry.example/kept"}
	}}
	Run(t, cfg, func(w *World) {
		w.Create(Pod("crashes", withImage("registry.example/crashes:1"), Annotate(simcri.AnnotationExitCode, "1")))
		w.oldImages("kept", "b", "c") // with the image of the crashing pod they take 8 of 10 GiB (80 %)
		time.Sleep(5 * time.Minute)
		if w.present("kept", "crashes", "c") != 3 || w.present("b") != 0 {
			t.Errorf("kept %d, crashes %d, b %d, c %d", w.present("kept"), w.present("crashes"), w.present("b"), w.present("c"))
		}
	})
}

// An image that has been unused for imageMaximumGCAge is removed. The image of a running pod stays.
func TestImagesAreCollectedByAge(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 7, Storage: "100Gi", Runtime: large(), Agent: func(c *agent.Config) {
		c.Kubelet.ImageMaximumGCAge = metav1.Duration{Duration: time.Hour}
	}}
	Run(t, cfg, func(w *World) {
		w.Create(Pod("stays", withImage("registry.example/used:1")))
		w.oldImages("old")
		time.Sleep(50 * time.Minute)
		if n := w.present("old", "used"); n != 2 {
			t.Fatalf("%d of 2 images are left after 50 minutes", n)
		}
		time.Sleep(20 * time.Minute)
		if w.present("old") != 0 || w.present("used") != 1 {
			t.Errorf("old %d, used %d", w.present("old"), w.present("used"))
		}
	})
}

// A pod starts even if its image is removed at the moment when the pod arrives on the node.
func TestPodsStartWhileImagesAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 8, Storage: "10Gi", Runtime: large(), Agent: thresholds(map[string]string{"nodefs.available": "3Gi"})}
	cfg.Runtime.Latency = map[string]simcri.Latency{"RemoveImage": {Mean: 300 * time.Millisecond}}
	Run(t, cfg, func(w *World) {
		w.oldImages("a", "b", "c")
		for i := range 10 { // the image of pod d fills the disk; the pod "again" arrives while the agent removes unused images
			if i == 3 {
				w.Create(Pod("d", withImage("registry.example/d:1")))
			}
			if i == 7 {
				w.Create(Pod("again", withImage("registry.example/a:1")))
			}
			time.Sleep(170 * time.Millisecond)
		}
		w.Await("both run", 5*time.Minute, func() bool { return w.runs("again") == 1 && w.runs("d") == 1 })
		if n := w.events("Evicted"); n != 0 {
			t.Errorf("%d pods were evicted", n)
		}
	})
}

// The metrics count image pulls while they run and while they wait for another pull.
func TestImagePullsAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	slow := simcri.Config{Pull: func(string) simcri.Pull { return simcri.Pull{Took: 2 * time.Minute, Size: 1 << 20} }}
	Run(t, Config{Runtime: slow, Deps: func(d *agent.Deps) { d.Metrics = reg }}, func(w *World) {
		pulls := func() map[string]float64 {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					switch f.GetName() {
					case "wherry_image_pulls":
						out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
					case "wherry_image_pull_oldest_seconds":
						out["minutes"] = float64(int(m.GetGauge().GetValue() / 60))
					}
				}
			}
			return out
		}
		w.Create(Pod("a", withImage("registry.example/a:1")))
		w.Create(Pod("b", withImage("registry.example/b:1")))
		time.Sleep(90 * time.Second)
		if d := cmp.Diff(map[string]float64{"running": 1, "waiting": 1, "stalled": 0, "minutes": 1}, pulls()); d != "" {
			t.Errorf("after 90 s (-want +got):\n%s", d)
		}
		time.Sleep(90 * time.Second)
		w.WaitReady("a", "b")
		if d := cmp.Diff(map[string]float64{"running": 0, "waiting": 0, "stalled": 0, "minutes": 0}, pulls()); d != "" {
			t.Errorf("at the end (-want +got):\n%s", d)
		}
	})
}
