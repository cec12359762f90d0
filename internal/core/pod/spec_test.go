package pod

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestSpecOf(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "init"}},
		Containers:          []v1.Container{{Name: "main"}, {Name: "side"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}},
	}}
	for name, want := range map[string]*v1.Container{
		"init": &p.Spec.InitContainers[0], "main": &p.Spec.Containers[0], "side": &p.Spec.Containers[1],
		"debug": (*v1.Container)(&p.Spec.EphemeralContainers[0].EphemeralContainerCommon), "other": nil,
	} {
		if got := SpecOf(p, name); got != want {
			t.Errorf("%s: %p, want %p", name, got, want)
		}
	}
	if c := SpecOf(nil, "main"); c != nil {
		t.Errorf("no pod has %v", c)
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for in, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, -1: 0, math.MinInt64: 0, math.MaxInt64: 9223372036 * time.Second, 9223372036: 9223372036 * time.Second, 9223372037: 9223372036 * time.Second,
	} {
		if got := Seconds(in); got != want {
			t.Errorf("%d seconds: %s, want %s", in, got, want)
		}
	}
}
