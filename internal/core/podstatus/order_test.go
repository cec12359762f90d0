package podstatus_test

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/podstatus"
)

// If the object has the conditions in another order, the derived status has them in that order, so that it equals the status of the object.
// Conditions that the object does not have come last.
func TestConditionsHaveTheOrderOfTheObject(t *testing.T) {
	t.Parallel()
	for name, f := range cases() {
		first := podstatus.Derive(f.Input)
		if len(first.Conditions) == 0 {
			continue // the node refuses the pod
		}
		in := f.Input
		in.Pod = in.Pod.DeepCopy()
		in.Pod.Status.Conditions = slices.Clone(first.Conditions)
		slices.Reverse(in.Pod.Status.Conditions)
		in.Old = &first
		if diff := gocmp.Diff(types(in.Pod.Status.Conditions), types(podstatus.Derive(in).Conditions)); diff != "" {
			t.Errorf("%s (-object +derived):\n%s", name, diff)
		}
		in.Pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled}}
		if got := podstatus.Derive(in).Conditions; got[0].Type != v1.PodScheduled || len(got) != len(first.Conditions) {
			t.Errorf("%s: the object has only PodScheduled, the status has %v", name, got)
		}
	}
}

func types(list []v1.PodCondition) (out []v1.PodConditionType) {
	for i := range list {
		out = append(out, list[i].Type)
	}
	return out
}
