package perform

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
