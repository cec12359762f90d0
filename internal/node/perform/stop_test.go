package perform

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// recorder keeps the events that are recorded.
type recorder struct {
	events []string
	of     *v1.Pod // pod of the last recorded event
}

func (h *recorder) Event(p *v1.Pod, _, _, reason, message string) {
	h.events, h.of = append(h.events, reason+" "+message), p
}
func (h *recorder) NodeEvent(_, _, _ string) {}

// ender is a runtime whose containers end when it stops them.
type ender struct{ bearer }

func (*ender) StopContainer(context.Context, *runtimeapi.StopContainerRequest, ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return &runtimeapi.StopContainerResponse{}, nil
}

// The Killing event is recorded before the preStop hook, and not again by the stop that follows the hook. Another stop records another
// event.
func TestKillingIsRecordedOnceAndBeforeThePreStopHook(t *testing.T) {
	t.Parallel()
	h := &recorder{}
	x := New(Config{CRI: cri.New(cri.Config{Runtime: &ender{}}), Recorder: h})
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main",
		Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}}}}}
	do := func(op pod.Op) {
		t.Helper()
		job := pod.Job{Pod: p, Observed: &pod.Observed{}, Action: pod.Action{Op: op, Container: "main", ID: "c", Grace: time.Second}}
		if o := x.Do(t.Context(), job); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	want := []string{"Killing Stopping container main"}
	do(pod.OpPreStop)
	if !slices.Equal(h.events, want) {
		t.Fatalf("with the hook: %q, want %q", h.events, want)
	}
	do(pod.OpStopContainer)
	if !slices.Equal(h.events, want) {
		t.Errorf("with the stop after the hook: %q, want %q", h.events, want)
	}
	if x.announced.ids != nil {
		t.Errorf("entries are left: %v", x.announced.ids)
	}
	do(pod.OpStopContainer) // for example with a shorter grace period
	if len(h.events) != 2 {
		t.Errorf("a second stop has no event: %q", h.events)
	}
}

// A pod that was deleted by force has no object any more when its containers end. Its events are recorded nevertheless.
func TestKillingIsRecordedForAPodWhoseObjectIsGone(t *testing.T) {
	t.Parallel()
	h := &recorder{}
	x := New(Config{CRI: cri.New(cri.Config{Runtime: &ender{}}), Recorder: h})
	job := pod.Job{Ref: pod.Ref{UID: "u", Namespace: "ns", Name: "web"}, Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpStopContainer, Container: "main", ID: "c", Grace: time.Second}}
	if o := x.Do(t.Context(), job); o.Err != nil {
		t.Fatal(o.Err)
	}
	if !slices.Equal(h.events, []string{"Killing Stopping container main"}) || h.of.Namespace != "ns" || h.of.Name != "web" || h.of.UID != "u" {
		t.Errorf("%q of %+v", h.events, h.of)
	}
}

// noClass is a cluster without runtime classes.
type noClass struct{ Objects }

func (noClass) RuntimeHandler(context.Context, string) (string, error) {
	return "", errors.New("no such class")
}

// A sandbox that replaces another one has an event that says so. A second attempt alone does not replace one: the result of the first may have been
// unknown, and none may have come of it.
func TestASandboxThatReplacesAnotherHasAnEvent(t *testing.T) {
	t.Parallel()
	one := &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s"}}}
	for _, c := range []struct {
		attempt uint32
		was     *pod.Observed
		want    string
	}{{0, nil, "FailedCreatePodSandBox"}, {1, &pod.Observed{}, "FailedCreatePodSandBox"}, {1, one, "SandboxChanged"}} {
		h := &recorder{}
		x := New(Config{Objects: noClass{}, Recorder: h})
		p := &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: new("other")}}
		x.Do(t.Context(), pod.Job{Pod: p, Observed: c.was, Action: pod.Action{Op: pod.OpRunSandbox, Attempt: c.attempt}})
		if len(h.events) == 0 || !strings.HasPrefix(h.events[0], c.want+" ") {
			t.Errorf("attempt %d: events %q, want %s first", c.attempt, h.events, c.want)
		}
	}
}

