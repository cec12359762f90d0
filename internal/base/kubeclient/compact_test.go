package kubeclient

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// A pod says the same after compact, except for its managed fields, whatever is in it.
func TestCompactChangesNothing(t *testing.T) {
	t.Parallel()
	shared := texts{}
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
	shared := texts{}
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
	shared := texts{}
	for i := range 3 * maxTexts {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint(i), Labels: map[string]string{"long": strings.Repeat("x", longest+1)}}}
		shared.compact(p)
		if len(shared) > maxTexts {
			t.Fatalf("%d texts", len(shared))
		}
	}
	for text := range shared {
		if len(text) > longest {
			t.Fatalf("a text of %d bytes", len(text))
		}
	}
}
