package decide

import (
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// next returns twice the delay, but no less than initial and no more than most.
func next(delay, initial, most time.Duration) time.Duration {
	return min(max(2*delay, initial), most)
}

// crashUntil returns when a container that ended may start again. After the first end it may start at once; after the second it waits
// Policy.BackOffInitial (10 s), then each time twice as long, up to Policy.BackOffMax ("after the initial crash Kubernetes applies an
// exponential backoff delay"). The back-off starts over when an instance has run for Policy.BackOffReset, when the container's definition
// changes, and when the node has accepted a resize of the container ("No matter the state of the container, when I resize it, it should be
// restarted, even if waiting for Back Off", kubernetes#119838).
func (t *turn) crashUntil(c *pod.Container, cm *ContainerMemory) time.Time {
	switch {
	case t.changed(c), t.resized(c, cm):
		t.plan.Crashes = append(t.plan.Crashes, Crash{Name: c.Name, ID: c.ID})
		return time.Time{}
	case cm.CrashedID == c.ID:
		return t.owed(c.Name, cm)
	}
	if cause, replaced := cm.replaced(c.ID); replaced && !crash(cause) {
		return time.Time{}
	}
	pol := t.in.Policy
	from := c.FinishedAt
	if from.IsZero() || from.After(t.in.Now) { // the runtime does not report the time of the end, or the clock was set back
		from = t.in.Now
	}
	return t.crashed(c.ID, cm, from, !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= pol.BackOffReset)
}

// crashed records that an instance of a container ended at from, and returns when the next one may start. anew makes the back-off start over.
func (t *turn) crashed(id string, cm *ContainerMemory, from time.Time, anew bool) time.Time {
	pol := t.in.Policy
	delay := min(cm.CrashDelay, pol.BackOffMax)
	if anew {
		delay = 0
	}
	crash := Crash{Name: cm.Name, ID: id, Until: from.Add(delay), Next: next(delay, pol.BackOffInitial, pol.BackOffMax)}
	t.plan.Crashes = append(t.plan.Crashes, crash)
	return crash.Until
}

// vanishedUntil returns when a container may start of which the runtime has no instance. If this agent has created one, the runtime has lost it.
// That counts as an end, with the same back-off: otherwise a runtime that loses each container right after its start would be asked for new ones
// without a pause. How long the instance ran is not known, but at least since the last action on the pod.
func (t *turn) vanishedUntil(cm *ContainerMemory) time.Time {
	id := cm.SizedID
	if id == "" || id == cm.CrashedID || id == cm.StartFailedID || t.stale || slices.ContainsFunc(t.in.Observed.Containers, func(c pod.Container) bool { return c.ID == id }) {
		return t.owed(cm.Name, cm) // the last instance was removed, for example by a RestartAllContainers rule, but its back-off goes on
	}
	if cause, replaced := cm.replaced(id); replaced && !crash(cause) {
		return time.Time{}
	}
	return t.crashed(id, cm, t.in.Now, t.in.Now.Sub(t.in.Memory.LastOutcome) >= t.in.Policy.BackOffReset)
}

// owed returns when the present back-off of a container ends. It was computed from the wall clock, because the runtime's times have no other.
// If the clock was set back since, the back-off ends no later than the next one would; without this a clock that was hours fast at boot would
// keep the containers that crashed meanwhile from starting for hours.
func (t *turn) owed(name string, cm *ContainerMemory) time.Time {
	most := t.in.Policy.BackOffMax
	if cm.CrashDelay > 0 { // otherwise a resize has ended the back-off, and the length of this one is not known
		most = min(cm.CrashDelay, most)
	}
	latest := t.in.Now.Add(most)
	if !cm.CrashUntil.After(latest) {
		return cm.CrashUntil
	}
	t.plan.Crashes = append(t.plan.Crashes, Crash{Name: name, ID: cm.CrashedID, Until: latest, Next: cm.CrashDelay})
	return latest
}

// resized reports whether the resources of an ended container differ from those that its next instance will get.
func (t *turn) resized(c *pod.Container, cm *ContainerMemory) bool {
	return cm.SizedID == c.ID && cm.Size != t.size(c.Name)
}

// forgive starts the back-off over. The container has other resources now, so its earlier crashes say nothing about the next
// start.
func (cm *ContainerMemory) forgive() { cm.CrashDelay = 0 }

// due reports whether an action on the whole pod or a sandbox, such as a set-up, may begin, because it is not in back-off after a
// failure. Otherwise due makes Plan.WakeAt ask for another decision at the end of the back-off.
func (t *turn) due(op pod.Op, id string) bool {
	for i := range t.in.Memory.Retry {
		r := &t.in.Memory.Retry[i]
		if r.Op == op && r.ID == id && t.in.Now.Before(r.Until) {
			t.wake(r.Until)
			t.wait(WhyBackOff)
			return false
		}
	}
	return true
}

// passed reports whether a back-off that lasts until at is over. If not, it makes Plan.WakeAt ask for another decision at that time.
func (t *turn) passed(at time.Time) bool {
	if t.in.Now.Before(at) {
		t.wake(at)
		t.wait(WhyBackOff)
		return false
	}
	return true
}
