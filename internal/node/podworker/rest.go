package podworker

import (
	"cmp"
	"reflect"
	"slices"
	"time"
	"unique"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// resting is the compact form of a worker's memory of a pod that runs and has nothing to do. It saves 800 of the 2,048 bytes that a pod may
// take besides its object and its timeline (TestBudgetOfAnIdlePod measures 1,940 with it, 2,750 without): most fields of a Memory are
// about failures and are empty then, and others are the same for many pods. A Memory that does not fit into the compact form is kept
// as it is, so that nothing is lost.
type resting struct {
	grant       decide.Grant
	lastOutcome time.Time
	wait        time.Duration // the back-off of a new sandbox
	waitUntil   time.Time     // when that back-off ends
	containers  []restingContainer
	group       unique.Handle[decide.PodLearned]
	sandboxes   uint32
	knows       bool // the field sandboxes has a known value
	setUp       bool
}

// restingContainer is the compact form of the memory of a container and of the results of its probes.
type restingContainer struct {
	name, id string
	rest     unique.Handle[common]
}

// common is what many containers have in common, for example all of one image: everything but the name and the ID.
type common struct {
	memory       decide.ContainerMemory
	probed       decide.Probed
	sized, heard bool // which of the two had the ID
}

// rest returns the compact form of a memory and of results of probes, or nil if that form would lose anything.
func rest(m *decide.Memory, probed decide.ProbeResults) *resting {
	r := &resting{
		grant: m.Grant, lastOutcome: m.LastOutcome, group: unique.Make(m.PodLearned),
		sandboxes: m.SandboxAttempt, knows: m.SandboxAttemptKnown, setUp: m.SetUp,
	}
	if len(m.Retry) > 0 {
		r.wait, r.waitUntil = m.Retry[0].Delay, m.Retry[0].Until
	}
	if len(m.Containers) > 0 {
		r.containers = make([]restingContainer, len(m.Containers))
	}
	for i, c := range m.Containers {
		of := common{memory: c, sized: c.SizedID != ""}
		if at := slices.IndexFunc(probed, func(p decide.Probed) bool { return p.Name == c.Name }); at >= 0 {
			of.probed, of.heard = probed[at], true
		}
		r.containers[i] = restingContainer{name: c.Name, id: cmp.Or(of.probed.ID, c.SizedID)}
		of.memory.Name, of.memory.SizedID, of.probed.Name, of.probed.ID = "", "", "", ""
		r.containers[i].rest = unique.Make(of)
	}
	if again, said := r.memory(); !reflect.DeepEqual(again, m) || !sameResults(said, probed) {
		return nil
	}
	return r
}

// sameResults reports whether a and b have the same results, in any order.
func sameResults(a, b decide.ProbeResults) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p decide.Probed) bool { return !slices.Contains(b, p) })
}

// memory returns the memory and the results of probes that rest compacted.
func (r *resting) memory() (m *decide.Memory, probed decide.ProbeResults) {
	m = &decide.Memory{Grant: r.grant, PodLearned: r.group.Value()}
	m.LastOutcome, m.SetUp, m.SandboxAttempt, m.SandboxAttemptKnown = r.lastOutcome, r.setUp, r.sandboxes, r.knows
	if r.wait != 0 {
		m.Retry = []decide.Retry{{Op: pod.OpRunSandbox, Delay: r.wait, Until: r.waitUntil}}
	}
	if len(r.containers) > 0 {
		m.Containers = make([]decide.ContainerMemory, len(r.containers))
	}
	for i, c := range r.containers {
		of := c.rest.Value()
		m.Containers[i] = of.memory
		m.Containers[i].Name = c.name
		if of.sized {
			m.Containers[i].SizedID = c.id
		}
		if of.heard {
			of.probed.Name, of.probed.ID = c.name, c.id
			probed = append(probed, of.probed)
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
