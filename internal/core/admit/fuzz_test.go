package admit

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// FuzzAdmit calls Admit with arbitrary pods and nodes. Admit must return exactly one of its three answers, and the same one again for the
// same input. It must not change its input, and must preempt only pods in Others.
func FuzzAdmit(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		in, same := anyInput(seed), anyInput(seed)
		r := Admit(in)
		if !reflect.DeepEqual(in, same) {
			t.Error("Admit wrote to its input")
		}
		if again := Admit(in); !reflect.DeepEqual(r, again) {
			t.Errorf("the same input gives another answer: %v, %v", r, again)
		}
		if r.OK != (r.Reason == "") || r.OK && (r.Message != "" || len(r.Preempt) > 0) {
			t.Errorf("an answer that is none: %+v", r)
		}
		for _, p := range r.Preempt {
			if !slices.Contains(in.Others, p) {
				t.Errorf("a pod is to make room that is not a neighbour: %v", p.Name)
			}
		}
	})
}

// FuzzResize calls Resize with arbitrary old and new resources of a pod. Resize must return exactly one answer, and the same one again for
// the same input, and must not change its input.
func FuzzResize(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		in, same := anyResize(seed), anyResize(seed)
		r := Resize(in)
		if !reflect.DeepEqual(in, same) {
			t.Error("Resize wrote to its input")
		}
		if again := Resize(in); !reflect.DeepEqual(r, again) {
			t.Errorf("the same input gives another answer: %v, %v", r, again)
		}
	})
}

func anyPod(r *rand.Rand) *v1.Pod {
	p := &v1.Pod{}
	fuzzfill.Fill(p, r)
	return p
}

func anyPods(r *rand.Rand) []*v1.Pod {
	var out []*v1.Pod
	for range r.IntN(4) {
		out = append(out, anyPod(r))
	}
	return out
}

func anyNode(r *rand.Rand) *v1.Node {
	if r.IntN(8) == 0 {
		return nil
	}
	n := &v1.Node{}
	fuzzfill.Fill(n, r)
	return n
}

func anyInput(seed uint64) Input {
	r := rand.New(rand.NewPCG(seed, 2))
	in := Input{Pod: anyPod(r), Others: anyPods(r), Node: anyNode(r), AppArmor: r.IntN(2) == 0, Kernel: []string{"", "6.1.0-18-amd64", "x"}[r.IntN(3)]}
	if r.IntN(4) == 0 {
		in.Pressure = []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}[:1+r.IntN(2)]
	}
	fuzzfill.Fill(&in.AllowedUnsafeSysctls, r)
	return in
}

func anyResize(seed uint64) ResizeInput {
	r := rand.New(rand.NewPCG(seed, 3))
	in := ResizeInput{
		Pod: anyPod(r), Others: anyPods(r), Node: &v1.Node{}, LimitedSwap: r.IntN(2) == 0, PinnedCPUs: r.IntN(2) == 0, PinnedMemory: r.IntN(2) == 0,
	}
	fuzzfill.Fill(in.Node, r)
	in.Allocated = in.Pod.DeepCopy()
	for i := range in.Allocated.Spec.Containers {
		if r.IntN(2) == 0 {
			fuzzfill.Fill(&in.Allocated.Spec.Containers[i].Resources, r)
		}
	}
	return in
}
