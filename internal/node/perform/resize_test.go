package perform

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// sized is a runtime and its cgroups. It records the order of resize calls.
type sized struct {
	runtimeapi.RuntimeServiceClient
	groupErr, err error
	calls         []string
	request       *runtimeapi.UpdatePodSandboxResourcesRequest
}

func (s *sized) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	s.calls, s.request = append(s.calls, "sandbox "+r.PodSandboxId), r
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, s.err
}

func (s *sized) EnsurePod(context.Context, *v1.Pod, pod.Size) (string, error) {
	s.calls = append(s.calls, "group")
	return "", s.groupErr
}

func (s *sized) Parent(*v1.Pod) string                      { return "" }
func (s *sized) RemovePod(context.Context, types.UID) error { return nil }

// A resize of a pod sets its cgroup first and then calls UpdatePodSandboxResources. If the runtime refuses that call, the resize still
// succeeds.
func TestResizeUpdatesTheSandbox(t *testing.T) {
	t.Parallel()
	list := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
	p := &v1.Pod{Spec: v1.PodSpec{
		Overhead:   list("250m"),
		Containers: []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Requests: list("1")}}, {Name: "b", Resources: v1.ResourceRequirements{Requests: list("2")}}},
	}}
	up := &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "new", Attempt: 1, Ready: true}, {ID: "old"}}}
	for name, c := range map[string]struct {
		observed      *pod.Observed
		groupErr, err error
		calls, log    string
		fails         bool
	}{
		"it follows":         {observed: up, calls: "group, sandbox new"},
		"it cannot":          {observed: up, err: status.Error(codes.Unimplemented, "unknown method"), calls: "group, sandbox new"},
		"containerd 2.2":     {observed: up, err: status.Error(codes.Unknown, "not implemented yet"), calls: "group, sandbox new"},
		"it refuses":         {observed: up, err: status.Error(codes.Internal, "no memory to plug"), calls: "group, sandbox new", log: "no memory to plug"},
		"the sandbox is off": {observed: &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "old"}}}, calls: "group"},
		"the group fails":    {observed: up, groupErr: errors.New("read-only"), calls: "group", fails: true},
	} {
		s := &sized{groupErr: c.groupErr, err: c.err}
		var log strings.Builder
		x := New(Config{
			CRI: cri.New(cri.Config{Runtime: s}), Cgroups: s, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Facts: func() Facts { return Facts{Spec: crispec.DefaultPolicy()} },
		})
		o := x.Do(t.Context(), pod.Job{Pod: p, Observed: c.observed, Action: pod.Action{Op: pod.OpResize}})
		if calls := strings.Join(s.calls, ", "); (o.Err != nil) != c.fails || calls != c.calls || (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: outcome %+v, calls %q, log %q", name, o, calls, log.String())
		}
		if s.request != nil && (s.request.Resources.CpuShares != 3072 || s.request.Overhead.CpuShares != 256) {
			t.Errorf("%s: %v", name, s.request)
		}
	}
}
