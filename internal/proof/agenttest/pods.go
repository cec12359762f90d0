package agenttest

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod returns a pod with one container, which runs until it is stopped. The options change the pod.
func Pod(name string, options ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Annotations: map[string]string{}},
		Spec:       v1.PodSpec{NodeName: NodeName, Containers: []v1.Container{{Name: "main", Image: "registry.example/app:1"}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// Annotate sets an annotation. Some annotations tell simcri how a container behaves.
func Annotate(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

// Create creates a pod in the API and returns its UID.
func (w *World) Create(p *v1.Pod) types.UID {
	w.Helper()
	p = p.DeepCopy()
	portProbes(&p.Spec)
	got, err := w.Admin.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		w.Fatalf("create pod %s: %v", p.Name, err)
	}
	return got.UID
}

// Delete deletes a pod. grace is in seconds; negative: the pod's own grace period.
func (w *World) Delete(name string, grace int64) {
	w.Helper()
	o := metav1.DeleteOptions{}
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	p := w.Kube.Pod(Namespace, name)
	if p != nil {
		w.Witness.deleting(p, o.GracePeriodSeconds)
	}
	err := w.Admin.CoreV1().Pods(Namespace).Delete(context.Background(), name, o)
	if apierrors.IsNotFound(err) && p != nil && p.DeletionTimestamp != nil {
		return // the agent has removed the pod in the meantime
	}
	if err != nil {
		w.Fatalf("delete pod %s: %v", name, err)
	}
}

// Kill makes a running container end, as after a crash, with this exit code and reason.
func (w *World) Kill(pod, container string, code int32, reason string) {
	w.Helper()
	id := w.Witness.Running(Namespace, pod, container)
	if id == "" {
		w.Fatalf("kill %s/%s: it does not run", pod, container)
	}
	w.Runtime.Exit(id, code, reason, "")
}

// KillSandboxes ends all sandboxes and containers, as a reboot of the machine does.
func (w *World) KillSandboxes() {
	for _, id := range w.Witness.Sandboxes() {
		w.Runtime.KillSandbox(id)
	}
}
