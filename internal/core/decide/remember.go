package decide

import "github.com/wherry-node/wherry/internal/core/pod"

// Remember stores in memory the decisions of a plan that later turns need. It is called after each Decide, before the plan's actions
// begin. It reports whether anything that a checkpoint keeps has changed. A second call with the same plan changes nothing.
func Remember(m *Memory, plan *Plan) (kept bool) {
	kept = m.Halt(plan.Stop)
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
	if plan.Resized && m.Resize.done() {
		kept = true
	}
	for _, c := range plan.Crashes {
		cm := m.Ensure(c.Name)
		if cm.CrashedID == c.ID && cm.CrashUntil.Equal(c.Until) && cm.CrashDelay == c.Next {
			continue
		}
		cm.CrashedID, cm.CrashUntil, cm.CrashDelay, kept = c.ID, c.Until, c.Next, true
	}
	for _, e := range plan.Ends {
		kept = m.Ends.begin(e) || kept
	}
	for _, r := range plan.Replaced { // stored before the stop begins, because the next agent may find the container already stopped
		if cm := m.Ensure(r.Name); cm.ReplacedID != r.ID || cm.ReplacedFor != r.Cause {
			cm.ReplacedID, cm.ReplacedFor, kept = r.ID, r.Cause, true
		}
	}
	for _, a := range plan.Do { // stored before the removal begins, because the next agent may find the container already gone
		if a.Op == pod.OpRemoveContainer && !plan.Ending { // of a pod that ends nothing starts again, so it needs no write
			kept = m.removes(a.ID) || kept
		}
	}
	return kept
}

// removes forgets a container that the agent itself removes, so that it does not count as one that the runtime has lost. It reports whether
// the memory had the container.
func (m *Memory) removes(id string) bool {
	for i := range m.Containers {
		if cm := &m.Containers[i]; cm.SizedID == id {
			cm.SizedID, cm.Size, cm.SizeGiven = "", pod.Size{}, false
			return true
		}
	}
	return false
}
