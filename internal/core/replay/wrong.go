package replay

import (
	"fmt"
	"slices"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Wrong says what went wrong in a turn: an action failed, a container ended and has to start again, a container failed and will not
// start again, a failed probe or hook ends a container, or the node ends the pod. Wrong returns "" if nothing of this is new in this
// turn, for example in later turns that only wait. in is the input as Decide saw it: before Remember.
func Wrong(in *decide.Input, plan *decide.Plan, outcomes []pod.Outcome) string {
	for i := range outcomes {
		if o := &outcomes[i]; o.Err != nil && !o.Canceled {
			return text("%s failed (%s)", o.Action.Key(), reasonOf(o))
		}
	}
	m := in.Memory
	for _, c := range plan.Crashes {
		cm := m.Container(c.Name)
		if !c.Until.IsZero() && (cm == nil || cm.CrashedID != c.ID) {
			return text("container %s ended with exit code %d", c.Name, codeOf(in.Observed, c.ID))
		}
	}
	for _, e := range plan.Ends {
		known := slices.ContainsFunc(m.Ends, func(k decide.End) bool { return k.ID == e.ID })
		if !known && (e.Cause == pod.CauseLiveness || e.Cause == pod.CauseStartup || e.Cause == pod.CausePostStart) {
			return text("container %s is ended: %s", e.Name, e.Cause)
		}
	}
	switch {
	case plan.Stop != nil:
		return text("the node ends the pod: %s", plan.Stop.Reason)
	case m.Stop != nil && plan.Ending && m.StopBegan.IsZero():
		return text("the node ends the pod: %s", m.Stop.Reason)
	case plan.Finished && !m.Finished:
		for i := range in.Observed.Containers {
			if c := &in.Observed.Containers[i]; c.State == pod.StateExited && c.ExitCode != 0 && in.Observed.Newest(c.Name) == c {
				return text("container %s ended with exit code %d, and the pod has failed", c.Name, c.ExitCode)
			}
		}
	}
	return ""
}

// reasonOf returns the typed reason of a failed action. It never returns an error message, which could be long or come from a
// container.
func reasonOf(o *pod.Outcome) string {
	switch {
	case o.Reason != "":
		return o.Reason
	case o.Unknown:
		return "whether it happened is not known"
	}
	return "error"
}

// codeOf returns the exit code of a container.
func codeOf(o *pod.Observed, id string) int32 {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return o.Containers[i].ExitCode
		}
	}
	return pod.ExitLost
}

func text(format string, args ...any) string { return pod.TextMax(fmt.Sprintf(format, args...), 200) }
