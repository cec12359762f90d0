package mergepatch_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// Equal answers as equality.Semantic does, for random pods and their copies in each of which one field is another.
func TestEqualAnswersAsTheLibraryDoes(t *testing.T) {
	t.Parallel()
	equal := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		var a, other v1.Pod
		fuzzfill.Fill(&a, r)
		fuzzfill.Fill(&other, r)
		b := a.DeepCopy()
		if !mergepatch.Equal(&a, b) {
			t.Fatalf("seed %d: a pod differs from its copy", seed)
		}
		for range 20 {
			b = a.DeepCopy()
			exchange(reflect.ValueOf(b).Elem(), reflect.ValueOf(&other).Elem(), r)
			got, want := mergepatch.Equal(&a, b), equality.Semantic.DeepEqual(&a, b)
			if got != want {
				t.Errorf("seed %d: %v, want %v", seed, got, want)
			}
			if want {
				equal++
			}
		}
	}
	if equal == 0 || equal > 5000 {
		t.Errorf("%d of 6000 pairs are equal, so this test compares too little", equal)
	}
}

// exchange gives one random field of a the value of the same field of b.
func exchange(a, b reflect.Value, r *rand.Rand) {
	deeper := r.IntN(6) > 0
	switch {
	case a.Kind() == reflect.Struct && deeper && a.NumField() > 0:
		if i := r.IntN(a.NumField()); a.Field(i).CanSet() {
			exchange(a.Field(i), b.Field(i), r)
			return
		}
	case a.Kind() == reflect.Pointer && deeper && !a.IsNil() && !b.IsNil():
		exchange(a.Elem(), b.Elem(), r)
		return
	case a.Kind() == reflect.Slice && deeper && a.Len() > 0 && b.Len() > 0:
		exchange(a.Index(r.IntN(a.Len())), b.Index(r.IntN(b.Len())), r)
		return
	}
	if a.CanSet() {
		a.Set(b)
	}
}

// These pairs are written in two ways and mean the same, or look the same and differ.
func TestEqualMeansTheSame(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	there := metav1.NewTime(at.In(time.FixedZone("there", 3600)))
	cpu := func(s string) v1.ResourceList { return v1.ResourceList{"cpu": resource.MustParse(s)} }
	for name, tt := range map[string]struct {
		a, b v1.PodStatus
		want bool
	}{
		"times of two zones":    {v1.PodStatus{StartTime: &at}, v1.PodStatus{StartTime: &there}, true},
		"a time and none":       {v1.PodStatus{StartTime: &at}, v1.PodStatus{}, false},
		"none and a time":       {v1.PodStatus{}, v1.PodStatus{StartTime: &at}, false},
		"quantities":            {v1.PodStatus{AllocatedResources: cpu("1")}, v1.PodStatus{AllocatedResources: cpu("1000m")}, true},
		"other quantities":      {v1.PodStatus{AllocatedResources: cpu("1")}, v1.PodStatus{AllocatedResources: cpu("1001m")}, false},
		"other names":           {v1.PodStatus{AllocatedResources: cpu("1")}, v1.PodStatus{AllocatedResources: v1.ResourceList{"memory": resource.MustParse("1")}}, false},
		"an empty map":          {v1.PodStatus{AllocatedResources: v1.ResourceList{}}, v1.PodStatus{}, true},
		"an empty list":         {v1.PodStatus{PodIPs: []v1.PodIP{}}, v1.PodStatus{}, true},
		"a list and none":       {v1.PodStatus{PodIPs: []v1.PodIP{{}}}, v1.PodStatus{}, false},
		"a longer list":         {v1.PodStatus{PodIPs: []v1.PodIP{{IP: "a"}}}, v1.PodStatus{PodIPs: []v1.PodIP{{IP: "a"}, {IP: "b"}}}, false},
		"an empty struct":       {v1.PodStatus{Resources: &v1.ResourceRequirements{}}, v1.PodStatus{}, false},
		"another order":         {v1.PodStatus{PodIPs: []v1.PodIP{{IP: "b"}, {IP: "a"}}}, v1.PodStatus{PodIPs: []v1.PodIP{{IP: "a"}, {IP: "b"}}}, false},
		"a number":              {v1.PodStatus{ObservedGeneration: 1}, v1.PodStatus{ObservedGeneration: 2}, false},
		"a bool of a container": {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Ready: true}}}, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{}}}, false},
	} {
		if got := mergepatch.Equal(&tt.a, &tt.b); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	a, b := v1.Secret{Data: map[string][]byte{"k": []byte("v")}}, v1.Secret{Data: map[string][]byte{"k": []byte("w")}}
	if mergepatch.Equal(&a, &b) || !mergepatch.Equal(&a, a.DeepCopy()) {
		t.Error("bytes are not compared")
	}
}

// BenchmarkEqual compares the status of an ordinary pod with its copy.
func BenchmarkEqual(b *testing.B) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := &v1.PodStatus{Phase: v1.PodRunning, StartTime: &at, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", Image: "app:1", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}}}}}
	for _, t := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: at})
	}
	other := s.DeepCopy()
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			equality.Semantic.DeepEqual(s, other)
		}
	})
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mergepatch.Equal(s, other)
		}
	})
}
