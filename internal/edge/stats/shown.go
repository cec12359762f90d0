package stats

import "time"

// show replaces the times of a measurement, which are instants, by what the node's clock shows then. Rates must be computed before.
func (s *Stats) show(r *reading) {
	if s.cfg.Shows == nil {
		return
	}
	done := map[*time.Time]bool{} // usages share parts
	one := func(at *time.Time) {
		if !done[at] && !at.IsZero() {
			*at = s.cfg.Shows(*at)
		}
		done[at] = true
	}
	of := func(u *usage) {
		one(&u.at)
		if u.cpu != nil {
			one(&u.cpu.at)
		}
		if u.memory != nil {
			one(&u.memory.at)
		}
		if u.swap != nil {
			one(&u.swap.at)
		}
	}
	one(&r.at)
	one(&r.began)
	of(&r.node)
	of(&r.allPods)
	for name, read := range r.system {
		one(&read.started)
		of(&read.usage)
		r.system[name] = read
	}
	for i := range r.pods {
		p := &r.pods[i]
		one(&p.created)
		of(&p.usage)
		for _, c := range append([]*containerReading{&p.sandbox}, pointers(p.containers)...) {
			one(&c.created)
			one(&c.started)
			of(&c.usage)
		}
	}
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// shown returns what the node's clock shows at an instant.
func (s *Stats) shown(t time.Time) time.Time {
	if s.cfg.Shows == nil {
		return t
	}
	return s.cfg.Shows(t)
}
