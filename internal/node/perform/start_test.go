package perform

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
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

// lateServices are services that become known after some time.
type lateServices struct {
	cluster
	come chan struct{}
}

func (l *lateServices) Services(string) ([]*v1.Service, bool) {
	select {
	case <-l.come:
		return nil, true
	default:
		return nil, false
	}
}

func (l *lateServices) AwaitServices(ctx context.Context) {
	select {
	case <-l.come:
	case <-ctx.Done():
	}
}

// A container that an agent creates in its first moment waits for the services, instead of failing and being tried again later. If they do not
// come within two seconds, it fails. A static pod needs no services.
func TestContainersWaitForServices(t *testing.T) {
	t.Parallel()
	static := map[string]string{pod.AnnotationSource: "file"}
	for _, c := range []struct {
		name        string
		after, want time.Duration
		annotations map[string]string
		pending     bool
	}{
		{"they come", time.Second, time.Second, nil, false},
		{"they do not come", time.Hour, 2 * time.Second, nil, true},
		{"static", time.Hour, 0, static, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &lateServices{come: make(chan struct{})}
				defer time.AfterFunc(c.after, func() { close(l.come) }).Stop()
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: c.annotations}}
				began := time.Now()
				in := New(Config{Objects: l}).envInput(t.Context(), p, &v1.Container{}, nil, Facts{})
				if took := time.Since(began); took != c.want || in.ServicesPending != c.pending {
					t.Errorf("after %v: pending %t", took, in.ServicesPending)
				}
			})
		})
	}
}
