package agenttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// statics configures a World (a simulated node) whose agent reads a directory of manifests every second.
func statics(t *testing.T, cfg Config) (Config, *manifests) {
	m := &manifests{t, t.TempDir()}
	cfg.Agent = func(c *agent.Config) {
		c.Kubelet.StaticPodPath = m.dir
		c.Kubelet.FileCheckFrequency.Duration = time.Second
	}
	return cfg, m
}

type manifests struct {
	testing.TB
	dir string
}

func (m *manifests) write(file, text string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, file), []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
}

func (m *manifests) remove(file string) {
	m.Helper()
	if err := os.Remove(filepath.Join(m.dir, file)); err != nil {
		m.Fatal(err)
	}
}

// manifest returns the manifest of a pod that takes three seconds to end. more are additional lines of the container and the spec.
func manifest(name, image string, more ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations: {wherry.dev/sim-stop-after: 3s}
spec:
  containers:
  - name: main
    image: %s
%s`, name, image, strings.Join(more, "\n"))
}

const webOnNode = "web-" + NodeName

// mirrorOf waits until a mirror with this name is Ready and has another UID than the pod but (nil: any UID), and returns the mirror.
func (w *World) mirrorOf(name string, but *v1.Pod) *v1.Pod {
	w.Helper()
	var p *v1.Pod
	w.Await("mirror "+name+" ready", time.Minute, func() bool {
		p = w.Kube.Pod(Namespace, name)
		return Ready(p) && p.DeletionTimestamp == nil && (but == nil || p.UID != but.UID)
	})
	return p
}

// restartBeforeTheAPI replaces the agent while the API server is unreachable. The API server comes back after the new agent has run for the
// time by.
func (w *World) restartBeforeTheAPI(by time.Duration) {
	w.StopAgent()
	w.SetOutage(true)
	w.StartAgent()
	time.Sleep(by)
	w.SetOutage(false)
}

func (w *World) running(name string) string { return w.Witness.Running(Namespace, name, "main") }

// A client cannot end a static pod through the API: if it deletes the mirror, the mirror comes back with another UID and creation time, and
// the containers keep running.
func TestDeletedMirrorIsRemade(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1"))
	Run(t, cfg, func(w *World) {
		mirror := w.mirrorOf(webOnNode, nil)
		id := w.running(webOnNode)
		node := w.Kube.Node(NodeName)
		isController := true
		want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: NodeName, UID: node.UID, Controller: &isController}}
		if d := cmp.Diff(want, mirror.OwnerReferences); d != "" {
			t.Errorf("owners (-want +got):\n%s", d)
		}
		a := mirror.Annotations
		if a[pod.AnnotationMirror] == "" || a[pod.AnnotationMirror] != a[pod.AnnotationHash] || a[pod.AnnotationSource] != "file" || a[pod.AnnotationSeen] == "" {
			t.Errorf("annotations %v", a)
		}
		if mirror.Spec.PriorityClassName != "system-node-critical" || mirror.Spec.NodeName != NodeName || string(mirror.UID) == a[pod.AnnotationHash] {
			t.Errorf("mirror %s of %+v", mirror.UID, mirror.Spec)
		}
		for _, grace := range []int64{-1, 0} {
			before := mirror
			w.Delete(webOnNode, grace)
			mirror = w.mirrorOf(webOnNode, before)
			if w.running(webOnNode) != id || w.Witness.Starts() != 1 {
				t.Fatalf("container %s became %s, %d starts", id, w.running(webOnNode), w.Witness.Starts())
			}
			if s := mirror.Status.ContainerStatuses[0]; !strings.HasSuffix(s.ContainerID, id) || s.RestartCount != 0 {
				t.Errorf("status %+v", s)
			}
			if !mirror.Status.StartTime.Equal(before.Status.StartTime) {
				t.Errorf("started at %v, was %v", mirror.Status.StartTime, before.Status.StartTime)
			}
		}
	})
}

// If the API server refuses the removal of a mirror once, the agent tries again.
func TestMirrorWhoseRemovalIsRefused(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1"))
	Run(t, cfg, func(w *World) {
		mirror := w.mirrorOf(webOnNode, nil)
		w.Kube.Inject(simkube.Fault{Verb: "delete", Resource: "pods", Agent: agentName, Times: 1,
			Err: apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, webOnNode, errors.New("the object has been modified"))})
		w.Delete(webOnNode, -1)
		w.mirrorOf(webOnNode, mirror)
	})
}

// If a manifest changes, a new pod starts when nothing of the old one is left, and the mirror of the new pod replaces that of the old one.
func TestEditedManifest(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1"))
	Run(t, cfg, func(w *World) {
		mirror, id := w.mirrorOf(webOnNode, nil), w.running(webOnNode)
		files.write("web.yaml", "not: [a manifest")
		time.Sleep(time.Minute)
		if w.running(webOnNode) != id || w.Kube.Pod(Namespace, webOnNode).UID != mirror.UID {
			t.Fatal("a broken file changed the pod")
		}
		var found bool
		for _, e := range w.Kube.Events("", NodeName) {
			found = found || e.Reason == "InvalidStaticPod" && strings.Contains(e.Message, "web.yaml:1")
		}
		if !found {
			t.Error("there is no event about the broken file")
		}
		files.write("web.yaml", manifest("web", "registry.example/web:2"))
		w.Await("old and new", time.Minute, func() bool { return w.running(webOnNode) != id && w.running(webOnNode) != "" })
		next := w.mirrorOf(webOnNode, mirror)
		if next.Spec.Containers[0].Image != "registry.example/web:2" || w.Witness.Starts() != 2 {
			t.Errorf("image %s, %d starts", next.Spec.Containers[0].Image, w.Witness.Starts())
		}
		files.remove("web.yaml")
		w.WaitGone(webOnNode)
		w.Await("nothing is left", time.Minute, func() bool { return w.MachineHolds() == 0 })
	})
}

// If a manifest is removed and comes back unchanged, its pod starts again and counts this as a restart, as with upstream's kubelet. The pod
// gets a new mirror, because a pod in the API may not leave a terminal phase.
func TestManifestComesBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy string
		away   time.Duration
	}{
		{"Always", 2 * time.Second}, {"Never", 2 * time.Second}, // the pod's previous life is still ending
		{"Always", 20 * time.Second}, {"Never", 20 * time.Second}, // nothing of the previous life is left
	} {
		t.Run(fmt.Sprintf("%s, after %v", c.policy, c.away), func(t *testing.T) {
			t.Parallel()
			cfg, files := statics(t, Config{})
			text := strings.Replace(manifest("web", "registry.example/web:1"), "spec:", "spec:\n  restartPolicy: "+c.policy, 1)
			files.write("web.yaml", text)
			Run(t, cfg, func(w *World) {
				w.mirrorOf(webOnNode, nil)
				id := w.running(webOnNode)
				files.remove("web.yaml")
				time.Sleep(c.away)
				files.write("web.yaml", text)
				time.Sleep(time.Minute)
				mirror := w.mirrorOf(webOnNode, nil)
				s := mirror.Status.ContainerStatuses
				if len(s) != 1 || s[0].State.Running == nil || strings.HasSuffix(s[0].ContainerID, id) || s[0].RestartCount != 1 || w.Witness.Starts() != 2 {
					t.Errorf("after the manifest came back: %d starts, statuses %+v", w.Witness.Starts(), s)
				}
			})
		})
	}
}

// Static pods start while the API server is unreachable. Their mirrors appear when it comes back.
func TestStaticPodWithoutTheAPI(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	Run(t, cfg, func(w *World) {
		w.StopAgent()
		w.SetOutage(true)
		if err := w.Admin.CoreV1().Nodes().Delete(context.Background(), NodeName, metav1.DeleteOptions{}); err == nil {
			t.Fatal("no outage")
		}
		files.write("web.yaml", manifest("web", "registry.example/web:1", "  nodeSelector: {no: such-label}"))
		w.StartAgent()
		w.Await("running", 10*time.Second, func() bool { return w.running(webOnNode) != "" })
		time.Sleep(time.Hour)
		w.SetOutage(false)
		w.Await("mirror", 3*time.Minute, func() bool { return Ready(w.Kube.Pod(Namespace, webOnNode)) })
		if w.Witness.Starts() != 1 {
			t.Errorf("%d starts", w.Witness.Starts())
		}
	})
}

func TestStaticPodStandalone(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{Standalone: true})
	files.write("web.yaml", manifest("web", "registry.example/web:1", `    env: [{name: A, valueFrom: {configMapKeyRef: {name: conf, key: a}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: b}
`))
	Run(t, cfg, func(w *World) {
		w.Await("running", 10*time.Second, func() bool { return w.running(webOnNode) != "" })
		id := w.running(webOnNode)
		w.RestartAgent(time.Minute)
		time.Sleep(time.Minute)
		if w.running(webOnNode) != id {
			t.Error("restarted")
		}
		files.remove("web.yaml")
		w.Await("gone", time.Minute, func() bool { return !w.Witness.Present(Namespace, webOnNode) })
	})
}

// "podCIDR is the CIDR to use for pod IP addresses, only used in standalone mode": the agent sends it to the runtime until the runtime
// accepts it.
func TestPodCIDRStandalone(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{Standalone: true})
	static := cfg.Agent
	cfg.Agent = func(c *agent.Config) {
		static(c)
		c.Kubelet.PodCIDR = "10.77.0.0/16"
	}
	Run(t, cfg, func(w *World) {
		w.Runtime.Inject(simcri.Fault{Method: "UpdateRuntimeConfig", Times: 1, Err: errors.New("not yet")})
		w.RestartAgent(0)
		w.Await("the runtime has the addresses", time.Minute, func() bool { return w.Runtime.Calls("UpdateRuntimeConfig") >= 2 })
		files.write("web.yaml", manifest("web", "registry.example/web:1", ""))
		w.Await("running", 10*time.Second, func() bool { return w.running(webOnNode) != "" })
		boxes, err := w.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(boxes.Items) != 1 {
			t.Fatal(boxes, err)
		}
		box, err := w.Runtime.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: boxes.Items[0].Id})
		if err != nil || !strings.HasPrefix(box.Status.Network.Ip, "10.77.") {
			t.Errorf("address %v (%v), want one of 10.77.0.0/16", box.GetStatus().GetNetwork(), err)
		}
	})
}

// A new agent continues the static pods of the agent before: no container restarts, no mirror is created again, and readiness does not
// flap. Changes of the manifests from the time without an agent take effect.
func TestStaticPodsSurviveTheAgent(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	flaps := countFlaps(&cfg)
	probed := "    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 30}"
	for _, name := range []string{"kept", "edited", "removed"} {
		files.write(name+".yaml", manifest(name, "registry.example/web:1", probed))
	}
	Run(t, cfg, func(w *World) {
		kept, edited, removed := "kept-"+NodeName, "edited-"+NodeName, "removed-"+NodeName
		mirror, other := w.mirrorOf(kept, nil), w.mirrorOf(edited, nil)
		w.mirrorOf(removed, nil)
		id, old := w.running(kept), w.running(edited)
		w.StopAgent()
		files.write("edited.yaml", manifest("edited", "registry.example/web:2", probed))
		files.remove("removed.yaml")
		time.Sleep(time.Minute)
		if n := flaps.Load(); n > 0 {
			t.Fatalf("%d flaps before", n)
		}
		w.StartAgent()
		w.WaitGone(removed)
		if p := w.mirrorOf(edited, other); w.running(edited) == old || p.Spec.Containers[0].Image != "registry.example/web:2" {
			t.Errorf("edited: container %s, image %s", w.running(edited), p.Spec.Containers[0].Image)
		}
		if w.running(kept) != id || w.Kube.Pod(Namespace, kept).UID != mirror.UID || w.Witness.Starts() != 4 {
			t.Errorf("kept: container %s, mirror %s, %d starts", w.running(kept), w.Kube.Pod(Namespace, kept).UID, w.Witness.Starts())
		}
		if n := flaps.Load(); n > 0 {
			t.Errorf("a ready pod was reported as not ready %d times", n)
		}
	})
}

// countFlaps counts how often a Ready pod becomes unready in the API.
func countFlaps(cfg *Config) *atomic.Int32 {
	var flaps atomic.Int32
	cfg.Kube.OnChange = func(_ watch.EventType, old, obj runtime.Object) {
		if p, ok := obj.(*v1.Pod); ok && old != nil && p.DeletionTimestamp == nil && p.UID == old.(*v1.Pod).UID && Ready(old.(*v1.Pod)) && !Ready(p) {
			flaps.Add(1)
		}
	}
	return &flaps
}

// A new agent may read its manifests before the API server answers, and so may learn the status of the mirror late. A container whose
// probes have no result yet still gets its readiness from that status.
func TestStaticPodStaysReadyWhereTheAPIAnswersLate(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	flaps := countFlaps(&cfg)
	files.write("web.yaml", manifest("web", "registry.example/web:1", "    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 60}\n    startupProbe: {tcpSocket: {port: 80}, periodSeconds: 60}"))
	Run(t, cfg, func(w *World) {
		w.mirrorOf(webOnNode, nil)
		time.Sleep(3 * time.Minute)
		for i := range 20 {
			w.restartBeforeTheAPI(time.Duration(i) * 500 * time.Millisecond)
			time.Sleep(3 * time.Minute)
		}
		if n := flaps.Load(); n > 0 {
			t.Errorf("a ready pod was reported as not ready %d times", n)
		}
		if w.Witness.Starts() != 1 {
			t.Errorf("%d starts", w.Witness.Starts())
		}
	})
}

// A manifest that is only half written when the agent starts does not count as removed: its pod and its mirror stay. Changes of other
// manifests take effect.
func TestHalfWrittenManifestAtTheStart(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	for _, name := range []string{"torn", "edited", "removed"} {
		files.write(name+".yaml", manifest(name, "registry.example/web:1"))
	}
	// One manifest has a UID of its own, which looks like a UID from the API.
	own := strings.Replace(manifest("own", "registry.example/web:1"), "  name: own\n", "  name: own\n  uid: 6ba7b810-9dad-11d1-80b4-00c04fd430c8\n", 1)
	files.write("own.yaml", own)
	Run(t, cfg, func(w *World) {
		torn, edited, removed := "torn-"+NodeName, "edited-"+NodeName, "removed-"+NodeName
		mirror, other := w.mirrorOf(torn, nil), w.mirrorOf(edited, nil)
		w.mirrorOf(removed, nil)
		w.mirrorOf("own-"+NodeName, nil)
		uid := w.Create(Pod("api"))
		w.WaitReady("api")
		id, ownID := w.running(torn), w.running("own-"+NodeName)
		w.StopAgent()
		files.write("own.yaml", own[:len(own)/2])
		text := manifest("torn", "registry.example/web:1")
		files.write("torn.yaml", text[:len(text)/2])
		files.write("edited.yaml", manifest("edited", "registry.example/web:2"))
		files.remove("removed.yaml")
		w.Delete("api", 0)
		w.StartAgent()
		w.WaitGone("api")
		w.mirrorOf(edited, other)
		time.Sleep(10 * time.Minute)
		if w.running(torn) != id || w.Kube.Pod(Namespace, torn).UID != mirror.UID {
			t.Errorf("container %s became %s, mirror %s", id, w.running(torn), mirror.UID)
		}
		if now := w.running("own-" + NodeName); now != ownID {
			t.Errorf("the container of the pod with a UID of its own, %s, became %s", ownID, now)
		}
		files.write("own.yaml", own)
		files.write("new.yaml", "wrong from the start")
		files.write("torn.yaml", text)
		w.WaitGone(removed) // only now, because before this the half-written file could have contained the pod
		time.Sleep(time.Minute)
		if w.running(torn) != id || w.Kube.Pod(Namespace, torn).UID != mirror.UID || len(w.Witness.StartsOf(uid, "main")) != 1 {
			t.Errorf("container %s became %s, mirror %s", id, w.running(torn), mirror.UID)
		}
		files.remove("torn.yaml")
		w.WaitGone(torn)
	})
}

// A mirror whose static pod does not exist is removed once every source of pods has answered.
func TestOrphanedMirrorIsRemoved(t *testing.T) {
	t.Parallel()
	cfg, _ := statics(t, Config{})
	Run(t, cfg, func(w *World) {
		w.StopAgent()
		w.Create(Pod("old-"+NodeName, Annotate(pod.AnnotationMirror, "x"), Annotate(pod.AnnotationSource, "file")))
		w.StartAgent()
		w.WaitGone("old-" + NodeName)
		if w.Witness.Starts() != 0 {
			t.Error("the agent ran a mirror")
		}
	})
}

// A mirror may not refer to other objects, or the API server refuses it. An annotation of the mirror names what is left out.
func TestMirrorLeavesReferencesOut(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1", `    env:
    - {name: A, valueFrom: {configMapKeyRef: {name: conf, key: a}}}
    - {name: B, value: b}
    envFrom: [{secretRef: {name: key}}]
    volumeMounts: [{name: s, mountPath: /s}, {name: e, mountPath: /e}]
  volumes: [{name: s, secret: {secretName: key}}, {name: e}]
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: conf}, data: {a: b}}
- {apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {a: b}}
`))
	Run(t, cfg, func(w *World) {
		p := w.mirrorOf(webOnNode, nil)
		c := p.Spec.Containers[0]
		if p.Annotations["wherry.dev/mirror-omits"] != "configmap/conf,secret/key" || len(c.Env) != 1 || len(c.EnvFrom) != 0 || len(c.VolumeMounts) != 1 || len(p.Spec.Volumes) != 1 {
			t.Errorf("omits %q: %+v, volumes %+v", p.Annotations["wherry.dev/mirror-omits"], c, p.Spec.Volumes)
		}
	})
}

// Static pods are critical: they preempt other pods if necessary.
func TestStaticPodPreempts(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	Run(t, cfg, func(w *World) {
		w.Create(Pod("big", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("60")}
		}))
		w.WaitReady("big")
		w.Witness.force(w.Kube.Pod(Namespace, "big").UID)
		files.write("web.yaml", manifest("web", "registry.example/web:1", "    resources: {requests: {cpu: 50}}"))
		w.mirrorOf(webOnNode, nil)
		if p := w.Kube.Pod(Namespace, "big"); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Preempting" {
			t.Errorf("the other is %s %s", p.Status.Phase, p.Status.Reason)
		}
	})
}

// If the Node is missing, a mirror waits for it. If another pod has the name of the mirror, the agent reports that and does not touch the
// other pod.
func TestMirrorThatCannotBeMade(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{Runtime: simcri.Config{}})
	Run(t, cfg, func(w *World) {
		uid := w.Create(Pod(webOnNode, func(p *v1.Pod) { p.Spec.NodeName = "another" }))
		files.write("web.yaml", manifest("web", "registry.example/web:1"))
		files.write("lost.yaml", strings.Replace(manifest("lost", "registry.example/web:1"), "  name: lost", "  name: lost\n  namespace: nowhere", 1))
		w.Await("running", time.Minute, func() bool {
			return w.running(webOnNode) != "" && w.Witness.Running("nowhere", "lost-"+NodeName, "main") != ""
		})
		requests := w.Kube.Total()
		time.Sleep(10 * time.Minute)
		if w.Kube.Pod(Namespace, webOnNode).UID != uid {
			t.Error("the other pod was changed")
		}
		if n := w.Kube.Total() - requests; n > 250 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		w.Delete(webOnNode, 0)
		w.mirrorOf(webOnNode, nil)
	})
}
