package fleet

import (
	"fmt"
	"hash/fnv"
)

// These constants bound the number of slices of a fleet that several processes share: one slice for about nodesPerSlice nodes. More slices
// can be divided more evenly, and each costs one renewal of a lease every two shardTicks.
const (
	nodesPerSlice = 50
	leastSlices   = 16
	mostSlices    = 256
)

// slicesOf returns the number of slices of a shared fleet with this number of nodes.
func slicesOf(nodes int) int { return max(leastSlices, min(mostSlices, nodes/nodesPerSlice)) }

// sliceOf returns the slice of a node. It follows from the node's name alone, so a process knows it for each Node in the API, whatever the
// numbers of nodes are.
func sliceOf(node string, slices int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // the method never fails
	return int(h.Sum32() % uint32(slices))
}

// seedOf returns the seed of a node's random values. It is never 0, which would mean chance.
func (f *Fleet) seedOf(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node)) // the method never fails
	return (h.Sum64() ^ f.cfg.Seed) | 1
}

// member is a node that the fleet should have.
type member struct {
	group *Group
	index int // in the group, from 1
	name  string
}

// roster has all nodes that a fleet should have, by slice. It never changes; Scale makes a new one.
type roster struct {
	slices [][]member
	counts [][]int // of each slice the number of nodes of each group
	names  map[string]bool
}

// newRoster returns the roster of a fleet with want[i] nodes of group i, divided into the given number of slices. It returns an error if two
// nodes have the same name.
func newRoster(fleet string, groups []Group, want []int, slices int) (*roster, error) {
	r := &roster{slices: make([][]member, slices), counts: make([][]int, slices), names: map[string]bool{}}
	for s := range r.counts {
		r.counts[s] = make([]int, len(groups))
	}
	for i := range groups {
		g := &groups[i]
		for index := 1; index <= want[i]; index++ {
			name := g.nodeName(fleet, index)
			if r.names[name] {
				return nil, fmt.Errorf("fleet: two nodes have the name %q: change nodeName of group %s", name, g.Name)
			}
			r.names[name] = true
			s := sliceOf(name, slices)
			r.slices[s] = append(r.slices[s], member{g, index, name})
			r.counts[s][i]++
		}
	}
	return r, nil
}
