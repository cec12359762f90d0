package podctl

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/push"
)

// shownPod returns a pod with an init container, a sidecar and a main container.
func shownPod(name string, change func(p *v1.Pod)) v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: at(-5 * time.Minute), Annotations: map[string]string{pod.AnnotationSource: "push"}},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init", Image: "i:1"}, {Name: "side", Image: "s:1", RestartPolicy: &always}},
			Containers:     []v1.Container{{Name: "main", Image: "m:1", Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: v1.ProtocolTCP}}}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIP: "10.88.0.2",
			InitContainerStatuses: []v1.ContainerStatus{
				{Name: "init", Ready: true, State: exited(0, "Completed")},
				{Name: "side", Ready: true, Started: new(true), State: runs()},
			},
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", Ready: true, State: runs()}},
		},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func at(d time.Duration) metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(d))
}

func runs() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
}

func exited(code int32, reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: at(-time.Minute)}}
}

func waiting(reason, message string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func TestPodsTable(t *testing.T) {
	t.Parallel()
	pods := []v1.Pod{
		shownPod("up", nil),
		shownPod("starting", func(p *v1.Pod) {
			p.Status.Phase, p.Status.PodIP = v1.PodPending, ""
			p.Status.InitContainerStatuses[0] = v1.ContainerStatus{Name: "init", State: runs()}
			p.Status.InitContainerStatuses[1] = v1.ContainerStatus{Name: "side", State: waiting("PodInitializing", "")}
			p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "main", State: waiting("PodInitializing", "")}
		}),
		shownPod("init-fails", func(p *v1.Pod) {
			p.Status.Phase = v1.PodPending
			p.Status.InitContainerStatuses[0] = v1.ContainerStatus{Name: "init", RestartCount: 2, State: waiting("CrashLoopBackOff", "back-off 20s"), LastTerminationState: exited(1, "Error")}
			p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "main", State: waiting("PodInitializing", "")}
		}),
		shownPod("no-image", func(p *v1.Pod) {
			p.Status.Phase = v1.PodPending
			p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "main", State: waiting("ImagePullBackOff", "no such image")}
		}),
		shownPod("crashed", func(p *v1.Pod) {
			p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "main", RestartCount: 3, State: runs(), Ready: true, LastTerminationState: exited(137, "OOMKilled")}
		}),
		shownPod("done", func(p *v1.Pod) {
			p.Status.Phase = v1.PodSucceeded
			p.Status.InitContainerStatuses[1] = v1.ContainerStatus{Name: "side", Started: new(false), State: exited(0, "Completed")}
			p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "main", State: exited(0, "Completed")}
		}),
		shownPod("failed", func(p *v1.Pod) {
			p.Status.Phase = v1.PodFailed
			p.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "main", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 9}}}
		}),
		shownPod("refused", func(p *v1.Pod) {
			p.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "not enough"}
		}),
		shownPod("ending", func(p *v1.Pod) { p.DeletionTimestamp = new(at(0)) }),
		shownPod("stopping", func(p *v1.Pod) {
			p.DeletionTimestamp = new(at(0))
			p.Annotations[push.AnnotationStopped] = "true"
		}),
		shownPod("stopped", func(p *v1.Pod) {
			p.DeletionTimestamp = new(at(0))
			p.Annotations[push.AnnotationStopped] = "true"
			p.Status.InitContainerStatuses[1].State, p.Status.InitContainerStatuses[1].Ready = exited(143, "Error"), false
			p.Status.ContainerStatuses[0].State, p.Status.ContainerStatuses[0].Ready = exited(143, "Error"), false
		}),
		{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "left"}, Status: v1.PodStatus{Reason: removing}},
	}
	var b bytes.Buffer
	if err := writePods(&b, pods, at(0).Time, false); err != nil {
		t.Fatal(err)
	}
	const want = `NAMESPACE   NAME         READY   STATUS                  RESTARTS     AGE         IP
default     up           2/2     Running                 0            5m          10.88.0.2
default     starting     0/2     Init:0/2                0            5m          <none>
default     init-fails   1/2     Init:CrashLoopBackOff   2 (60s ago)  5m          10.88.0.2
default     no-image     1/2     ImagePullBackOff        0            5m          10.88.0.2
default     crashed      2/2     Running                 3 (60s ago)  5m          10.88.0.2
default     done         0/2     Completed               0            5m          10.88.0.2
default     failed       1/2     ExitCode:9              0            5m          10.88.0.2
default     refused      0/2     OutOfcpu                0            5m          <none>
default     ending       2/2     Terminating             0            5m          10.88.0.2
default     stopping     2/2     Terminating             0            5m          10.88.0.2
default     stopped      0/2     Stopped                 0            5m          10.88.0.2
other       left         0/0     Removing                0            <unknown>   <none>
`
	squeeze := func(s string) []string {
		var out []string
		for line := range strings.Lines(s) {
			out = append(out, strings.Join(strings.Fields(line), " "))
		}
		return out
	}
	if d := cmp.Diff(squeeze(want), squeeze(b.String())); d != "" {
		t.Errorf("the table (-want +got):\n%s", d)
	}
	b.Reset()
	if err := writePods(&b, pods[:1], at(0).Time, true); err != nil {
		t.Fatal(err)
	}
	const wide = `NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE   IP          PORTS          SOURCE   IMAGES
default     up     2/2     Running   0          5m    10.88.0.2   8080->80/tcp   push     m:1
`
	if d := cmp.Diff(wide, b.String()); d != "" {
		t.Errorf("the wide table (-want +got):\n%s", d)
	}
}

