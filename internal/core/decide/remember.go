package decide

import (
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Remember stores in memory what a plan settled once and for all. It is called after each Decide, before the
// plan's actions begin; it reports whether anything that a checkpoint keeps has changed. Saying it twice changes
// nothing.
func Remember(m *Memory, plan *Plan) (kept bool) {
	if plan.Stop != nil && m.Stop == nil {
		m.Stop, kept = plan.Stop, true
	}
	if plan.Ending && (!m.StopBegan.Equal(plan.StopBegan) || m.StopGrace != plan.StopGrace) {
		m.StopBegan, m.StopGrace, kept = plan.StopBegan, plan.StopGrace, true
	}
	if plan.Finished && !m.Finished {
		m.Finished, kept = true, true
	}
	if plan.Orphaned && !m.Orphaned {
		m.Orphaned, kept = true, true
	}
	if plan.RestartingAll != m.RestartingAll {
		m.RestartedAll = m.RestartedAll || plan.RestartingAll
		m.RestartingAll, kept = plan.RestartingAll, true
	}
	if plan.Resized && m.Resize.InProgress {
		m.Resize.InProgress, m.Resize.Error, kept = false, "", true
	}
	for _, c := range plan.Crashes {
		cm := m.Ensure(c.Name)
		if cm.CrashedID == c.ID && cm.CrashUntil.Equal(c.Until) && cm.CrashDelay == c.Next {
			continue
		}
		cm.CrashedID, cm.CrashUntil, cm.CrashDelay, kept = c.ID, c.Until, c.Next, true
	}
	for _, e := range plan.Ends {
		if m.end(e.ID) == nil {
			m.Ends, kept = append(m.Ends, e), true
		}
	}
	for _, r := range plan.Replaced { // kept before it begins: the next agent may find it done
		if cm := m.Ensure(r.Name); cm.ReplacedID != r.ID || cm.ReplacedFor != r.Cause {
			cm.ReplacedID, cm.ReplacedFor, kept = r.ID, r.Cause, true
		}
	}
	return kept
}

// Kept returns the part of memory that a checkpoint keeps across agents: a copy that shares nothing that changes.
func (m *Memory) Kept() Memory {
	out := Memory{
		Admitted: m.Admitted, StopBegan: m.StopBegan, StopGrace: m.StopGrace, Finished: m.Finished,
		Orphaned: m.Orphaned, RestartingAll: m.RestartingAll, RestartedAll: m.RestartedAll, StartTime: m.StartTime,
		Allocated: m.Allocated, Resize: m.Resize, GroupSize: m.GroupSize, GroupSized: m.GroupSized,
	}
	out.Stop = m.Stop.clone()
	out.Ends = slices.Clone(m.Ends)
	for i := range m.Containers {
		c := &m.Containers[i]
		out.Containers = append(out.Containers, ContainerMemory{
			Name: c.Name, Kind: c.Kind, Place: c.Place, CrashDelay: c.CrashDelay, CrashUntil: c.CrashUntil, CrashedID: c.CrashedID,
			PostStartedID: c.PostStartedID, PostStartFailed: c.PostStartFailed,
			PreStoppedID: c.PreStoppedID, ReplacedID: c.ReplacedID, ReplacedFor: c.ReplacedFor, SizedID: c.SizedID, Size: c.Size,
		})
	}
	return out
}

// Clone returns a copy that shares nothing, for an export or a test.
func (m *Memory) Clone() Memory {
	out := *m
	out.Stop = m.Stop.clone()
	out.Ends = slices.Clone(m.Ends)
	out.Retry = slices.Clone(m.Retry)
	out.Containers = slices.Clone(m.Containers)
	out.StoppedSandboxes = slices.Clone(m.StoppedSandboxes)
	return out
}

// Next returns the memory that a pod's next life begins with: which attempts of its containers there were, and nothing else.
func (m *Memory) Next() *Memory {
	next := &Memory{}
	for i := range m.Containers {
		if c := &m.Containers[i]; c.AttemptKnown {
			cm := next.Ensure(c.Name)
			cm.HighestAttempt, cm.AttemptKnown = c.HighestAttempt, true
		}
	}
	return next
}

// Refresh makes the next turn set volumes up again (a token has to be renewed, an object changed) and forgets
// the wait of a set-up or a start that failed for want of that object.
func (m *Memory) Refresh() {
	m.SetUp = false
	m.Retry = slices.DeleteFunc(m.Retry, func(r Retry) bool { return r.Op == pod.OpSetUp })
	for i := range m.Containers {
		m.Containers[i].StartUntil = time.Time{}
	}
}

func (s *Stop) clone() *Stop {
	if s == nil {
		return nil
	}
	out := *s
	if s.Grace != nil {
		grace := *s.Grace
		out.Grace = &grace
	}
	return &out
}
