package perform

import (
	"context"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// sandboxes is a runtime that runs sandboxes.
type sandboxes struct {
	runtimeapi.RuntimeServiceClient
}

func (sandboxes) RunPodSandbox(context.Context, *runtimeapi.RunPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s"}, nil
}

// While the node's resolver configuration cannot be read, for example because the machine has just booted and makes the file later, no pod gets a
// sandbox that builds on it: the sandbox would keep a configuration without the node's name servers as long as it exists.
func TestSandboxWaitsForTheResolverConfiguration(t *testing.T) {
	t.Parallel()
	missing := &os.PathError{Op: "open", Path: "/run/resolv.conf", Err: os.ErrNotExist}
	for _, c := range []struct {
		policy v1.DNSPolicy
		err    error
		want   []string // the events
	}{
		{v1.DNSDefault, missing, []string{"FailedCreatePodSandBox Failed to create pod sandbox: resolvConf: open /run/resolv.conf: file does not exist"}},
		{v1.DNSClusterFirst, missing, []string{"FailedCreatePodSandBox Failed to create pod sandbox: resolvConf: open /run/resolv.conf: file does not exist"}},
		{v1.DNSNone, missing, nil},
		{v1.DNSDefault, nil, nil},
	} {
		h := &recorder{}
		x := New(Config{CRI: cri.New(cri.Config{Runtime: sandboxes{}}), Recorder: h, Cgroups: flat{}, Facts: func() Facts {
			return Facts{HostResolv: &runtimeapi.DNSConfig{}, HostResolvErr: c.err, ClusterDNS: []string{"10.96.0.10"}, Spec: crispec.DefaultPolicy()}
		}})
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}, Spec: v1.PodSpec{DNSPolicy: c.policy, Containers: []v1.Container{{Name: "main"}}}}
		o := x.Do(t.Context(), pod.Job{Ref: pod.RefOf(p), Pod: p, Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpRunSandbox}})
		if (o.Err == nil) != (c.want == nil) || !slices.Equal(h.events, c.want) {
			t.Errorf("%s, %v: outcome %v, events %q, want %q", c.policy, c.err, o.Err, h.events, c.want)
		}
	}
}
