package differ

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Trace is what one agent did with one pod.
type Trace struct {
	Created  time.Time // when its first sandbox was requested: all offsets count from then
	Deleted  time.Time // when its deletion was first requested
	Ended    time.Time // when it had left the API, or when the runner stopped watching it
	Downs    []Down    `json:",omitempty"` // when its agent was restarted
	Calls    []Call
	Statuses []Seen
	Events   map[string]Event  // by type, reason and container; see eventKey
	Configs  map[string]Config // first configuration of the sandbox ("sandbox") and of each container, by name
	Gone     bool              // the API server no longer has the pod
	Left     []string          // what is left in the runtime at the end

	events map[string]*v1.Event // the pod's events by object name; countEvents sums them up in Events
}

// Down is a time during which an agent did not run.
type Down struct{ From, To time.Time }

// Event is the events about a pod that have one key.
type Event struct {
	Count   int
	Message string    // the message of the first one
	First   time.Time `json:",omitzero"` // when the first one happened, in whole seconds; zero: unknown
}

// Seen is a version of the pod in the API.
type Seen struct {
	At  time.Time
	Pod *v1.Pod
}

// last returns the newest version of the pod that the API had; nil if it had none.
func (t *Trace) last() *v1.Pod {
	if len(t.Statuses) == 0 {
		return nil
	}
	return t.Statuses[len(t.Statuses)-1].Pod
}

// starts returns the containers in the order in which each was first started.
func (t *Trace) starts() (out []string) {
	for _, c := range t.Calls {
		if c.Verb == "StartContainer" && !slices.Contains(out, c.Container) {
			out = append(out, c.Container)
		}
	}
	return out
}

// sandboxes returns how many sandboxes were created.
func (t *Trace) sandboxes() (n int) {
	for _, c := range t.Calls {
		if c.Verb == "RunPodSandbox" && !c.Failed {
			n++
		}
	}
	return n
}

// instance contains the requests for one instance of a container, each once: created, started, hooks, stops with their timeouts.
type instance struct {
	calls   []string
	at      []time.Time // when each of calls was first made
	began   time.Time   // when it was started, or else created
	stopped time.Time   // when it was first asked to end
}

// instances returns the instances of a container by attempt.
func (t *Trace) instances(container string) map[uint32]*instance {
	all := map[uint32]*instance{}
	for _, c := range t.Calls {
		if c.Container != container || c.Late {
			continue
		}
		in := all[c.Attempt]
		if in == nil {
			in = &instance{began: c.At}
			all[c.Attempt] = in
		}
		add := func(what string) {
			if !slices.Contains(in.calls, what) {
				in.calls, in.at = append(in.calls, what), append(in.at, c.At)
			}
		}
		switch c.Verb {
		case "CreateContainer":
			add("create")
		case "StartContainer":
			add("start")
			in.began = c.At
		case "StopContainer":
			add(fmt.Sprintf("stop(%d)", c.Timeout))
			in.stop(c.At)
		case "UpdateContainerResources":
			add("resize")
		case "ExecSync":
			if c.Command == "postStart" || c.Command == "preStop" {
				add(c.Command)
				if c.Command == "preStop" {
					in.stop(c.At)
				}
			}
		}
	}
	return all
}

func (in *instance) stop(at time.Time) {
	if in.stopped.IsZero() {
		in.stopped = at
	}
}

// stops returns the containers in the order in which the pod's deletion first asked them to end; those asked within half a second
// of each other are ordered by name. The stop of an instance that is followed by another instance does not belong to the pod's
// end.
func (t *Trace) stops() []string {
	type first struct {
		at   time.Time
		name string
	}
	var all []first
	seen := map[string]bool{}
	for _, c := range t.Calls {
		name := c.Container
		if c.Verb == "StopContainer" && !c.Late && !seen[name] && !c.At.Before(t.Deleted) && t.instances(name)[c.Attempt+1] == nil {
			seen[name] = true
			all = append(all, first{c.At, name})
		}
	}
	for i := 1; i < len(all); i++ {
		if all[i].at.Sub(all[i-1].at) < time.Second/2 {
			all[i].at = all[i-1].at
		}
	}
	slices.SortStableFunc(all, func(a, b first) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, f := range all {
		out = append(out, f.name)
	}
	return out
}

// span is a value that something in the API had, with the time and the duration.
type span struct {
	value string
	since time.Time
	lasts time.Duration
}

// phases returns the phases that the API saw.
func (t *Trace) phases() []span {
	return t.spans(func(p *v1.Pod) string {
		return strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Reason)
	})
}

