package cri

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// hostile is a runtime that returns given answers, however invalid. A nil answer is an empty message.
type hostile struct {
	runtimeapi.RuntimeServiceClient
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	sandbox    *runtimeapi.PodSandboxStatus
	container  *runtimeapi.ContainerStatus
	echo       bool // each status has the ID that was asked for
	err        error
	stopped    *runtimeapi.StopContainerRequest
	deadline   time.Time
}

func (h *hostile) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: h.sandboxes}, nil
}

func (h *hostile) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: h.containers}, nil
}

func (h *hostile) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	if h.echo && h.sandbox != nil {
		h.sandbox.Id = r.GetPodSandboxId()
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: h.sandbox}, h.err
}

func (h *hostile) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	if h.echo && h.container != nil {
		h.container.Id = r.GetContainerId()
	}
	return &runtimeapi.ContainerStatusResponse{Status: h.container}, h.err
}

func (h *hostile) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	h.stopped = r
	h.deadline, _ = ctx.Deadline()
	return &runtimeapi.StopContainerResponse{}, ctx.Err()
}

func labels(uid string) map[string]string {
	return map[string]string{pod.LabelPodUID: uid, pod.LabelPodName: "p", pod.LabelPodNamespace: "ns"}
}

func sandboxOf(id, label, uid string) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{Id: id, Labels: labels(label), Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid, Name: "p", Namespace: "ns"}}
}

// The agent uses names from the runtime in paths that it removes as root, and as keys of maps. So List leaves out an object whose
// labels cannot be a pod's identity: it belongs to another program. An object that the runtime lists twice counts once.
func TestListTakesOnlyWhatCanBeAPod(t *testing.T) {
	t.Parallel()
	named := func(namespace, name string) *runtimeapi.PodSandbox {
		s := sandboxOf("x", "u", "u")
		s.Metadata.Namespace, s.Metadata.Name = namespace, name
		return s
	}
	for name, c := range map[string]struct {
		h          hostile
		pods       int
		sandboxes  int
		containers int
	}{
		"nil items":                 {h: hostile{sandboxes: []*runtimeapi.PodSandbox{nil, {}}, containers: []*runtimeapi.Container{nil, {}}}},
		"UID leads elsewhere":       {h: hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s", "../../etc", "../../etc")}}},
		"UID is a directory's name": {h: hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s", "..", ".."), sandboxOf("t", ".", ".")}}},
		"name leads elsewhere":      {h: hostile{sandboxes: []*runtimeapi.PodSandbox{named("ns", "a/../../.."), named("../..", "a")}}},
		"label and metadata differ": {h: hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s", "u", "another")}}},
		"listed twice": {h: hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s", "u", "u"), sandboxOf("s", "u", "u")},
			containers: []*runtimeapi.Container{{Id: "c", Labels: labels("u")}, {Id: "c", Labels: labels("u")}}}, pods: 1, sandboxes: 1, containers: 1},
		"no ID":    {h: hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("", "u", "u")}, containers: []*runtimeapi.Container{{Labels: labels("u")}}}},
		"ordinary": {h: hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s", "u", "u")}}, pods: 1, sandboxes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := New(Config{Runtime: &c.h}).List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sandboxes, containers := 0, 0
			for i := range got {
				sandboxes += len(got[i].Sandboxes)
				containers += len(got[i].Containers)
			}
			if len(got) != c.pods || sandboxes != c.sandboxes || containers != c.containers {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// An inspection returns the requested pod only, even if the runtime ignores the filter and lists other pods.
func TestInspectReturnsTheRequestedPod(t *testing.T) {
	t.Parallel()
	h := &hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s1", "other", "other"), sandboxOf("s2", "u", "u")},
		echo: true, sandbox: &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1",
			AdditionalIps: []*runtimeapi.PodIP{nil, {Ip: "no address"}, {Ip: "fd00::1"}}}}}
	o, err := New(Config{Runtime: h}).Inspect(t.Context(), "u", nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.Ref.UID != "u" || len(o.Sandboxes) != 1 || o.Sandboxes[0].ID != "s2" {
		t.Fatalf("got %+v", o)
	}
	if ips := o.Sandboxes[0].IPs; len(ips) != 2 || ips[1] != "fd00::1" {
		t.Errorf("IPs = %q", ips)
	}
}

// An answer without a status, or with that of something else, is an error. Taken for a status, it would show a sandbox without an address and a
// container that was never started, and the agent would end a pod that runs.
func TestAStatusIsOfWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	sandbox, container := &runtimeapi.PodSandboxStatus{Id: "s", Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"}}, &runtimeapi.ContainerStatus{Id: "c", State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	for name, c := range map[string]struct {
		sandbox   *runtimeapi.PodSandboxStatus
		container *runtimeapi.ContainerStatus
		want      string // a part of the error; "": none
	}{
		"both":               {sandbox, container, ""},
		"no sandbox":         {nil, container, "status of pod sandbox s: the runtime returned none"},
		"an empty sandbox":   {&runtimeapi.PodSandboxStatus{}, container, "status of pod sandbox s: the runtime returned none"},
		"another sandbox":    {&runtimeapi.PodSandboxStatus{Id: "t"}, container, `status of pod sandbox s: the runtime returned that of "t"`},
		"no container":       {sandbox, nil, "status of container c: the runtime returned none"},
		"an empty container": {sandbox, &runtimeapi.ContainerStatus{}, "status of container c: the runtime returned none"},
		"another container":  {sandbox, &runtimeapi.ContainerStatus{Id: "d"}, `status of container c: the runtime returned that of "d"`},
	} {
		h := &hostile{sandboxes: []*runtimeapi.PodSandbox{sandboxOf("s", "u", "u")}, sandbox: c.sandbox, container: c.container,
			containers: []*runtimeapi.Container{{Id: "c", Labels: labels("u"), Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING}}}
		o, err := New(Config{Runtime: h}).Inspect(t.Context(), "u", nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: inspected %+v, %v, want %q", name, o, err, c.want)
		}
	}
}

// IsNotFound returns false for an error that says "not found" about another object than the one of the call.
func TestNotFoundIsOfTheObject(t *testing.T) {
	t.Parallel()
	for msg, want := range map[string]bool{
		`an error occurred when try to find sandbox "x": not found`:                                          true,
		`failed to destroy network for sandbox "x": exec: "nft": executable file not found in $PATH`:         false,
		`rpc error: failed to stop container: runc did not terminate successfully: /bin/sh: not found: exit`: false,
	} {
		if got := IsNotFound(status.Error(codes.Unknown, msg)); got != want {
			t.Errorf("IsNotFound(%q) = %v", msg, got)
		}
	}
}

// The grace period of a pod may be the largest int64 in seconds. The deadline of StopContainer must not overflow.
func TestStopContainerWithTheLongestGrace(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{math.MaxInt64, math.MaxInt64 / time.Second * time.Second} {
		h := &hostile{}
		if err := New(Config{Runtime: h}).StopContainer(t.Context(), "c", grace); err != nil {
			t.Fatalf("grace %v: %v", grace, err)
		}
		if h.stopped.GetTimeout() <= 0 || time.Until(h.deadline) < 24*time.Hour {
			t.Errorf("timeout %d, deadline %v", h.stopped.GetTimeout(), h.deadline)
		}
	}
}

// No answer of a runtime makes the agent panic. The result has the requested identity, and no ID occurs twice.
func FuzzInspect(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := anything(r)
		c := New(Config{Runtime: h, ReadTermination: TerminationMessage})
		if _, err := c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		var prev *pod.Observed
		for range 3 {
			o, err := c.Inspect(t.Context(), "u", prev)
			if err != nil {
				continue
			}
			seen := map[string]bool{}
			for i := range o.Containers {
				if id := o.Containers[i].ID; id == "" || seen[id] {
					t.Fatalf("container %q: the ID is empty or occurs twice", id)
				}
				seen[o.Containers[i].ID] = true
			}
			if o.Ref.UID != "u" {
				t.Fatalf("inspected %q", o.Ref.UID)
			}
			o.NewestSandbox()
			next := anything(r)
			*h, prev = *next, &o
		}
	})
}

