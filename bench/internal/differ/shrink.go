package differ

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Smaller returns variants of c, in each of which one thing is removed: a container, a probe, a hook, an act or a play. Shrink calls it
// repeatedly to find the smallest case that still shows a difference.
func Smaller(c *Case) (all []*Case) {
	try := func(change func(*Case)) {
		n := c.clone()
		change(n)
		all = append(all, n)
	}
	for i := range c.Acts {
		try(func(n *Case) { n.Acts = slices.Delete(n.Acts, i, i+1) })
	}
	for i := range c.Spec.InitContainers {
		try(func(n *Case) { n.Spec.InitContainers = slices.Delete(n.Spec.InitContainers, i, i+1) })
	}
	if len(c.Spec.Containers) > 1 {
		for i := range c.Spec.Containers {
			name := c.Spec.Containers[i].Name
			if slices.ContainsFunc(c.Acts, func(a Act) bool { return a.Container == name }) {
				continue
			}
			try(func(n *Case) { n.Spec.Containers = slices.Delete(n.Spec.Containers, i, i+1) })
		}
	}
	for list := range 2 {
		for i := range *c.lists()[list] {
			for _, drop := range []func(*v1.Container) bool{
				func(x *v1.Container) bool { had := x.ReadinessProbe != nil; x.ReadinessProbe = nil; return had },
				func(x *v1.Container) bool { had := x.LivenessProbe != nil; x.LivenessProbe = nil; return had },
				func(x *v1.Container) bool { had := x.StartupProbe != nil; x.StartupProbe = nil; return had },
				func(x *v1.Container) bool { had := x.Lifecycle != nil; x.Lifecycle = nil; return had },
			} {
				if x := (*c.lists()[list])[i].DeepCopy(); drop(x) {
					try(func(n *Case) { drop(&(*n.lists()[list])[i]) })
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plays)) {
		plays := c.Plays[name]
		if len(plays) > 1 {
			try(func(n *Case) { n.Plays[name] = plays[:1] })
		}
		if len(plays) > 0 && plays[0].Term != TermEnds {
			try(func(n *Case) { n.Plays[name][0].Term = TermEnds })
		}
	}
	if c.Spec.ActiveDeadlineSeconds != nil {
		try(func(n *Case) { n.Spec.ActiveDeadlineSeconds = nil })
	}
	if c.Spec.ReadinessGates != nil {
		try(func(n *Case) { n.Spec.ReadinessGates = nil })
	}
	return all
}

func (c *Case) lists() [2]*[]v1.Container {
	return [2]*[]v1.Container{&c.Spec.InitContainers, &c.Spec.Containers}
}

func (c *Case) clone() *Case {
	n := *c
	n.Spec = *c.Spec.DeepCopy()
	n.Acts = slices.Clone(c.Acts)
	n.Plays = map[string][]Play{}
	for k, v := range c.Plays {
		n.Plays[k] = slices.Clone(v)
	}
	n.Name = "" // the runner gives each run a new pod name
	return &n
}

// Shrink returns a smaller case that still shows a difference of this class. It stops when no smaller case shows the difference, or at the
// time until. compare runs several cases at once and returns the differences of each.
func Shrink(c *Case, class string, until time.Time, compare func([]*Case) [][]Difference) *Case {
	for time.Now().Before(until) {
		candidates := Smaller(c)
		found := compare(candidates)
		smaller := -1
		for i := range candidates {
			if slices.ContainsFunc(found[i], func(d Difference) bool { return d.Class == class }) {
				smaller = i
				break
			}
		}
		if smaller < 0 {
			return c
		}
		c = candidates[smaller]
	}
	return c
}
