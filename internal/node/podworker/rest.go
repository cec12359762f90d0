package podworker

import (
	"cmp"
	"slices"
	"time"
	"unique"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// resting is the compact form of a worker's memory of a pod that runs and has nothing to do. Most fields of a Memory are about failures
// and are empty then. A Memory that does not fit into the compact form is kept as it is, so that nothing is lost.
type resting struct {
	started     time.Time
	lastOutcome time.Time
	wait        time.Duration // the back-off of a new sandbox
	waitUntil   time.Time     // when that back-off ends
	allocated   *pod.Allocation
	containers  []restingContainer
	group       unique.Handle[decide.PodLearned] // pods share one value, because most pods have the same sizes
	sandboxes   uint32
	knows       bool // the field sandboxes has a known value
	setUp       bool
}

// restingContainer is a container that was started once and has not ended.
type restingContainer struct {
	name, id       string
	size           unique.Handle[pod.Size]
	image          unique.Handle[heldImage] // shared, because many pods have the same image
	attempts       uint32
	pulled, given  bool // field given: this agent gave the container its size
	sized, heard   bool // field sized: the container's size is known; field heard: the results of its probes are known
	knows          bool // the field attempts has a known value
	started, ready bool
	kind           pod.Kind
	place          uint16
}

// heldImage has the name of an image in the spec, and the runtime's reference of the image.
type heldImage struct{ asked, ref string }

// rest returns the compact form of a memory and of results of probes, or nil if that form would lose anything.
func rest(m *decide.Memory, probed decide.ProbeResults) *resting {
	r := &resting{
		started: m.StartTime, allocated: m.Allocated, lastOutcome: m.LastOutcome, group: unique.Make(m.PodLearned),
		sandboxes: m.SandboxAttempt, knows: m.SandboxAttemptKnown, setUp: m.SetUp,
	}
	busy := !m.Admitted || m.Stop != nil || len(m.Ends) > 0 || len(m.StoppedSandboxes) > 0 || m.TornDown || m.Forgotten ||
		m.Resize != decide.Resize{} || m.PodSettled != decide.PodSettled{}
	if len(m.Retry) > 0 {
		r.wait, r.waitUntil = m.Retry[0].Delay, m.Retry[0].Until
		busy = busy || r.wait == 0 || len(m.Retry) > 1 || m.Retry[0] != r.retry()
	}
	if busy {
		return nil
	}
	heard := 0
	if len(m.Containers) > 0 {
		r.containers = make([]restingContainer, len(m.Containers))
	}
	for i := range m.Containers {
		c, said := &r.containers[i], decide.Probed{}
		if at := slices.IndexFunc(probed, func(p decide.Probed) bool { return p.Name == m.Containers[i].Name }); at >= 0 {
			said = probed[at]
			heard++
		}
		*c = restContainer(&m.Containers[i], said)
		if c.memory() != m.Containers[i] || c.probed() != said {
			return nil
		}
	}
	if heard != len(probed) {
		return nil
	}
	return r
}

func restContainer(m *decide.ContainerMemory, said decide.Probed) restingContainer {
	return restingContainer{
		name: m.Name, id: cmp.Or(said.ID, m.SizedID), size: unique.Make(m.Size), image: unique.Make(heldImage{m.PulledImage, m.ImageRef}),
		attempts: m.HighestAttempt, pulled: m.Pulled, given: m.SizeGiven, sized: m.SizedID != "", heard: said.ID != "", knows: m.AttemptKnown,
		started: said.Started, ready: said.Ready, kind: m.Kind, place: m.Place,
	}
}

func (c *restingContainer) memory() decide.ContainerMemory {
	m, image := decide.ContainerMemory{Name: c.name}, c.image.Value()
	m.Kind, m.Place, m.Size = c.kind, c.place, c.size.Value()
	m.Pulled, m.PulledImage, m.ImageRef = c.pulled, image.asked, image.ref
	m.HighestAttempt, m.AttemptKnown, m.SizeGiven = c.attempts, c.knows, c.given
	if c.sized {
		m.SizedID = c.id
	}
	return m
}

func (c *restingContainer) probed() decide.Probed {
	if !c.heard {
		return decide.Probed{}
	}
	return decide.Probed{Name: c.name, ID: c.id, Started: c.started, Ready: c.ready}
}

func (r *resting) retry() decide.Retry {
	return decide.Retry{Op: pod.OpRunSandbox, Delay: r.wait, Until: r.waitUntil}
}

// memory returns the memory and the results of probes that rest compacted.
func (r *resting) memory() (*decide.Memory, decide.ProbeResults) {
	m, probed := &decide.Memory{PodLearned: r.group.Value()}, decide.ProbeResults(nil)
	m.Grant = decide.Grant{Admitted: true, StartTime: r.started, Allocated: r.allocated}
	m.LastOutcome, m.SetUp, m.SandboxAttempt, m.SandboxAttemptKnown = r.lastOutcome, r.setUp, r.sandboxes, r.knows
	if r.wait != 0 {
		m.Retry = []decide.Retry{r.retry()}
	}
	if len(r.containers) > 0 {
		m.Containers = make([]decide.ContainerMemory, len(r.containers))
	}
	for i := range r.containers {
		c := &r.containers[i]
		m.Containers[i] = c.memory()
		if c.heard {
			probed = append(probed, c.probed())
		}
	}
	return m, probed
}

// settle frees the state that a pod at rest does not need. If a later turn needs the fields of work, it computes them again.
func (w *Worker) settle() {
	probed := w.work.probed
	w.work = nil
	if w.rest = rest(w.memory, probed); w.rest != nil {
		w.memory = nil
	} else if len(probed) > 0 {
		w.work = &work{probed: probed}
	}
}

// rouse restores the state that settle freed.
func (w *Worker) rouse() {
	if w.work == nil {
		w.work = &work{}
	}
	switch {
	case w.rest != nil:
		w.memory, w.work.probed = w.rest.memory()
		w.rest = nil
	case w.memory == nil:
		w.memory = &decide.Memory{}
	}
}
