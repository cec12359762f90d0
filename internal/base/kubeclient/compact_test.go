package kubeclient

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// A pod says the same after compact, except for its managed fields, whatever is in it.
func TestCompactChangesNothing(t *testing.T) {
	t.Parallel()
	shared := newKnown()
	for seed := range uint64(200) {
		p := &v1.Pod{}
		fuzzfill.Fill(p, rand.New(rand.NewPCG(seed, 1)))
		want := p.DeepCopy()
		want.ManagedFields = nil
		shared.compact(p)
		if diff := cmp.Diff(want, p); diff != "" {
			t.Fatalf("seed %d (-before +after):\n%s", seed, diff)
		}
	}
}

// A Node says the same after compact, too.
func TestCompactChangesNothingOfNodes(t *testing.T) {
	t.Parallel()
	shared := newKnown()
	for seed := range uint64(200) {
		n := &v1.Node{}
		fuzzfill.Fill(n, rand.New(rand.NewPCG(seed, 1)))
		want := n.DeepCopy()
		want.ManagedFields = nil
		shared.compact(n)
		if diff := cmp.Diff(want, n); diff != "" {
			t.Fatalf("seed %d (-before +after):\n%s", seed, diff)
		}
	}
}

// Objects share the maps that are equal: labels of pods, resources of containers, and those of Nodes. Maps that differ stay as they are.
func TestCompactSharesMaps(t *testing.T) {
	t.Parallel()
	list := func(cpu string) v1.ResourceList {
		return v1.ResourceList{"cpu": quantity.MustParse(cpu), "memory": quantity.MustParse("1Gi")}
	}
	decoded := func(app, cpu string) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app, "tier": "front"}},
			Spec: v1.PodSpec{
				Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list(cpu), Limits: list(cpu)}}},
				Resources:  &v1.ResourceRequirements{Requests: list(cpu)}, Overhead: list(cpu),
			},
			Status: v1.PodStatus{
				ContainerStatuses: []v1.ContainerStatus{{
					AllocatedResources: list(cpu), Resources: &v1.ResourceRequirements{Requests: list(cpu), Limits: list("7")},
				}},
				AllocatedResources: list(cpu), Resources: &v1.ResourceRequirements{Limits: list(cpu)},
			},
		}
	}
	shared := newKnown()
	is := func(m any) uintptr { return reflect.ValueOf(m).Pointer() }
	first := decoded("web", "100m")
	shared.compact(first)
	labels, requests := is(first.Labels), is(first.Spec.Containers[0].Resources.Requests)
	for _, tt := range []struct {
		app, cpu     string
		label, equal bool
	}{{"web", "100m", true, true}, {"db", "100m", false, true}, {"web", "200m", true, false}} {
		p := decoded(tt.app, tt.cpu)
		shared.compact(p)
		c, s := &p.Spec.Containers[0], &p.Status.ContainerStatuses[0]
		if got := is(p.Labels) == labels; got != tt.label || p.Labels["app"] != tt.app {
			t.Errorf("%+v: the labels are shared: %t, %v", tt, got, p.Labels)
		}
		for what, l := range map[string]v1.ResourceList{
			"requests": c.Resources.Requests, "limits": c.Resources.Limits, "allocated": s.AllocatedResources, "actual": s.Resources.Requests,
			"the pod's requests": p.Spec.Resources.Requests, "the pod's overhead": p.Spec.Overhead,
			"the pod's allocated": p.Status.AllocatedResources, "the pod's actual": p.Status.Resources.Limits,
		} {
			if got := is(l) == requests; got != tt.equal || l.Cpu().String() != tt.cpu {
				t.Errorf("%+v: %s: shared: %t, %v", tt, what, got, l)
			}
		}
		if is(s.Resources.Limits) == requests || s.Resources.Limits.Cpu().String() != "7" {
			t.Errorf("%+v: the actual limits are %v", tt, s.Resources.Limits)
		}
	}
	a, b := &v1.Node{Status: v1.NodeStatus{Capacity: list("8")}}, &v1.Node{Status: v1.NodeStatus{Allocatable: list("8")}}
	shared.compact(a)
	shared.compact(b)
	if is(a.Status.Capacity) != is(b.Status.Allocatable) {
		t.Error("two Nodes have a copy each of their resources")
	}
}

// Two pods of one workload share the texts that are equal, and their slices have no unused capacity.
func TestCompactShares(t *testing.T) {
	t.Parallel()
	decoded := func() *v1.Pod {
		p := &v1.Pod{}
		text := `{"metadata":{"namespace":"shop","labels":{"app":"web"},"managedFields":[{}]},"spec":{"nodeName":"n1","containers":[{"name":"web","image":"registry.example/web:1"}]},
			"status":{"conditions":[{"type":"A"},{"type":"B"},{"type":"C"},{"type":"D"},{"type":"E"}]}}`
		if err := json.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := decoded(), decoded()
	shared := newKnown()
	shared.compact(a)
	shared.compact(b)
	for what, pair := range map[string][2]string{
		"namespace": {a.Namespace, b.Namespace}, "label": {a.Labels["app"], b.Labels["app"]}, "node": {a.Spec.NodeName, b.Spec.NodeName},
		"image": {a.Spec.Containers[0].Image, b.Spec.Containers[0].Image}, "condition": {string(a.Status.Conditions[4].Type), string(b.Status.Conditions[4].Type)},
	} {
		if pair[0] != pair[1] || unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("%s: two copies of %q and %q", what, pair[0], pair[1])
		}
	}
	if c := cap(a.Status.Conditions); c != 5 || a.ManagedFields != nil {
		t.Errorf("room for %d conditions, managed fields %v", c, a.ManagedFields)
	}
}

// What texts remembers is bounded.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	shared := newKnown()
	for i := range 3 * maxTexts {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint(i), Labels: map[string]string{"long": strings.Repeat("x", longest+1)}}}
		shared.compact(p)
		q := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": fmt.Sprint(i)}}}
		shared.compact(q)
		n := &v1.Node{Status: v1.NodeStatus{Capacity: v1.ResourceList{"cpu": *quantity.NewQuantity(int64(i), quantity.DecimalSI)}}}
		shared.compact(n)
		if len(shared.labels) > maxMaps || len(shared.amounts) > maxMaps {
			t.Fatalf("%d and %d maps", len(shared.labels), len(shared.amounts))
		}
		if len(shared.texts) > maxTexts {
			t.Fatalf("%d texts", len(shared.texts))
		}
	}
	for text := range shared.texts {
		if len(text) > longest {
			t.Fatalf("a text of %d bytes", len(text))
		}
	}
}