// The exit code of wherry run is that of the first container that failed; sidecars do not count.
func TestCompleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(p *v1.Pod)
		done   bool
		code   int
	}{
		{"runs", nil, false, 0},
		{"ends well, its sidecar does not", func(p *v1.Pod) {
			p.Status.Phase = v1.PodSucceeded
			p.Status.InitContainerStatuses[1].State = exited(143, "Error")
			p.Status.ContainerStatuses[0].State = exited(0, "Completed")
		}, true, 0},
		{"fails", func(p *v1.Pod) {
			p.Status.Phase = v1.PodFailed
			p.Status.ContainerStatuses[0].State = exited(3, "Error")
		}, true, 3},
		{"its init container fails", func(p *v1.Pod) {
			p.Status.Phase = v1.PodFailed
			p.Status.InitContainerStatuses[0].State = exited(4, "Error")
		}, true, 4},
		{"is refused", func(p *v1.Pod) { p.Status = v1.PodStatus{Phase: v1.PodFailed} }, true, 1},
	} {
		p := shownPod("p", c.change)
		if done, code := completed(&p); done != c.done || code != c.code {
			t.Errorf("%s: %v, %d, want %v, %d", c.name, done, code, c.done, c.code)
		}
	}
}

func TestFindPod(t *testing.T) {
	t.Parallel()
	of := func(ns, name string) v1.Pod {
		return v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1.PodSpec{NodeName: "n1"}}
	}
	pods := []v1.Pod{of("default", "web"), of("a", "db"), of("b", "db"), of("default", "static-n1"), of("a", "twice"), of("default", "twice")}
	for _, c := range []struct{ ns, arg, want string }{
		{"", "web", "default/web"}, {"", "pod/web", "default/web"}, {"", "a/db", "a/db"}, {"b", "db", "b/db"},
		{"", "static", "default/static-n1"}, {"", "twice", "default/twice"},
		{"", "db", `pod "db" may be a/db or b/db: choose a namespace with -n`},
		{"a", "web", `pod "web" is not on this node; it has default/web, a/db, b/db, a/twice, default/twice, default/static-n1`},
	} {
		p, err := findPod(pods, c.ns, c.arg)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = p.Namespace + "/" + p.Name
		}
		if got != c.want {
			t.Errorf("-n %q %q: %s, want %s", c.ns, c.arg, got, c.want)
		}
	}
}

func TestEventsAndExplanation(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	events := []v1.Event{
		{LastTimestamp: at(-90 * time.Second), Type: "Normal", Reason: "Started", Count: 1, Message: "Container started", InvolvedObject: v1.ObjectReference{Kind: "Pod", Name: "web", FieldPath: "spec.containers{main}"}},
		{LastTimestamp: at(-time.Second), Type: "Warning", Reason: "BackOff", Count: 4, Message: "Back-off\n", InvolvedObject: v1.ObjectReference{Kind: "Pod", Name: "web"}},
	}
	if err := writeEvents(&b, events, at(0).Time, true); err != nil {
		t.Fatal(err)
	}
	const want = `LAST SEEN  TYPE     REASON                 OBJECT                           MESSAGE
90s        Normal   Started                pod/web [main]                   Container started
1s (x4)    Warning  BackOff                pod/web                          Back-off
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	b.Reset()
	err := writeRecord(&b, explanation{Dropped: 2, Records: []timeline.Record{
		{At: at(0).Time, Kind: timeline.KindDecision, What: "active", Why: "the pod has no sandbox", Cause: "source"},
		{At: at(time.Second).Time, Kind: timeline.KindEnded, What: "run-sandbox", Took: 1500 * time.Microsecond, Error: "no network"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const explained = `(2 older records, from before 2026-03-01 12:00:00, are not kept)
TIME          KIND      WHAT         TOOK  WHY
12:00:00.000  decision  active             the pod has no sandbox (source)
12:00:01.000  ended     run-sandbox  2ms   no network
`
	if d := cmp.Diff(explained, b.String()); d != "" {
		t.Errorf("explanation (-want +got):\n%s", d)
	}
}

// Without --container a command is about the container that the annotation names, if the pod has it, or about the first one.
func TestDefaultContainer(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	for named, want := range map[string]string{"": "a", "b": "b", "none": "a"} {
		p.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": named}
		if got, err := containerOf(p, "", io.Discard); err != nil || got != want {
			t.Errorf("the annotation names %q: %q, %v, want %q", named, got, err, want)
		}
	}
	if _, err := containerOf(p, "none", io.Discard); err == nil || !strings.Contains(err.Error(), `container "none" is not in pod`) {
		t.Errorf("a container that does not exist: %v", err)
	}
}
