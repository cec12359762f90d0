package perform

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// cluster has a service "db" in each namespace, and the API server's service in namespace default.
type cluster struct {
	Objects
	synced bool
}

func (c cluster) Services(namespace string) ([]*v1.Service, bool) {
	all := []*v1.Service{service(namespace, "db")}
	if namespace == metav1.NamespaceDefault {
		all = append(all, service(namespace, "kubernetes"))
	}
	return all, c.synced
}

func service(namespace, name string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// Every pod gets the address of the API server's service, although most pods are in another namespace.
func TestServicesIncludeTheAPIServers(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string][]string{
		"default": {"default/db", "default/kubernetes"},
		"other":   {"other/db", "default/db", "default/kubernetes"},
	} {
		for _, known := range []bool{true, false} {
			services, synced := New(Config{Objects: cluster{synced: known}}).services(namespace)
			var got []string
			for _, s := range services {
				got = append(got, s.Namespace+"/"+s.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" || synced != known {
				t.Errorf("%s: synced %v, want %v; services (-want +got):\n%s", namespace, synced, known, diff)
			}
		}
	}
}

// noting notes the container that it creates.
type noting struct {
	logger
	config *runtimeapi.ContainerConfig
}

func (n *noting) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	n.config = r.GetConfig()
	return &runtimeapi.CreateContainerResponse{ContainerId: "c1"}, nil
}

// "status.podIP" is in a container's environment what it is in the API: on a node whose primary address is of IPv6, the pod's address of IPv6,
// although the runtime reports that of IPv4 first.
func TestPodIPOfTheEnvironment(t *testing.T) {
	t.Parallel()
	field := func(name string) v1.EnvVar {
		return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status." + name}}}
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "i", Env: []v1.EnvVar{field("podIP"), field("podIPs")}}}}}
	for name, c := range map[string]struct {
		node []string
		want [2]string
	}{
		"IPv4 first": {[]string{"192.0.2.1", "2001:db8::1"}, [2]string{"10.0.0.1", "10.0.0.1,fd00::1"}},
		"IPv6 first": {[]string{"2001:db8::1", "192.0.2.1"}, [2]string{"fd00::1", "fd00::1,10.0.0.1"}},
	} {
		r := &noting{}
		x := New(Config{
			CRI: cri.New(cri.Config{Runtime: r, Images: r}), Logs: NoLogs{}, Volumes: empty{}, Cgroups: flat{}, Objects: cluster{synced: true}, Recorder: &recorder{},
			Facts: func() Facts { return Facts{HostIPs: c.node, Spec: crispec.DefaultPolicy()} },
		})
		o := x.Do(t.Context(), pod.Job{
			Ref: pod.RefOf(p), Pod: p, ImageRef: "sha256:1", Observed: &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1", "10.9.0.1", "fd00::1"}}}},
			Action: pod.Action{Op: pod.OpStartContainer, Container: "main"},
		})
		if o.Err != nil {
			t.Fatalf("%s: %v", name, o.Err)
		}
		for i, env := range r.config.GetEnvs()[:2] {
			if got := string(env.GetValue()); got != c.want[i] {
				t.Errorf("%s: %s is %q, want %q", name, env.GetKey(), got, c.want[i])
			}
		}
	}
}
