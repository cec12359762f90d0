package decide_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
)

// atRest returns a pod of three running containers, with nothing to do.
func atRest(tb testing.TB) decide.Input {
	w := newWorld()
	w.pod = &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{
			{Name: "web", Image: "w"}, {Name: "log", Image: "l"}, {Name: "proxy", Image: "p"},
		}},
	}
	for _, c := range w.pod.Spec.Containers {
		w.hashes[c.Name] = specHash(c.Image)
	}
	w.inspect()
	for range 10 {
		w.turn()
		for len(w.flights) > 0 {
			w.finish(0, "")
		}
	}
	w.now = w.now.Add(time.Hour)
	w.inspect()
	in := w.input()
	if p := decide.Decide(&in); len(p.Do) > 0 || p.Why != decide.WhyRunning {
		tb.Fatalf("not at rest: %v (%s)", p.Do, p.Why)
	}
	return in
}

// The test checks that a decision about a pod with nothing to do allocates no memory, because most pods of a node are in this state.
func TestAtRestAllocatesNothing(t *testing.T) {
	in := atRest(t)
	if n := testing.AllocsPerRun(100, func() { decide.Decide(&in) }); n > 0 {
		t.Errorf("a decision at rest allocates %v times", n)
	}
}

func BenchmarkDecideAtRest(b *testing.B) {
	in := atRest(b)
	b.ReportAllocs()
	for b.Loop() {
		decide.Decide(&in)
	}
}
