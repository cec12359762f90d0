package fleet

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8s "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// servedBy begins the Objects of one agent whose services come from a hub.
func servedBy(ctx context.Context, h *hub, l *link) *objects.Objects {
	feed := h.of(l)
	o := objects.New(objects.Config{Follow: func(ctx context.Context, resource, namespace, name string, f kubeclient.Followed) (join func()) {
		return feed.Follow(ctx, agent.Query{Resource: resource, Namespace: namespace, Name: name}, f)
	}})
	o.Begin(ctx)
	synctest.Wait()
	return o
}

// listServices makes the hub know these services. The hub does not run in the test, so nothing else changes them.
func listServices(h *hub, items ...k8s.Object) *sharedNeed {
	need := h.others[agent.Query{Resource: "services"}]
	need.Replace(items)
	return need
}

func serviceOf(namespace, name, ip string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: map[string]string{"app": name}},
		Spec: v1.ServiceSpec{ClusterIP: ip, Type: v1.ServiceTypeClusterIP, Selector: map[string]string{"app": name},
			Ports: []v1.ServicePort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}, {Name: "https", Protocol: v1.ProtocolTCP, Port: 443}}},
	}
}

// plain is a follower without the method Share.
type plain struct{ names []string }

func (p *plain) Replace(all []k8s.Object) (done bool) {
	p.names = nil
	for _, obj := range all {
		p.names = append(p.names, obj.(*v1.Service).Name)
	}
	return false
}
func (p *plain) Apply(watch.EventType, k8s.Object) (done bool) { return false }
func (p *plain) Failed(error)                                  {}

// All agents of a fleet have the same services, not copies. An agent that is partitioned keeps those from before the partition.
func TestServicesAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, cut := newHub(nil, regexp.MustCompile("")), &link{}
		first := servedBy(t.Context(), h, &link{})
		lost := servedBy(t.Context(), h, cut)
		if _, synced := first.Services("ns"); synced {
			t.Error("the services are known before they were listed")
		}
		other := &plain{}
		h.of(&link{}).Follow(t.Context(), agent.Query{Resource: "services"}, other)
		need := listServices(h, serviceOf("ns", "web", "10.0.0.1"), serviceOf("ns", "headless", v1.ClusterIPNone))
		late := servedBy(t.Context(), h, &link{})
		want := func(when string, o *objects.Objects, want ...string) []*v1.Service {
			t.Helper()
			all, synced := o.Services("ns")
			var got []string
			for _, s := range all {
				got = append(got, s.Name+" "+s.Spec.ClusterIP)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || !synced {
				t.Errorf("%s: services %v (synced %v), want %v", when, got, synced, want)
			}
			return all
		}
		a, b, c := want("at first", first, "web 10.0.0.1"), want("at first, another agent", lost, "web 10.0.0.1"), want("at first, a late agent", late, "web 10.0.0.1")
		if a[0] != b[0] || a[0] != c[0] {
			t.Error("the agents have copies of the service")
		}
		cut.partition(true)
		h.cut(cut)
		need.Apply(watch.Added, serviceOf("ns", "db", "10.0.0.2"))
		need.Apply(watch.Modified, serviceOf("ns", "web", "10.0.0.3"))
		want("after changes", first, "db 10.0.0.2", "web 10.0.0.3")
		want("during a partition", lost, "web 10.0.0.1")
		if fmt.Sprint(other.names) != "[db web]" {
			t.Errorf("a follower without Share has %v", other.names)
		}
		cut.partition(false)
		h.heal(cut)
		want("after the partition", lost, "db 10.0.0.2", "web 10.0.0.3")
		need.Apply(watch.Deleted, serviceOf("ns", "db", "10.0.0.2"))
		need.Apply(watch.Modified, serviceOf("ns", "web", v1.ClusterIPNone))
		want("when none is left", late)
		if need.Replace([]k8s.Object{serviceOf("ns", "again", "10.0.0.4")}); len(want("after another list", lost, "again 10.0.0.4")) != 1 {
			t.Error("the list is not complete")
		}
	})
}

// An agent of a fleet needs the same memory in a cluster with 1,000 services as in one without.
func TestServicesCostAnAgentNothing(t *testing.T) { //nolint:paralleltest // it measures the process
	const agents, services, most = 100, 1000, 16 << 10
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHub(nil, regexp.MustCompile(""))
		kept := []*objects.Objects{servedBy(t.Context(), h, &link{})}
		var items []k8s.Object
		for i := range services {
			items = append(items, serviceOf(fmt.Sprint("ns-", i%50), fmt.Sprint("service-", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
		}
		need := listServices(h, items...)
		before := heap()
		for range agents {
			kept = append(kept, servedBy(t.Context(), h, &link{}))
		}
		need.Apply(watch.Added, serviceOf("ns-1", "new", "10.1.0.1")) // a change reaches all agents
		each := (heap() - before) / agents
		t.Logf("%d bytes for each agent in a cluster with %d services", each, services)
		if each > most || each < 100 {
			t.Errorf("%d bytes for each agent in a cluster with %d services, want at most %d", each, services, most)
		}
		for _, o := range kept {
			if all, _ := o.Services("ns-1"); len(all) != services/50+1 {
				t.Fatalf("an agent has %d services of a namespace, want %d", len(all), services/50+1)
			}
		}
	})
}