// condition returns how a condition changed in the API.
func (t *Trace) condition(kind v1.PodConditionType) []span {
	return t.spans(func(p *v1.Pod) string {
		for _, c := range p.Status.Conditions {
			if c.Type == kind {
				return strings.TrimSpace(string(c.Status) + " " + c.Reason)
			}
		}
		return ""
	})
}

// over is the value that stands for "does not exist any more".
const over = "over"

// spans returns the values that something in the API had, one after the other. An empty value is skipped.
func (t *Trace) spans(of func(*v1.Pod) string) (out []span) {
	for _, s := range t.Statuses {
		now := of(s.Pod)
		if now == "" || len(out) > 0 && out[len(out)-1].value == now {
			continue
		}
		out = append(out, span{value: now, since: s.At})
	}
	for i := range out {
		until := t.Ended
		if i+1 < len(out) {
			until = out[i+1].since
		}
		out[i].lasts = until.Sub(out[i].since)
	}
	return slices.DeleteFunc(out, func(s span) bool { return s.value == over })
}

// states returns how a container waited, ran and ended in the API.
func (t *Trace) states(container string) []span {
	return t.spans(func(p *v1.Pod) string {
		s := statusOf(p, container)
		switch {
		case s == nil:
			return ""
		case s.State.Running != nil:
			return fmt.Sprintf("running %d", s.RestartCount)
		case s.State.Terminated != nil:
			return fmt.Sprintf("terminated %d %s %d", s.RestartCount, s.State.Terminated.Reason, s.State.Terminated.ExitCode)
		case s.State.Waiting != nil:
			return fmt.Sprintf("waiting %d %s", s.RestartCount, s.State.Waiting.Reason)
		}
		return ""
	})
}

// readiness returns how the fields ready and started of a running container changed in the API.
func (t *Trace) readiness(container string) []span {
	return t.spans(func(p *v1.Pod) string {
		s := statusOf(p, container)
		if s == nil || s.State.Running == nil {
			return over
		}
		return fmt.Sprintf("%d ready=%t started=%t", s.RestartCount, s.Ready, s.Started != nil && *s.Started)
	})
}

// final returns a container's last status, field by field, without the parts that differ in every run: times, IDs.
func (t *Trace) final(container string) map[string]string {
	p := t.last()
	if p == nil {
		return nil
	}
	s := statusOf(p, container)
	if s == nil {
		return map[string]string{"status": "none"}
	}
	return map[string]string{"state": state(s.State), "lastState": state(s.LastTerminationState), "restartCount": fmt.Sprint(s.RestartCount),
		"ready": fmt.Sprint(s.Ready), "started": boolOf(s.Started), "image": s.Image}
}

// finalPod returns the pod's last status, field by field.
func (t *Trace) finalPod() map[string]string {
	p := t.last()
	if p == nil {
		return nil
	}
	s := p.Status
	all := map[string]string{"phase": string(s.Phase), "reason": s.Reason, "message": s.Message, "qosClass": string(s.QOSClass),
		"observedGeneration": fmt.Sprint(s.ObservedGeneration), "startTime": fmt.Sprint(s.StartTime != nil), "hostIPs": fmt.Sprint(len(s.HostIPs)),
		"podIPs": fmt.Sprint(len(s.PodIPs)), "resize": string(s.Resize), "conditions": ""}
	var kinds []string
	for _, c := range s.Conditions {
		kinds = append(kinds, string(c.Type))
		all["condition "+string(c.Type)] = strings.TrimSpace(fmt.Sprintf("%s %s", c.Status, c.Reason))
		all["message of condition "+string(c.Type)] = c.Message
		all["observedGeneration of condition "+string(c.Type)] = fmt.Sprint(c.ObservedGeneration)
	}
	slices.Sort(kinds)
	all["conditions"] = strings.Join(kinds, " ")
	return all
}

func boolOf(b *bool) string {
	if b == nil {
		return "unset"
	}
	return fmt.Sprint(*b)
}

func state(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	case s.Terminated != nil:
		return strings.TrimSpace(fmt.Sprintf("terminated %s %d %s", s.Terminated.Reason, s.Terminated.ExitCode, s.Terminated.Message))
	}
	return "none"
}

func statusOf(p *v1.Pod, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// times returns the offsets of the starts and first stops since the pod's first sandbox.
func (t *Trace) times() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, c := range t.Calls {
		if c.Verb != "StartContainer" && c.Verb != "StopContainer" || c.Late {
			continue
		}
		name := fmt.Sprintf("%s of %s#%d", c.Verb, c.Container, c.Attempt)
		if _, ok := out[name]; !ok {
			out[name] = c.At.Sub(t.Created)
		}
	}
	return out
}
