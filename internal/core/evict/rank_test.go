package evict_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// kinds returns one pod of every kind that the ranking for memory distinguishes: use and request of 0 to 2, three priorities.
func kinds() []evict.Pod {
	var out []evict.Pod
	for use := range 3 {
		for request := range 3 {
			for _, priority := range []*int32{nil, new(int32(-1)), new(int32(1))} {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(rune('a' + len(out)))}}
				p.Spec.Priority = priority
				p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(int64(request), resource.BinarySI)}}}}
				out = append(out, evict.Pod{Pod: p, Usage: &evict.Usage{Memory: uint64(use)}})
			}
		}
	}
	return out
}

// before applies only the documentation to decide whether a has to be evicted before b: "1. Whether the Pod's resource usage exceeds
// requests. 2. Pod Priority. 3. The Pod's resource usage relative to requests." decided is false if the documentation does not say.
func before(a, b evict.Pod) (first, decided bool) {
	over := func(p evict.Pod) int64 {
		return int64(p.Usage.Memory) - p.Pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	}
	priority := func(p evict.Pod) int32 {
		if p.Pod.Spec.Priority == nil {
			return 0
		}
		return *p.Pod.Spec.Priority
	}
	if x, y := over(a) > 0, over(b) > 0; x != y {
		return x, true
	}
	if priority(a) != priority(b) {
		return priority(a) < priority(b), true
	}
	return over(a) > over(b), over(a) != over(b)
}

// TestRankIsTheDocumentedOrder ranks all sets of three pods from kinds, given in every order, and checks that the result is in the order
// that the documentation demands.
func TestRankIsTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	all := kinds()
	at := func(order []*v1.Pod, p evict.Pod) int { return slices.Index(order, p.Pod) }
	for i := range all {
		for j := range all {
			for k := range all {
				if i == j || j == k || i == k {
					continue
				}
				three := []evict.Pod{all[i], all[j], all[k]}
				order := evict.Rank(three, pressure.MemoryAvailable, evict.Layout{}, time.Time{})
				if len(order) != 3 {
					t.Fatalf("%d pods of 3 are ranked", len(order))
				}
				for _, a := range three {
					for _, b := range three {
						if first, decided := before(a, b); decided && first != (at(order, a) < at(order, b)) {
							t.Fatalf("%s and %s are ranked %v", a.Pod.UID, b.Pod.UID, order)
						}
					}
				}
			}
		}
	}
}

// TestRankByTheFileSystem checks that the rank of a pod depends only on its data on the file system that is full.
func TestRankByTheFileSystem(t *testing.T) {
	t.Parallel()
	pod := func(name string, u evict.Usage) evict.Pod {
		return evict.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}, Usage: &u}
	}
	const gi = 1 << 30
	pods := []evict.Pod{
		pod("layers", evict.Usage{Layers: evict.Disk{Bytes: 3 * gi, Inodes: 1}, Memory: 1}),
		pod("logs", evict.Usage{Logs: evict.Disk{Bytes: 2 * gi, Inodes: 5}, Processes: 7}),
		pod("volumes", evict.Usage{Volumes: evict.Disk{Bytes: gi, Inodes: 9}, Memory: 2}),
	}
	one, apart, split := evict.Layout{}, evict.Layout{ImagesApart: true}, evict.Layout{ImagesApart: true, LayersWithPods: true}
	for _, c := range []struct {
		signal pressure.Signal
		layout evict.Layout
		first  string
	}{
		{pressure.NodefsAvailable, one, "layers"}, {pressure.ImagefsAvailable, one, "layers"}, {pressure.ContainerfsAvailable, one, "layers"},
		{pressure.NodefsInodesFree, one, "volumes"}, {pressure.ImagefsInodesFree, one, "volumes"},
		{pressure.NodefsAvailable, apart, "logs"}, {pressure.NodefsInodesFree, apart, "volumes"},
		{pressure.ImagefsAvailable, apart, "layers"}, {pressure.ImagefsInodesFree, apart, "layers"}, {pressure.ContainerfsAvailable, apart, "layers"},
		{pressure.NodefsAvailable, split, "layers"}, {pressure.ContainerfsAvailable, split, "layers"}, {pressure.ContainerfsInodesFree, split, "volumes"},
		{pressure.MemoryAvailable, one, "volumes"}, {pressure.AllocatableMemoryAvailable, one, "volumes"}, {pressure.PIDAvailable, one, "logs"},
	} {
		if order := evict.Rank(pods, c.signal, c.layout, time.Time{}); order[0].Name != c.first {
			t.Errorf("%s with %+v: %s goes first, want %s", c.signal, c.layout, order[0].Name, c.first)
		}
	}
}
