package perform

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/cri"
	"github.com/wherry-node/wherry/internal/pod"
)

// bearer is a runtime with one container that bears annotations.
type bearer struct {
	runtimeapi.RuntimeServiceClient
	annotations map[string]string
	ran         []string
}

func (b *bearer) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c", Annotations: b.annotations}}, nil
}

func (b *bearer) ExecSync(_ context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	b.ran = r.GetCmd()
	return &runtimeapi.ExecSyncResponse{}, nil
}

// "grace, preStop ... are annotations on the container (its pod may be deleted while we are down)".
func TestPreStopOfAPodWhoseObjectIsGone(t *testing.T) {
	t.Parallel()
	b := &bearer{annotations: map[string]string{pod.AnnotationPreStop: `{"exec":{"command":["bye"]}}`, pod.AnnotationPorts: `[{"name":"http","containerPort":80}]`}}
	x := New(Config{CRI: cri.New(cri.Config{Runtime: b})})
	job := pod.Job{Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpPreStop, Container: "main", ID: "c", Grace: time.Second}}
	if o := x.Do(t.Context(), job); o.Err != nil || !slices.Equal(b.ran, []string{"bye"}) {
		t.Errorf("outcome %+v, ran %q", o, b.ran)
	}
	b.annotations[pod.AnnotationPreStop] = "{"
	if o := x.Do(t.Context(), job); o.Err == nil {
		t.Error("an annotation that cannot be read is a hook that was run")
	}
	if got := podIPs(&pod.Observed{Sandboxes: []pod.Sandbox{{HostNetwork: true}}}, []string{"10.0.0.1"}, nil); len(got) != 1 {
		t.Errorf("addresses of a host-network pod without an object: %q", got)
	}
}
