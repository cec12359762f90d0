package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestSizeGrown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ a, b, want Size }{
		"each part":     {Size{100, 200, 10, 20}, Size{50, 400, 20, 10}, Size{100, 400, 20, 20}},
		"no limit wins": {Size{100, 0, 10, 20}, Size{50, 400, 20, 0}, Size{100, 0, 20, 0}},
	} {
		if got := c.a.Grown(c.b); got != c.want || c.b.Grown(c.a) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	small, big, unlimited := Size{CPULimit: 100}, Size{CPULimit: 200}, Size{}
	if small.Shrinks(big) || !big.Shrinks(small) || unlimited.Shrinks(unlimited) || !unlimited.Shrinks(big) || big.Shrinks(unlimited) {
		t.Error("Shrinks takes growing for shrinking")
	}
}

// TestSizeShown checks that Shown takes over the values that the runtime reports, except for differences that come from the kernel's
// rounding.
func TestSizeShown(t *testing.T) {
	t.Parallel()
	want := Size{CPURequest: 100, CPULimit: 200, MemoryRequest: 10, MemoryLimit: 20}
	for name, c := range map[string]struct{ actual, shown Size }{
		"nothing said": {Size{}, want},
		"rounded":      {Size{CPURequest: 101, CPULimit: 200, MemoryLimit: 20}, want},
		"before":       {Size{CPURequest: 50, CPULimit: 100, MemoryLimit: 10}, Size{50, 100, 10, 10}},
	} {
		if got := want.Shown(c.actual, 0); got != c.shown {
			t.Errorf("%s: %v, want %v", name, got, c.shown)
		}
	}
	if least := (Size{CPURequest: 1, CPULimit: 1}); least.Shown(Size{CPURequest: 2, CPULimit: 10}, 0) != least {
		t.Error("the kernel's least is taken for a difference")
	}
	if least := (Size{CPULimit: 50}); least.Shown(Size{CPULimit: 200}, 200) != least || least.Shown(Size{CPULimit: 201}, 200).CPULimit != 201 {
		t.Error("the least of a shorter period is taken for a difference, or a difference for it")
	}
	most := Size{CPURequest: 300_000}
	if most.Shown(Size{CPURequest: 256_000}, 0) != most || most.Shown(Size{CPURequest: 200_000}, 0).CPURequest != 200_000 || (Size{CPURequest: 100}).Shown(Size{CPURequest: 256_000}, 0).CPURequest != 256_000 {
		t.Error("the kernel's largest request is taken for a difference, or a difference for it")
	}
}

func TestAllocation(t *testing.T) {
	t.Parallel()
	of := func(cpu string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}
	}
	small := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Resources: of("1")}},
		Containers:     []v1.Container{{Name: "a", Resources: of("1")}, {Name: "b"}},
	}}
	a := AllocationOf(small)
	same := small.DeepCopy()
	same.Spec.Containers[0].Resources = of("1000m")
	if !a.Covers(same) || a.Apply(same) != same {
		t.Error("1 CPU is not 1000m")
	}
	var none *Allocation
	if none.Apply(small) != small {
		t.Error("no allocation changes a pod")
	}
	big := small.DeepCopy()
	big.Spec.Containers[0].Resources, big.Spec.Containers[1].Resources = of("2"), of("3")
	big.Spec.Resources = &v1.ResourceRequirements{Requests: of("9").Requests}
	before := big.DeepCopy()
	got := a.Apply(big)
	if got.Spec.Containers[0].Resources.Requests.Cpu().Value() != 1 || len(got.Spec.Containers[1].Resources.Requests) != 0 || got.Spec.Resources != nil {
		t.Errorf("applied: %+v", got.Spec)
	}
	if big.Spec.Containers[0].Resources.Requests.Cpu().Value() != before.Spec.Containers[0].Resources.Requests.Cpu().Value() || big.Spec.Resources == nil {
		t.Error("Apply changed the desired pod")
	}
	if !a.Covers(got) || a.Covers(big) {
		t.Error("Covers")
	}
}
