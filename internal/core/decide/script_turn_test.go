package decide_test

import (
	"slices"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/replay"
)

// part reads a part of an exported turn. The next other command puts all parts into the world.
func (s *story) part(f []string) {
	if s.parts == nil {
		s.parts = &decide.Input{}
	}
	if len(f) != 3 {
		s.Fail("turn-of needs the name of a part and its JSON without blanks")
		return
	}
	if err := replay.ReadPart(s.parts, f[1], f[2]); err != nil {
		s.Fail("%v", err)
	}
}

// restore makes the world as it was in the exported turn.
func (s *story) restore() {
	in := s.parts
	s.parts, s.exported = nil, true
	if in.Observed == nil || in.Memory == nil || in.Policy == nil {
		s.Fail("a turn needs the parts observed, memory and policy")
		return
	}
	s.pod, s.lastGrace, s.now, s.node, s.pol = in.Pod, in.LastGrace, in.Now, in.Node, *in.Policy
	s.sandboxes, s.containers = slices.Clone(in.Observed.Sandboxes), slices.Clone(in.Observed.Containers)
	s.mem, s.saved, s.said, s.old = *in.Memory, in.Memory.Kept(), in.Probed, in.Stale
	s.hashes = map[string]string{} // the world makes the hashes of containers that it creates, so it makes those of the turn too
	for name := range in.Hashes {
		if spec := s.spec(name); spec != nil {
			s.hashes[name] = specHash(spec.Image)
		}
	}
	s.sized, s.group = len(in.Sizes) > 0, in.Memory.GroupSize
	s.vols, s.dirs = in.Memory.SetUp, in.Memory.SetUp
	for _, a := range in.InFlight {
		s.flights = append(s.flights, flight{action: a, began: in.Now, until: in.Now, pod: in.Pod})
	}
	for i := range s.containers {
		c := &s.containers[i]
		s.given[c.ID] = c.Actual
		if spec := s.spec(c.Name); spec != nil && c.SpecHash == in.Hashes[c.Name] {
			c.SpecHash = specHash(spec.Image)
		}
		r := s.record(c.Name)
		r.tried, r.ran = max(r.tried, int(c.Attempt)), true
	}
	s.observed = *in.Observed
	s.observed.Containers = slices.Clone(s.containers)
}