// broken is a runtime whose calls all fail. Its errors contain the container's ID.
type broken struct {
	runtimeapi.RuntimeServiceClient
	err error
}

func (b *broken) StopContainer(context.Context, *runtimeapi.StopContainerRequest, ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return nil, b.err
}

func (b *broken) StopPodSandbox(context.Context, *runtimeapi.StopPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return nil, b.err
}

func (b *broken) StartContainer(context.Context, *runtimeapi.StartContainerRequest, ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return nil, b.err
}

func (b *broken) RunPodSandbox(context.Context, *runtimeapi.RunPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return nil, b.err
}

// anyClass is a cluster where each runtime class exists.
type anyClass struct{ Objects }

// flat gives all pods the same cgroup.
type flat struct{ Cgroups }

func (flat) Parent(*v1.Pod) string { return "/pods" }

// Events contain the runtime's error in the form of upstream's kubelet, because tools parse them, and names of containers instead
// of IDs.
func TestEventsHaveTheRuntimesErrors(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("5e", 32)
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	for op, want := range map[pod.Op]string{
		pod.OpStopContainer:  `FailedKillPod  error killing pod: failed to "KillContainer" for "main" with KillContainerError: "rpc error: code = Unknown desc = task main is stuck"`,
		pod.OpStopSandbox:    `FailedKillPod  error killing pod: failed to "KillPodSandbox" for "u" with KillPodSandboxError: "rpc error: code = Unknown desc = task ` + id + ` is stuck"`,
		pod.OpStartContainer: `Failed main Error: task main is stuck`,
		pod.OpRunSandbox:     `FailedCreatePodSandBox  Failed to create pod sandbox: rpc error: code = Unknown desc = task ` + id + ` is stuck`,
	} {
		h := &placed{}
		x := New(Config{CRI: cri.New(cri.Config{Runtime: &broken{err: status.Error(codes.Unknown, "task "+id+" is stuck")}}), Recorder: h,
			Objects: anyClass{}, Cgroups: flat{}, Facts: func() Facts { return Facts{} }})
		a := pod.Action{Op: op, ID: id}
		if op == pod.OpStopContainer || op == pod.OpStartContainer {
			a.Container = "main"
		}
		o := x.Do(t.Context(), pod.Job{Ref: pod.Ref{UID: "u", Name: "web"}, Pod: p, Observed: &pod.Observed{}, Action: a})
		if o.Err == nil || len(h.events) == 0 || h.events[len(h.events)-1] != want {
			t.Errorf("%s: outcome %v\n got %q\nwant %q", op, o.Err, h.events, want)
		}
	}
}

// placed keeps the recorded events, each with its container.
type placed struct{ events []string }

func (h *placed) Event(_ *v1.Pod, container, _, reason, message string) {
	h.events = append(h.events, reason+" "+container+" "+message)
}
func (h *placed) NodeEvent(_, _, _ string) {}

// stuck are volumes that cannot be unmounted.
type stuck struct{ Volumes }

func (stuck) TearDown(context.Context, pod.Ref) error {
	return errors.New("waits for CSI driver d to register on this node")
}

// A pod whose volumes cannot be unmounted gets an event that says why, also when its object is gone.
func TestVolumesThatStayMountedHaveAnEvent(t *testing.T) {
	t.Parallel()
	h := &recorder{}
	x := New(Config{Volumes: stuck{}, Recorder: h})
	o := x.Do(t.Context(), pod.Job{Ref: pod.Ref{UID: "u", Namespace: "ns", Name: "web"}, Action: pod.Action{Op: pod.OpTearDown}})
	if want := []string{"FailedUnMount UnmountVolume.TearDown failed: waits for CSI driver d to register on this node"}; o.Err == nil || !slices.Equal(h.events, want) || h.of.Name != "web" {
		t.Errorf("outcome %v, events %q of %s, want %q", o.Err, h.events, h.of.Name, want)
	}
}
