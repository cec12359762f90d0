package agenttest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// firstStatus returns the first version of a pod, newer than since, that has a status from the node. It reads the versions from a watch
// that begins at since.
func (w *World) firstStatus(name string, since *v1.Pod) *v1.Pod {
	w.Helper()
	seconds := int64(1)
	changes, err := w.Admin.CoreV1().Pods(Namespace).Watch(context.Background(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: since.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		w.Fatal(err)
	}
	defer changes.Stop()
	for e := range changes.ResultChan() {
		if p, ok := e.Object.(*v1.Pod); ok && p.Status.StartTime != nil {
			return p
		}
	}
	w.Fatalf("pod %s has no status", name)
	return nil
}

// firstWarning returns the first Warning event about a pod; it ignores the warning that the node has no cluster DNS.
func (w *World) firstWarning(name string) (first *v1.Event) {
	for _, e := range w.Kube.Events(Namespace, name) {
		if e.Type == v1.EventTypeWarning && e.Reason != "MissingClusterDNS" && (first == nil || version(w, e.ResourceVersion) < version(w, first.ResourceVersion)) {
			first = e
		}
	}
	return first
}

func version(w *World, s string) uint64 {
	w.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// When an event says that a pod cannot start, the API already shows the pod's conditions and why its containers wait.
func TestNoWarningBeforeTheFirstStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason, waits string
		says                string // the message of the wait, once the failure is known; "": not checked
		cfg                 simcri.Config
		fault               simcri.Fault
		pod                 func(*v1.Pod)
	}{
		{name: "volume", reason: "FailedMount", waits: "ContainerCreating", says: "a volume of the pod needs a Secret that does not exist", pod: func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "none"}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}},
		{name: "image", reason: "Failed", waits: "ErrImagePull", cfg: simcri.Config{
			Pull: func(string) simcri.Pull { return simcri.Pull{Err: status.Error(codes.Unknown, "no such host")} },
		}},
		{name: "sandbox", reason: "FailedCreatePodSandBox", waits: "ContainerCreating", says: "the runtime cannot make the sandbox of the pod", fault: simcri.Fault{Method: "RunPodSandbox"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			Run(t, Config{Runtime: c.cfg}, func(w *World) {
				if c.fault.Method != "" {
					w.Runtime.Inject(c.fault)
				}
				p := Pod("a")
				if c.pod != nil {
					c.pod(p)
				}
				w.Create(p)
				created := w.Kube.Pod(Namespace, "a")
				var warning *v1.Event
				w.Await("a warning", 3*time.Minute, func() bool { warning = w.firstWarning("a"); return warning != nil })
				time.Sleep(time.Minute)
				first := w.firstStatus("a", created)
				if warning.Reason != c.reason || version(w, first.ResourceVersion) > version(w, warning.ResourceVersion) {
					t.Errorf("event %s %q is version %s, the first status %s", warning.Reason, warning.Message, warning.ResourceVersion, first.ResourceVersion)
				}
				for _, kind := range []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodReadyToStartContainers} {
					if Condition(first, kind) == "" {
						t.Errorf("the first status has no condition %s", kind)
					}
				}
				if s := first.Status.ContainerStatuses; len(s) != 1 || s[0].State.Waiting == nil || s[0].State.Waiting.Reason != c.waits {
					t.Errorf("the first status has %+v, want a wait for %s", s, c.waits)
				}
				if c.says == "" {
					return
				}
				now := w.Kube.Pod(Namespace, "a")
				if s := now.Status.ContainerStatuses; s[0].State.Waiting == nil || s[0].State.Waiting.Message != c.says {
					t.Errorf("the container waits with %+v, want the message %q", s[0].State.Waiting, c.says)
				}
				if answer := w.Explain(); len(answer) != 1 || answer[0].Answer.Line != c.says {
					t.Errorf("the node answers %+v, want the line %q", answer, c.says)
				}
				time.Sleep(30 * time.Minute) // many more tries fail
				if later := w.Kube.Pod(Namespace, "a"); later.ResourceVersion != now.ResourceVersion {
					t.Errorf("the status was written again although nothing has changed: %+v", later.Status)
				}
			})
		})
	}
}
