package configs

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
)

// Case is a pod whose configuration on the two agents is compared.
type Case struct {
	// Name says what the case sets: the field and its value, or for a random pod the seed.
	Name string
	Pod  *v1.Pod
	// Field is the path of the field that the case sets; "" in a random pod, which sets many fields.
	Field string
}

// Field is a field of a pod's spec with the cases that set it.
type Field struct {
	Path string
	// Left is the reason why no case sets the field (see leftOut); "" if cases set it.
	Left string
	// Cases has one case for each value of the field. The API server accepts the pods.
	Cases []Case
	// Refused is the error of the API server for the last value that it refused; "": it refused none.
	Refused string
}

// Fields returns all fields of a pod's spec. Each has the pods in which only that field is set.
func Fields() (all []Field) {
	for _, l := range leaves() {
		f := Field{Path: l.path, Left: leftOut(l.path)}
		for i, value := range l.values {
			if f.Left != "" {
				break
			}
			p := base(0)
			l.set(&p.Spec, value, nil)
			complete(&p.Spec)
			p, err := valid(p)
			if err != nil {
				f.Refused = err.Error()
				continue
			}
			f.Cases = append(f.Cases, Case{Name: fmt.Sprintf("%s, value %d", l.path, i), Pod: p, Field: l.path})
		}
		all = append(all, f)
	}
	return all
}

// Random makes random pods, in which many fields are set. The method Case makes a pod from a seed.
type Random struct{ leaves []leaf }

// NewRandom returns a Random that sets each field that the comparison can use (see leftOut).
func NewRandom() *Random {
	g := &Random{}
	for _, l := range leaves() {
		if leftOut(l.path) == "" && len(l.values) > 0 {
			g.leaves = append(g.leaves, l)
		}
	}
	return g
}

// Case makes a pod from a seed: it sets 5 to 64 fields of the base pod. It undoes each step that the API server would refuse.
func (g *Random) Case(seed uint64) Case {
	r := rand.New(rand.NewPCG(seed, 36))
	p := base(seed)
	for range 5 + r.IntN(60) {
		l := g.leaves[r.IntN(len(g.leaves))]
		next := p.DeepCopy()
		l.set(&next.Spec, l.values[r.IntN(len(l.values))], r)
		complete(&next.Spec)
		if _, refused := taken(next); refused == nil {
			p = next
		}
	}
	stored, err := valid(p)
	if err != nil {
		panic(err) // the API server accepted the pod after each step, and the base pod is a constant
	}
	return Case{Name: fmt.Sprintf("seed %d", seed), Pod: stored}
}

// Plain returns the base pod, to which every other case adds fields.
func Plain() Case {
	p, err := valid(base(0))
	if err != nil {
		panic(err) // the pod is a constant
	}
	return Case{Name: "the plain pod", Pod: p}
}
