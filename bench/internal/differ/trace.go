package differ

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Trace records what one agent did with one pod: the calls to the runtime, and the statuses and events in the API.
type Trace struct {
	Created  time.Time // time of the first call for a sandbox; times of acts count from it
	Deleted  time.Time // time of the pod's deletion, or of the removal of its manifest
	Ended    time.Time // when the pod had left the API, or when the runner stopped watching it
	Downs    []Down    `json:",omitempty"` // times when the agent did not run
	Calls    []Call
	Statuses []Seen
	Events   map[string]Event  // all events of the pod, by type, reason and container (eventKey)
	Configs  map[string]Config // configuration of the first sandbox ("sandbox") and of the first instance of each container, by its name
	Gone     bool              // the API server no longer has the pod
	Left     []string          // what the runtime still has of the pod at the end

	events map[string]*v1.Event // the pod's events by object name; countEvents adds them up in Events
}

// Down is a time during which an agent did not run.
type Down struct{ From, To time.Time }

// Event stands for all events about a pod that have the same key (eventKey).
type Event struct {
	Count   int
	Message string    // message of the first event
	First   time.Time `json:",omitzero"` // time of the first event, in whole seconds; zero: unknown
}

// Seen is a version of the pod, with the time when the API showed it.
type Seen struct {
	At  time.Time
	Pod *v1.Pod
}

// last returns the last version of the pod in the API; nil if there was none.
func (t *Trace) last() *v1.Pod {
	if len(t.Statuses) == 0 {
		return nil
	}
	return t.Statuses[len(t.Statuses)-1].Pod
}

// starts returns the names of the containers, ordered by their first starts.
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

// instance has the requests for one instance of a container: create, start, postStart, preStop, resize, and stop with its timeout.
// Repeated equal requests appear once.
type instance struct {
	calls   []string
	at      []time.Time // when each of calls was made first
	began   time.Time   // when it was started; when it was created, if it was not started
	stopped time.Time   // when the preStop hook or StopContainer was called first; zero: never
}

// instances returns the instances of a container by attempt, without requests that came after the container had ended (Late).
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

// stops returns the containers in the order in which the agent first stopped them after the pod's deletion. Containers that were stopped
// within half a second of each other are ordered by name. It leaves out stops after which the container started again, because these do
// not belong to the pod's end.
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

// span says that one aspect of the pod in the API, such as its phase, had a value from the time since, for the duration lasts.
type span struct {
	value string
	since time.Time
	lasts time.Duration
}

// phases returns the phases of the pod in the API over time, each with its reason.
func (t *Trace) phases() []span {
	return t.spans(func(p *v1.Pod) string {
		return strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Reason)
	})
}

// condition returns the values of one pod condition in the API over time.
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

// over is a value that spans uses for a pod that no longer exists. It ends the previous value, and is not part of the result.
const over = "over"

// spans returns the values that the function of returns for the versions of the pod, each with its time. Versions for which it returns ""
// are skipped.
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

// states returns the states of a container in the API over time: waiting, running, terminated.
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

// readiness returns the fields ready and started of a container over time, while it runs.
func (t *Trace) readiness(container string) []span {
	return t.spans(func(p *v1.Pod) string {
		s := statusOf(p, container)
		if s == nil || s.State.Running == nil {
			return over
		}
		return fmt.Sprintf("%d ready=%t started=%t", s.RestartCount, s.Ready, s.Started != nil && *s.Started)
	})
}

// final returns the fields of a container's last status, without the parts that differ in every run: times and IDs.
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

// finalPod returns the fields of the pod's last status.
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

// shows returns the status of a container that the API had at the time at, counted from the pod's first sandbox; nil: none.
func (t *Trace) shows(name string, at time.Duration) (last *v1.ContainerStatus) {
	for _, s := range t.Statuses {
		if s.At.Sub(t.Created) <= at {
			last = statusOf(s.Pod, name)
		}
	}
	return last
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

// times returns when each instance was started and first stopped, counted from the pod's first sandbox. A key is the call and the instance,
// such as "StartContainer of main-0#2".
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
