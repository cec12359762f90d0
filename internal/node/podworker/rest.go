package podworker

import (
	"reflect"
	"time"
	"unique"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// resting is a compact form of the memory of a pod that runs and has nothing to do: most fields of a Memory are about failures
// and are empty then. A memory with any other field set is kept as it is, so nothing is lost.
type resting struct {
	started     time.Time
	lastOutcome time.Time
	wait        time.Duration // the back-off of a new sandbox
	waitUntil   time.Time     // when that back-off ends
	allocated   *pod.Allocation
	containers  []restingContainer
	group       unique.Handle[pod.Size] // shared: most pods have the same sizes
	sandboxes   uint32
	knows       bool // sandboxes is known
	grouped     bool // group is known
	setUp       bool
}

// restingContainer is a container that was started once and has not ended.
type restingContainer struct {
	name, id             string
	size                 unique.Handle[pod.Size]
	image                unique.Handle[heldImage] // of many pods the same
	attempts             uint32
	pulled, sized, given bool
	knows                bool // attempts is known
	started, ready       bool
	kind                 pod.Kind
	place                uint16
}

// heldImage is an image by the name that was asked for, and by what the runtime calls it.
type heldImage struct{ asked, ref string }

// rest returns the compact form of a memory, or nil if that form would lose anything.
func rest(m *decide.Memory) *resting {
	r := &resting{
		started: m.StartTime, lastOutcome: m.LastOutcome, allocated: m.Allocated, sandboxes: m.SandboxAttempt, knows: m.SandboxAttemptKnown, setUp: m.SetUp,
	}
	if len(m.Retry) == 1 {
		r.wait, r.waitUntil = m.Retry[0].Delay, m.Retry[0].Until
	}
	r.group, r.grouped = unique.Make(m.GroupSize), m.GroupSized
	if len(m.Containers) > 0 {
		r.containers = make([]restingContainer, len(m.Containers))
	}
	for i := range m.Containers {
		c := &m.Containers[i]
		r.containers[i] = restingContainer{
			name: c.Name, size: unique.Make(c.Size), image: unique.Make(heldImage{c.PulledImage, c.ImageRef}), id: c.ProbedID, attempts: c.HighestAttempt,
			pulled: c.Pulled, knows: c.AttemptKnown, started: c.Started, ready: c.Ready, sized: c.SizedID != "", given: c.SizeGiven,
			kind: c.Kind, place: c.Place,
		}
	}
	whole := *m // an empty list counts as nil
	if len(m.Retry) == 0 {
		whole.Retry = nil
	}
	if len(m.StoppedSandboxes) == 0 {
		whole.StoppedSandboxes = nil
	}
	if !reflect.DeepEqual(r.memory(), &whole) {
		return nil
	}
	return r
}

// memory returns the memory that rest compacted.
func (r *resting) memory() *decide.Memory {
	m := &decide.Memory{
		Admitted: true, StartTime: r.started, LastOutcome: r.lastOutcome, Allocated: r.allocated,
		GroupSize: r.group.Value(), GroupSized: r.grouped, SandboxAttempt: r.sandboxes, SandboxAttemptKnown: r.knows, SetUp: r.setUp,
	}
	if r.wait != 0 {
		m.Retry = []decide.Retry{{Op: pod.OpRunSandbox, Delay: r.wait, Until: r.waitUntil}}
	}
	if len(r.containers) > 0 {
		m.Containers = make([]decide.ContainerMemory, len(r.containers))
	}
	for i := range r.containers {
		c := &r.containers[i]
		image := c.image.Value()
		m.Containers[i] = decide.ContainerMemory{
			Name: c.name, Size: c.size.Value(), PulledImage: image.asked, ImageRef: image.ref, ProbedID: c.id, HighestAttempt: c.attempts,
			Pulled: c.pulled, AttemptKnown: c.knows, Started: c.started, Ready: c.ready, SizeGiven: c.given,
			Kind: c.kind, Place: c.place,
		}
		if c.sized {
			m.Containers[i].SizedID = c.id
		}
	}
	return m
}

// settle frees the state that a pod at rest does not need.
func (w *Worker) settle() {
	w.work = nil // a later turn derives it again
	if r := rest(w.memory); r != nil {
		w.rest, w.memory = r, nil
	}
}

// rouse undoes settle.
func (w *Worker) rouse() {
	if w.work == nil {
		w.work = &work{}
	}
	switch {
	case w.rest != nil:
		w.memory, w.rest = w.rest.memory(), nil
	case w.memory == nil:
		w.memory = &decide.Memory{}
	}
}
