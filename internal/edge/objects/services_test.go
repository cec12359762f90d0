package objects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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

// After returns new Services and leaves the old ones as they are, because other agents have them. If a change makes no difference to pods,
// it returns the same Services.
func TestServicesNeverChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		now, want := NewServices(nil), map[string]string{} // addresses by namespace and name
		text := func(s *Services) string {
			got := map[string]string{}
			for _, obj := range s.Objects() {
				svc := obj.(*v1.Service)
				got[svc.Namespace+"/"+svc.Name] = svc.Spec.ClusterIP
			}
			for namespace, all := range s.in {
				if len(all) == 0 || !slices.IsSortedFunc(all, func(a, b *v1.Service) int { return strings.Compare(a.Name, b.Name) }) {
					t.Fatalf("seed %d: namespace %s has %v", seed, namespace, all)
				}
			}
			return fmt.Sprint(got)
		}
		earlier := map[*Services]string{}
		same := 0
		for range 300 {
			svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", r.IntN(3)), Name: fmt.Sprint("s", r.IntN(5))}}
			svc.Spec.ClusterIP = []string{"10.0.0.1", "10.0.0.2", v1.ClusterIPNone, ""}[r.IntN(4)]
			event := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}[r.IntN(3)]
			name := svc.Namespace + "/" + svc.Name
			was, had := want[name]
			if event == watch.Deleted || !strings.HasPrefix(svc.Spec.ClusterIP, "10.") {
				delete(want, name)
			} else {
				want[name] = svc.Spec.ClusterIP
			}
			is, has := want[name]
			next := now.After(event, svc)
			if unchanged := had == has && was == is; unchanged != (next == now) {
				t.Fatalf("seed %d: %s of %s with %q: unchanged %v, the same value %v", seed, event, name, svc.Spec.ClusterIP, unchanged, next == now)
			} else if unchanged {
				same++
			}
			if got := text(next); got != fmt.Sprint(want) {
				t.Fatalf("seed %d: %s, want %s", seed, got, fmt.Sprint(want))
			}
			now = next
			earlier[now] = text(now)
		}
		for s, was := range earlier {
			if text(s) != was {
				t.Fatalf("seed %d: services that were %s are %s now", seed, was, text(s))
			}
		}
		if same == 0 || len(earlier) < 50 {
			t.Errorf("seed %d: %d values, %d changes without a difference: the test tests too little", seed, len(earlier), same)
		}
	}
}
