package agenttest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// If a user copies the annotation of static pods into an ordinary pod, the node treats that pod as an ordinary one: the pod is refused if
// its nodeSelector does not match or the node lacks CPU, and it displaces no running pod.
func TestForgedSourceGetsNothing(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("big", cpu("60")))
		w.WaitReady("big")
		id := w.running("big")
		for _, value := range []string{"file", "http", "push", "x"} {
			forged := Annotate(pod.AnnotationSource, value)
			w.Create(Pod("greedy-"+value, cpu("50"), forged))
			w.Create(Pod("elsewhere-"+value, forged, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"not": "here"} }))
			for name, reason := range map[string]string{"greedy-" + value: "OutOfcpu", "elsewhere-" + value: "NodeAffinity"} {
				w.Await(name+" refused", time.Minute, func() bool { return w.Kube.Pod(Namespace, name).Status.Phase == v1.PodFailed })
				if p := w.Kube.Pod(Namespace, name); p.Status.Reason != reason {
					t.Errorf("%s: %s %s, want %s", name, p.Status.Phase, p.Status.Reason, reason)
				}
			}
		}
		if w.running("big") != id {
			t.Error("a running pod was preempted")
		}
	})
}

// A pod that pretends to be the mirror of a static pod that does not exist never runs, and is removed.
func TestForgedMirrorIsRemoved(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("forged", Annotate(pod.AnnotationMirror, "x")))
		w.WaitGone("forged")
		if w.Witness.Starts() != 0 {
			t.Error("the agent ran a mirror")
		}
	})
}

// A client that knows the hash of a static pod can create a pod that looks like its mirror, with a status that says that everything has
// ended. The static pod continues, and the node replaces the forged mirror by a right one.
func TestForgedMirrorMovesNoStaticPod(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1", "  activeDeadlineSeconds: 1000", "  restartPolicy: Never"))
	Run(t, cfg, func(w *World) {
		mirror := w.mirrorOf(webOnNode, nil)
		id := w.running(webOnNode)
		w.StopAgent()
		w.Delete(webOnNode, 0)
		forged := Pod(webOnNode, Annotate(pod.AnnotationMirror, mirror.Annotations[pod.AnnotationMirror]))
		w.Create(forged)
		long := metav1.NewTime(time.Now().Add(-time.Hour))
		ended := v1.ContainerStatus{Name: "main", ContainerID: "sim://x", RestartCount: 1 << 30, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}
		p := w.Kube.Pod(Namespace, webOnNode)
		p.Status = v1.PodStatus{Phase: v1.PodFailed, StartTime: &long, QOSClass: v1.PodQOSGuaranteed, ContainerStatuses: []v1.ContainerStatus{ended}}
		if _, err := w.Admin.CoreV1().Pods(Namespace).UpdateStatus(context.Background(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.StartAgent()
		own := w.mirrorOf(webOnNode, p)
		if metav1.GetControllerOf(own) == nil {
			t.Error("the mirror is not the node's")
		}
		time.Sleep(time.Minute)
		if now := w.running(webOnNode); now != id || w.Witness.Starts() != 1 {
			t.Errorf("container %s became %s, %d starts", id, now, w.Witness.Starts())
		}
		if own = w.Kube.Pod(Namespace, webOnNode); own.Status.QOSClass == v1.PodQOSGuaranteed {
			t.Error("the forged QoS class is kept")
		}
	})
}

const usesKey = "    env: [{name: A, valueFrom: {secretKeyRef: {name: key, key: a}}}]"

const localKey = "{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {a: local}}"

// secretInTheAPI creates a Secret in the API, which a static pod must not get.
func (w *World) secretInTheAPI() {
	w.Helper()
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "key"}, Data: map[string][]byte{"a": []byte("secret")}}
	if _, err := w.Admin.CoreV1().Secrets(Namespace).Create(context.Background(), s, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *World) eventWith(text string) bool {
	return slices.ContainsFunc(w.Kube.Events("", NodeName), func(e *v1.Event) bool {
		return e.Reason == "InvalidStaticPod" && strings.Contains(e.Message, text)
	})
}

// A static pod that refers to a Secret which exists only in the API is refused, with an event. The node does not read the Secret with its
// own identity. When a manifest contains the Secret, the pod runs with that one.
func TestStaticPodMayNotReferToTheAPI(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	files.write("web.yaml", manifest("web", "registry.example/web:1", usesKey))
	Run(t, cfg, func(w *World) {
		w.secretInTheAPI()
		w.Await("event", time.Minute, func() bool { return w.eventWith("secret default/key") })
		time.Sleep(time.Minute)
		if w.Witness.Starts() != 0 || w.Kube.Pod(Namespace, webOnNode) != nil {
			t.Error("the pod ran, or has a mirror")
		}
		files.write("key.yaml", localKey)
		mirror := w.mirrorOf(webOnNode, nil)
		if got := mirror.Annotations["wherry.dev/mirror-omits"]; got != "secret/key" {
			t.Errorf("the mirror omits %q", got)
		}
		id := w.running(webOnNode)
		files.remove("key.yaml")
		time.Sleep(time.Minute)
		if w.running(webOnNode) != id {
			t.Error("a running pod ended when the Secret's file was removed")
		}
		w.StopAgent()
		w.StartAgent()
		time.Sleep(time.Minute)
		if w.running(webOnNode) != id || w.Witness.Starts() != 1 {
			t.Error("the next agent, which refuses the pod, ended it")
		}
		files.write("key.yaml", localKey)
		time.Sleep(time.Minute)
		files.remove("web.yaml")
		w.WaitGone(webOnNode)
	})
}

// With the gate PreventStaticPodAPIReferences turned off, which Kubernetes still allows, the Secret comes from the API. The mirror keeps
// the reference, so that the API server refuses the mirror.
func TestStaticPodRefersToTheAPIWhereTheGateIsOff(t *testing.T) {
	t.Parallel()
	cfg, files := statics(t, Config{})
	reads := cfg.Agent
	cfg.Agent = func(c *agent.Config) {
		reads(c)
		c.Kubelet.FeatureGates = map[string]bool{"PreventStaticPodAPIReferences": false}
	}
	files.write("web.yaml", manifest("web", "registry.example/web:1", usesKey))
	Run(t, cfg, func(w *World) {
		w.secretInTheAPI()
		w.Await("running", time.Minute, func() bool { return w.running(webOnNode) != "" })
		time.Sleep(time.Minute)
		if w.eventWith("secret default/key") || w.Kube.Pod(Namespace, webOnNode) != nil {
			t.Error("the pod was refused, or its mirror hides the reference")
		}
	})
}