func anything(r *rand.Rand) *hostile {
	word := func() string {
		return []string{"", "u", "v", "../..", "c", "s", "\x00", "\xff", "a/b", "10.0.0.1"}[r.IntN(10)]
	}
	number := func() int64 { return []int64{0, -1, 1, math.MaxInt64, math.MinInt64, 1 << 40}[r.IntN(6)] }
	lbls := func() map[string]string {
		if r.IntN(4) == 0 {
			return nil
		}
		return map[string]string{pod.LabelPodUID: word(), pod.LabelPodName: word(), pod.LabelPodNamespace: word()}
	}
	h := &hostile{echo: r.IntN(4) > 0}
	for range r.IntN(6) {
		var s *runtimeapi.PodSandbox
		if r.IntN(8) > 0 {
			s = &runtimeapi.PodSandbox{Id: word(), Labels: lbls(), State: runtimeapi.PodSandboxState(number()), CreatedAt: number()}
			if r.IntN(4) > 0 {
				s.Metadata = &runtimeapi.PodSandboxMetadata{Uid: s.Labels[pod.LabelPodUID], Name: word(), Namespace: word(), Attempt: r.Uint32()}
			}
		}
		h.sandboxes = append(h.sandboxes, s)
		var c *runtimeapi.Container
		if r.IntN(8) > 0 {
			c = &runtimeapi.Container{Id: word(), PodSandboxId: word(), Labels: lbls(), State: runtimeapi.ContainerState(number()), CreatedAt: number()}
			if r.IntN(3) > 0 {
				c.Metadata = &runtimeapi.ContainerMetadata{Name: word(), Attempt: r.Uint32()}
			}
		}
		h.containers = append(h.containers, c)
	}
	if r.IntN(4) > 0 {
		h.sandbox = &runtimeapi.PodSandboxStatus{State: runtimeapi.PodSandboxState(number())}
		if r.IntN(2) > 0 {
			h.sandbox.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: word(), AdditionalIps: []*runtimeapi.PodIP{nil, {Ip: word()}}}
		}
	}
	if r.IntN(4) > 0 {
		h.container = &runtimeapi.ContainerStatus{Id: word(), State: runtimeapi.ContainerState(number()), StartedAt: number(), FinishedAt: number(),
			ExitCode: int32(number()), LogPath: word(), Annotations: map[string]string{
				pod.AnnotationPodGracePeriod: []string{"", "-5", "9223372036854775807", "x"}[r.IntN(4)], pod.AnnotationTerminationMessagePath: word(),
				pod.AnnotationTerminationMessagePolicy: "FallbackToLogsOnError"},
			Mounts: []*runtimeapi.Mount{nil, {ContainerPath: word(), HostPath: word()}}}
	}
	if r.IntN(6) == 0 {
		h.err = status.Error(codes.Code(r.IntN(17)), word())
	}
	return h
}
