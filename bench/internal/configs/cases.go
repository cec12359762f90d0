package configs

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
)

// Case is a pod to compare.
type Case struct {
	// Name is the field and its value, or the seed.
	Name string
	Pod  *v1.Pod
	// Field is the field that is set; "" if many are.
	Field string
}

// Field contains the cases of one field.
type Field struct {
	Path string
	// Left is the reason why the field is not set here; "" if it is set.
	Left string
	// Cases have one value of the field each, in a pod that the API server accepts.
	Cases []Case
	// Refused is the API server's error for the last value that it refused.
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

// Random makes pods in which many fields are set.
type Random struct{ leaves []leaf }

// NewRandom returns a generator.
func NewRandom() *Random {
	g := &Random{}
	for _, l := range leaves() {
		if leftOut(l.path) == "" && len(l.values) > 0 {
			g.leaves = append(g.leaves, l)
		}
	}
	return g
}

// Case returns the pod of a seed. A change that the API server would refuse is undone.
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
		panic(err) // each step was accepted, and the base is a constant
	}
	return Case{Name: fmt.Sprintf("seed %d", seed), Pod: stored}
}

// Plain returns the pod before any field is set.
func Plain() Case {
	p, err := valid(base(0))
	if err != nil {
		panic(err) // the pod is a constant
	}
	return Case{Name: "the plain pod", Pod: p}
}
