package report

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// events records an event when a wait begins: the back-off after a crash or a failed pull, or a pod network that is not ready.
func (r *Report) events(t *podworker.Turn, rep *reported) {
	for i := range t.Memory.Containers {
		c := &t.Memory.Containers[i]
		key, eventType, reason, message := waitOf(t, c)
		if rep.waits[c.Name] == key {
			continue
		}
		if rep.waits == nil {
			rep.waits = map[string]string{}
		}
		rep.waits[c.Name] = key
		if key == "" {
			delete(rep.waits, c.Name)
			continue
		}
		r.cfg.Recorder.Event(t.Pod, c.Name, eventType, reason, message)
		if eventType == v1.EventTypeNormal { // the container waits for the back-off of its image pull
			r.cfg.Recorder.Event(t.Pod, c.Name, v1.EventTypeWarning, "Failed", "Error: "+podstatus.ReasonImagePullBackOff)
		}
	}
	// Other code records the events of other reasons. Only one turn's plan has each of these, so there is one event.
	if s := t.Plan.Stop; s != nil && (s.Reason == decide.ReasonDeadlineExceeded || s.Reason == decide.ReasonVolumeLimit) {
		eventType, message := s.Event()
		r.cfg.Recorder.Event(t.Pod, "", eventType, s.Reason, message)
	}
	const network = "\x00network"
	waits := t.Plan.Phase == decide.PhaseActive && !t.Node.NetworkReady && !t.Pod.Spec.HostNetwork && len(t.Observed.Sandboxes) == 0 && t.Node.NetworkMessage != ""
	if waits && rep.waits[network] == "" {
		if rep.waits == nil {
			rep.waits = map[string]string{}
		}
		rep.waits[network] = "recorded"
		r.cfg.Recorder.Event(t.Pod, "", v1.EventTypeWarning, "NetworkNotReady", "network is not ready: "+t.Node.NetworkMessage)
	} else if !waits {
		delete(rep.waits, network)
	}
}

// waitOf returns the event about the reason for which a container waits. key changes when another wait begins; "": the container
// does not wait.
func waitOf(t *podworker.Turn, c *decide.ContainerMemory) (key, eventType, reason, message string) {
	if t.Plan.Phase != decide.PhaseActive {
		return "", "", "", ""
	}
	inst := t.Observed.Newest(c.Name)
	alive := inst != nil && inst.Alive()
	switch {
	case !alive && c.PullUntil.After(t.Now) && decide.PullBacksOff(c.WaitingReason): // the failed pull has its own event
		return "pull " + c.PullUntil.String(), v1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", c.PullFailed)
	case !alive && c.CrashUntil.After(t.Now):
		return "crash " + c.CrashedID, v1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, t.Ref.Name, t.Ref.Namespace, t.Ref.UID)
	}
	return "", "", "", ""
}
