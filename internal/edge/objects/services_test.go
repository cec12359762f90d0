package objects

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestServices(t *testing.T) {
	t.Parallel()
	svc := func(ns, name, ip string) *v1.Service {
		return &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"a": "b"}},
			Spec:       v1.ServiceSpec{ClusterIP: ip, Selector: map[string]string{"x": "y"}, Ports: []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP, NodePort: 30080}}},
		}
	}
	names := func(w *world, ns string) []string {
		synctest.Wait()
		all, synced := w.Services(ns)
		got := []string{fmt.Sprint("synced ", synced)}
		for _, s := range all {
			got = append(got, s.Name)
		}
		slices.Sort(got)
		return got
	}
	run(t, Config{}, func(t *testing.T, w *world) {
		want := func(when, ns string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, names(w, ns)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		want("at first", "ns", "synced true", "web")
		want("at first", "default", "kubernetes", "synced true")
		all, _ := w.Services("ns")
		if diff := cmp.Diff(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: v1.ServiceSpec{
			ClusterIP: "10.0.0.2", Ports: []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}}}, all[0]); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
		api := w.client.CoreV1().Services("ns")
		_, _ = api.Create(t.Context(), svc("ns", "db", "10.0.0.3"), metav1.CreateOptions{})
		want("after a service was made", "ns", "db", "synced true", "web")
		_, _ = api.Update(t.Context(), svc("ns", "db", "None"), metav1.UpdateOptions{})
		want("after it lost its address", "ns", "synced true", "web")
		_ = api.Delete(t.Context(), "web", metav1.DeleteOptions{})
		want("after one was deleted", "ns", "synced true")
	}, svc("default", "kubernetes", "10.0.0.1"), svc("ns", "web", "10.0.0.2"), svc("ns", "headless", "None"))
}

func TestServicesAreNotKnownBeforeTheyWereListed(t *testing.T) {
	t.Parallel()
	if _, synced := New(Config{API: apiOf(fake.NewClientset())}).Services("ns"); synced {
		t.Error("synced before Run")
	}
	if _, synced := New(Config{API: apiOf(fake.NewClientset()), NoServices: true}).Services("ns"); !synced {
		t.Error("without services there is nothing to wait for")
	}
}
