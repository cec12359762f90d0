package fleet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// A shard counts the deletions of the pods on its own nodes only, so that the sum over all shards is right.
func TestDeletionsOfAShard(t *testing.T) {
	t.Parallel()
	b := newClaims(t)
	b.f.nodes["f-node-1"] = &node{}
	pod := func(name, node string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{NodeName: node}}
	}
	all := []runtime.Object{pod("a", "f-node-1"), pod("b", "f-node-2"), pod("c", "f-node-1"), pod("d", "f-node-2")}
	b.f.pods.Replace(all)
	b.f.pods.Replace(all[2:])
	b.f.pods.Apply(watch.Deleted, all[2])
	b.f.pods.Apply(watch.Deleted, all[3])
	if all, _ := b.f.pods.count(); all.Deletions != 2 {
		t.Errorf("%d deletions, want 2", all.Deletions)
	}
}
