package differ

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

func TestASeedMakesTheSameCaseAgain(t *testing.T) {
	for seed := range uint64(300) {
		for _, generate := range []func(uint64) *Case{Generate, GenerateSpec, GenerateStatic} {
			a, b := generate(seed), generate(seed)
			if !equality.Semantic.DeepEqual(a, b) {
				t.Fatalf("seed %d makes two cases:\n%s\n%s", seed, a, b)
			}
			if a.String() != b.String() {
				t.Fatalf("seed %d: one case, two texts:\n%s\n%s", seed, a, b)
			}
		}
	}
}

func TestAKeptCaseIsTheSameCase(t *testing.T) {
	for seed := range uint64(100) {
		for _, generate := range []func(uint64) *Case{Generate, GenerateSpec, GenerateStatic} {
			c, read := generate(seed), &Case{}
			raw, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, read); err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(c, read) {
				t.Fatalf("seed %d changes when it is kept:\n%s\n%s", seed, c, read)
			}
		}
	}
}

func TestActsComeInOrderAndBeforeTheEnd(t *testing.T) {
	for seed := range uint64(1000) {
		c := Generate(seed)
		if !slices.IsSortedFunc(c.Acts, func(a, b Act) int { return int(a.At - b.At) }) {
			t.Fatalf("seed %d: acts out of order: %v", seed, c.Acts)
		}
		for _, a := range c.Acts {
			if a.At < 3*time.Second || a.At > c.For {
				t.Fatalf("seed %d: an act at %s of %s", seed, a.At, c.For)
			}
		}
	}
}

func TestSmallerCasesLackSomethingAndLeaveTheCaseAlone(t *testing.T) {
	for seed := range uint64(200) {
		c := Generate(seed)
		before := c.clone()
		for _, s := range Smaller(c) {
			if s.String() == c.String() {
				t.Fatalf("seed %d: a smaller case is the same:\n%s", seed, s)
			}
			if len(s.Spec.Containers) == 0 {
				t.Fatalf("seed %d: a case without containers", seed)
			}
		}
		if !reflect.DeepEqual(c.Plays, before.Plays) || !equality.Semantic.DeepEqual(c.Spec, before.Spec) {
			t.Fatalf("seed %d: making smaller cases changed the case", seed)
		}
	}
}

// TestShrinkFindsTheSmallestCase shrinks large cases with a comparison that shows a difference if the first main container has lifecycle
// hooks and an act deletes the pod. The result must have only one container, without probes, and only one act, the deletion.
func TestShrinkFindsTheSmallestCase(t *testing.T) {
	shows := func(c *Case) bool {
		return slices.ContainsFunc(c.Acts, func(a Act) bool { return a.Do == Delete }) && c.Spec.Containers[0].Lifecycle != nil
	}
	compare := func(cases []*Case) (found [][]Difference) {
		for _, c := range cases {
			var f []Difference
			if shows(c) {
				f = []Difference{{Class: "planted"}}
			}
			found = append(found, f)
		}
		return found
	}
	tried := 0
	for seed := range uint64(2000) {
		c := Generate(seed)
		if !shows(c) {
			continue
		}
		tried++
		small := Shrink(c, "planted", time.Now().Add(time.Hour), compare)
		if len(small.Acts) != 1 || small.Acts[0].Do != Delete || len(small.Spec.Containers) != 1 || len(small.Spec.InitContainers) != 0 || !shows(small) {
			t.Fatalf("seed %d: not the smallest case:\n%s", seed, small)
		}
		if x := small.Spec.Containers[0]; x.LivenessProbe != nil || x.ReadinessProbe != nil || x.StartupProbe != nil {
			t.Fatalf("seed %d: a probe is left:\n%s", seed, small)
		}
	}
	if tried == 0 {
		t.Fatal("no seed shows the planted difference")
	}
}
