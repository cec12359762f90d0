package agenttest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// configured is a World (a simulated node) whose agent has a configuration file and reads it again once a minute.
type configured struct {
	*World
	file string
}

// runConfigured runs f with an agent whose configuration file contains body.
func runConfigured(t *testing.T, cfg Config, body string, f func(c *configured)) {
	t.Helper()
	c := &configured{file: filepath.Join(t.TempDir(), "config.yaml")}
	c.set(t, body)
	loaded, _, err := config.Load([]string{"--config=" + c.file})
	if err != nil {
		t.Fatal(err)
	}
	noServer := func(k *agent.Config) { k.Kubelet.EnableServer = new(false) }
	cfg.Agent = func(k *agent.Config) {
		k.Kubelet = *loaded.Kubelet.DeepCopy()
		noServer(k)
	}
	Run(t, cfg, func(w *World) {
		c.World = w
		w.Await("the node is ready", time.Minute, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		watch := &config.Watch{
			Files: loaded.Files, Poll: true, Wrong: w.agent.RefuseConfiguration, Log: slog.New(slog.DiscardHandler),
			Apply: func(next config.Config, _ []config.Notice) {
				k := w.started
				k.Kubelet = next.Kubelet
				noServer(&k)
				if _, err := w.agent.Reconfigure(k); err != nil {
					t.Errorf("a valid file was refused: %v", err)
				}
			},
		}
		go func() { ended <- watch.Run(ctx) }()
		f(c)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (c *configured) set(t testing.TB, body string) {
	t.Helper()
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + body
	if err := os.WriteFile(c.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventText returns the message of the newest event about the Node with this reason.
func (c *configured) eventText(reason string) string {
	text, at := "", time.Time{}
	for _, e := range c.Kube.Events("", NodeName) {
		if e.Reason == reason && !e.LastTimestamp.Time.Before(at) {
			text, at = e.Message, e.LastTimestamp.Time
		}
	}
	return text
}

func (c *configured) allocatable(name v1.ResourceName) string {
	n, err := c.Admin.CoreV1().Nodes().Get(context.Background(), NodeName, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	q := n.Status.Allocatable[name]
	return q.String()
}

// If the file raises an eviction threshold, a pod that is now above it is evicted, and the node's allocatable memory changes, without a
// restart of the agent.
func TestReconfigureEviction(t *testing.T) {
	t.Parallel()
	body := func(memory string, pods string) string {
		return "evictionHard:\n  memory.available: " + memory + "\nevictionPressureTransitionPeriod: 1m\nmaxPods: " + pods + "\n"
	}
	runConfigured(t, Config{Seed: 1, Memory: "4Gi", Short: shortOfMemory}, body("100Mi", "110"), func(c *configured) {
		c.Create(Pod("modest", using(100, 0)))
		c.Create(Pod("large", using(3100, 0)))
		c.Await("both run", time.Minute, func() bool { return c.runs("modest", "large") == 2 })
		time.Sleep(10 * time.Minute)
		if c.runs("modest", "large") != 2 || c.allocatable(v1.ResourceMemory) != "3996Mi" {
			t.Fatalf("before the change: %d run, allocatable %s", c.runs("modest", "large"), c.allocatable(v1.ResourceMemory))
		}
		c.set(t, body("1Gi", "20"))
		c.Await("the large pod is evicted", 3*time.Minute, func() bool { return c.evicted("large") })
		c.awaitCondition(v1.NodeMemoryPressure, v1.ConditionTrue, time.Minute)
		c.Await("the node's resources follow", time.Minute, func() bool {
			return c.allocatable(v1.ResourceMemory) == "3Gi" && c.allocatable(v1.ResourcePods) == "20"
		})
		if got := c.eventText("ConfigurationChanged"); got != "These fields have new values now: evictionHard, maxPods" {
			t.Errorf("the event says %q", got)
		}
		c.awaitCondition(v1.NodeMemoryPressure, v1.ConditionFalse, 3*time.Minute)
		if c.runs("modest") != 1 {
			t.Error("the modest pod went, too")
		}
		c.set(t, body("100Mi", "110"))
		c.Await("the node's resources follow back", 3*time.Minute, func() bool {
			return c.allocatable(v1.ResourceMemory) == "3996Mi" && c.allocatable(v1.ResourcePods) == "110"
		})
	})
}

// If the file changes a field that cannot change while the agent runs, the agent reports this once. A file with an error changes nothing
// and is also reported once.
func TestReconfigureSaysWhatItCannot(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	runConfigured(t, Config{Seed: 1, Deps: func(d *agent.Deps) { d.Metrics = reg }}, "maxPods: 110\n", func(c *configured) {
		wantError := func(when string, want bool) {
			if got := moved(t, reg)["kubelet_node_config_error"]; got != want {
				t.Errorf("%s, kubelet_node_config_error counts an error: %v", when, got)
			}
		}
		c.set(t, "maxPods: 20\nport: 10999\nkubeAPIQPS: 7\n")
		c.Await("it is said", 3*time.Minute, func() bool { return c.eventText("ConfigurationNeedsRestart") != "" })
		if got := c.eventText("ConfigurationNeedsRestart"); !strings.HasPrefix(got, "These fields keep their values until the agent is restarted: kubeAPIQPS (") || !strings.Contains(got, "; port (") {
			t.Errorf("the event says %q", got)
		}
		c.Await("the rest has changed", 3*time.Minute, func() bool { return c.allocatable(v1.ResourcePods) == "20" })

		wantError("with a good file", false)
		c.set(t, "maxPods: 30\nimageGCHighThresholdPercent: 200\n")
		c.Await("the bad file is reported", 3*time.Minute, func() bool { return c.eventText("InvalidConfiguration") != "" })
		if got := c.eventText("InvalidConfiguration"); !strings.Contains(got, "config.yaml:4: imageGCHighThresholdPercent (--image-gc-high-threshold): 200: ") {
			t.Errorf("the event says %q", got)
		}
		wantError("with a bad file", true)
		if err := os.Remove(c.file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := c.allocatable(v1.ResourcePods); got != "20" {
			t.Errorf("a file that is bad, and then gone, has changed maxPods to %s", got)
		}
		if n := c.events("InvalidConfiguration"); n != 2 {
			t.Errorf("%d events of two bad states of the file", n)
		}
		if n := c.events("ConfigurationNeedsRestart"); n != 1 {
			t.Errorf("%d events of one change that waits", n)
		}
		c.set(t, "maxPods: 40\n")
		c.Await("the next good file counts", 3*time.Minute, func() bool { return c.allocatable(v1.ResourcePods) == "40" })
		wantError("with a good file again", false)
	})
}

// If the file changes staticPodPath, the pods of the old path stay until the new path exists.
func TestReconfigureStaticPodPath(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	before, after := filepath.Join(top, "before"), filepath.Join(top, "after")
	put := func(dir, name string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(manifest(name, "registry.example/app:1")), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(before, "old")
	runConfigured(t, Config{Seed: 1}, "staticPodPath: "+before+"\n", func(c *configured) {
		old, fresh := "old-"+NodeName, "fresh-"+NodeName
		c.mirrorOf(old, nil)
		c.set(t, "staticPodPath: "+after+"\n")
		time.Sleep(10 * time.Minute)
		if !Ready(c.Kube.Pod(Namespace, old)) {
			t.Error("the pod of the old path has gone before the new path existed")
		}
		put(after, "fresh")
		c.mirrorOf(fresh, nil)
		c.WaitGone(old)
	})
}

// A new maximum of the crash-loop back-off counts from the next crash on.
func TestReconfigureBackOff(t *testing.T) {
	t.Parallel()
	runConfigured(t, Config{Seed: 1}, "maxPods: 110\n", func(c *configured) {
		c.Create(Pod("crash", Annotate(simcri.AnnotationExitCode, "1")))
		restarts := func() int32 {
			if p := c.Kube.Pod(Namespace, "crash"); p != nil && len(p.Status.ContainerStatuses) > 0 {
				return p.Status.ContainerStatuses[0].RestartCount
			}
			return 0
		}
		during := func(d time.Duration) int32 {
			before := restarts()
			time.Sleep(d)
			return restarts() - before
		}
		time.Sleep(time.Hour) // by then the back-off has its maximum of five minutes
		if n := during(time.Hour); n < 10 || n > 13 {
			t.Errorf("%d restarts in an hour with a back-off of 5 minutes", n)
		}
		c.set(t, "crashLoopBackOff:\n  maxContainerRestartPeriod: 20s\n")
		time.Sleep(10 * time.Minute) // the present back-off keeps its length
		if n := during(time.Hour); n < 150 || n > 190 {
			t.Errorf("%d restarts in an hour with a back-off of 20 seconds", n)
		}
	})
}

// Many good and bad files, one after another, while pods start and end, break no invariant.
func TestReconfigureManyTimes(t *testing.T) {
	t.Parallel()
	runConfigured(t, Config{Seed: 7, Memory: "4Gi"}, "maxPods: 110\n", func(c *configured) {
		bodies := []string{
			"maxPods: 50\nserializeImagePulls: false\nmaxParallelImagePulls: 3\nregistryPullQPS: 1\n",
			"maxPods: [\n", "", "evictionHard: {}\npodPidsLimit: 9\nclusterDNS: [10.9.9.9]\n", "registryPullQPS: 0\neventRecordQPS: 0\n",
			"eventRecordQPS: 1\neventBurst: 1\nimageGCHighThresholdPercent: 60\nimageGCLowThresholdPercent: 50\n", "port: 1\nfeatureGates: {AllAlpha: true}\n",
		}
		for i := range 40 {
			c.set(t, bodies[i%len(bodies)])
			name := "pod-" + string(rune('a'+i%5))
			if c.Kube.Pod(Namespace, name) == nil {
				c.Create(Pod(name, using(10, 0)))
			} else if i%7 == 3 {
				c.Delete(name, 1)
			}
			time.Sleep(90 * time.Second)
		}
		c.set(t, "maxPods: 33\n")
		c.Await("the last file counts", 3*time.Minute, func() bool { return c.allocatable(v1.ResourcePods) == "33" })
		c.WaitConverged(5 * time.Minute)
		if c.eventText("ConfigurationChanged") == "" {
			t.Error("no event")
		}
	})
}
