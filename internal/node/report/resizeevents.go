package report

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// The reasons of events about resizes, as upstream's kubelet names them.
const (
	reasonResizeStarted    = "ResizeStarted"
	reasonResizeCompleted  = "ResizeCompleted"
	reasonResizeDeferred   = "ResizeDeferred"
	reasonResizeInfeasible = "ResizeInfeasible"
	reasonResizeError      = "ResizeError"
)

// resizeEvents records an event once for each step of a resize. The pod's conditions show which events an earlier agent recorded.
func (r *Report) resizeEvents(t *podworker.Turn, rep *reported) {
	now := t.Memory.Resize
	if rep.resize == nil {
		if now == (decide.Resize{}) && !t.Plan.Resized {
			return
		}
		rep.resize = recordedBefore(&t.Pod.Status)
	}
	was := *rep.resize
	*rep.resize = now
	event := func(p *v1.Pod, kind, reason, prefix string, generation int64, problem string) {
		r.cfg.Recorder.Event(p, "", kind, reason, prefix+": "+summary(p, generation, problem))
	}
	if now.Pending != "" && (was.Pending != now.Pending || was.PendingGeneration != now.PendingGeneration) {
		reason := reasonResizeDeferred
		if now.Pending == v1.PodReasonInfeasible {
			reason = reasonResizeInfeasible
		}
		event(t.Desired, v1.EventTypeWarning, reason, "Pod resize "+now.Pending, now.PendingGeneration, now.PendingMessage)
	}
	if was.Generation != now.Generation && (now.InProgress || t.Plan.Resized) {
		event(t.Pod, v1.EventTypeNormal, reasonResizeStarted, "Pod resize started", now.Generation, "")
	}
	if now.InProgress && now.Error != "" && was.Error != now.Error {
		r.resized(t.Now.Sub(now.Since), false)
		event(t.Pod, v1.EventTypeWarning, reasonResizeError, "Pod resize error", now.Generation, now.Error)
	}
	if t.Plan.Resized && !now.InProgress {
		r.resized(t.Now.Sub(now.Since), true)
		event(t.Pod, v1.EventTypeNormal, reasonResizeCompleted, "Pod resize completed", now.Generation, "")
	}
}

func (r *Report) resized(took time.Duration, ok bool) {
	if r.cfg.Resized != nil {
		r.cfg.Resized(took, ok)
	}
}

// recordedBefore returns the step of a resize that the conditions of the pod show.
func recordedBefore(st *v1.PodStatus) *decide.Resize {
	out := &decide.Resize{}
	for i := range st.Conditions {
		switch c := &st.Conditions[i]; c.Type {
		case v1.PodResizePending:
			out.Pending, out.PendingGeneration = c.Reason, c.ObservedGeneration
		case v1.PodResizeInProgress:
			out.InProgress, out.Generation = true, c.ObservedGeneration
			if c.Reason == v1.PodReasonError {
				out.Error = c.Message
			}
		}
	}
	return out
}

// summary returns the message of a resize event, in the form of upstream's kubelet: JSON with the resources of each container.
func summary(p *v1.Pod, generation int64, problem string) string {
	type sized struct {
		Name      string                  `json:"name"`
		Resources v1.ResourceRequirements `json:"resources"`
	}
	say := struct {
		Resources      *v1.ResourceRequirements `json:"resources,omitempty"`
		InitContainers []sized                  `json:"initContainers,omitempty"`
		Containers     []sized                  `json:"containers,omitempty"`
		Generation     int64                    `json:"generation"`
		Error          string                   `json:"error,omitempty"`
	}{Resources: p.Spec.Resources, Generation: generation, Error: problem}
	for i := range p.Spec.InitContainers {
		say.InitContainers = append(say.InitContainers, sized{p.Spec.InitContainers[i].Name, p.Spec.InitContainers[i].Resources})
	}
	for i := range p.Spec.Containers {
		say.Containers = append(say.Containers, sized{p.Spec.Containers[i].Name, p.Spec.Containers[i].Resources})
	}
	b, err := json.Marshal(say)
	if err != nil { // quantities and strings always encode
		return err.Error()
	}
	return string(b)
}
