package stats

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// These are the least that a node without control groups has used: a machine that runs has booted. metrics-server takes a 0 for a measurement that
// failed, and then has no metrics of the node.
const (
	leastNodeCPU    = uint64(time.Millisecond)
	leastNodeMemory = uint64(4096)
)

// totals adds up the CPU time of the pods of a node without control groups, and of the node. The kernel keeps the counter of a control group when
// a group below it is gone, so a total keeps what containers, sandboxes and pods used that are gone.
type totals struct {
	mu   sync.Mutex
	node total
	pods map[types.UID]*podTotal
}

// podTotal is the total of one pod. Its parts are the pod's sandboxes if the runtime measures them, or else its containers.
type podTotal struct {
	total
	whole bool // the parts are sandboxes
}

// total is a sum of counters that never falls.
type total struct {
	parts map[string]uint64 // the last value of each part that exists, in nanoseconds
	gone  uint64            // the last values of the parts that are gone
}

// add takes the present counters of all parts and returns the sum. The parts may change from call to call. nil: the part exists, but was not
// measured. A counter that is lower than before comes from an earlier reading, and is ignored.
func (t *total) add(now map[string]*uint64) uint64 {
	for id, nanos := range t.parts {
		if _, exists := now[id]; !exists {
			t.gone += nanos
			delete(t.parts, id)
		}
	}
	if t.parts == nil {
		t.parts = map[string]uint64{}
	}
	for id, nanos := range now {
		if nanos != nil {
			t.parts[id] = max(t.parts[id], *nanos)
		}
	}
	return t.sum()
}

func (t *total) sum() uint64 {
	sum := t.gone
	for _, nanos := range t.parts {
		sum += nanos
	}
	return sum
}

// count sets the CPU counters of all pods of a reading to their totals, and returns the total of the node.
func (t *totals) count(pods []podReading) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := make(map[string]*uint64, len(pods))
	alive := make(map[types.UID]*podTotal, len(pods))
	for i := range pods {
		p := &pods[i]
		of := t.pods[p.ref.UID]
		if of == nil {
			of = &podTotal{}
		}
		alive[p.ref.UID] = of
		node[string(p.ref.UID)] = nil
		if sum, ok := of.count(p); ok {
			p.usage.cpu.nanos = sum
			node[string(p.ref.UID)] = &sum
		}
	}
	t.pods = alive
	return max(t.node.add(node), leastNodeCPU)
}

// count returns the total of a pod; false: the pod was not measured.
func (t *podTotal) count(p *podReading) (uint64, bool) {
	switch {
	case p.usage.cpu == nil:
		return 0, false
	case p.whole:
		if !t.whole { // until now its containers were the parts, and the sandbox counts them again
			t.total, t.whole = total{}, true
		}
		return t.add(map[string]*uint64{p.sandbox.id: &p.usage.cpu.nanos}), true
	case t.whole: // the runtime did not report the sandbox this time
		return t.sum(), true
	}
	parts := make(map[string]*uint64, len(p.containers))
	for i := range p.containers {
		c := &p.containers[i]
		parts[c.id] = nil
		if c.usage.cpu != nil {
			parts[c.id] = &c.usage.cpu.nanos
		}
	}
	return t.add(parts), true
}
