package agenttest

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cause is a reason to end a container, with the time from which the reason exists and the grace period that it gives the container.
type cause struct {
	why   string
	since time.Time
	grace time.Duration
	whole bool // the cause ends the whole pod, not only one container
}

// unknownGrace is the value of cause.grace if the grace period cannot be computed.
const unknownGrace = time.Duration(-1)

// causes returns the reasons for which an agent may end a container now, without those that no agent can know yet. The caller holds w.mu.
func (w *Witness) causes(in *Instance) (out []cause) {
	spec := w.specOf(in.UID)
	if spec == nil {
		return []cause{{"a pod that the test does not register", time.Now(), unknownGrace, false}}
	}
	grace := graceOf(spec)
	if e := w.ends[in.UID]; e != nil && (w.statics[in.UID] == nil || w.moved) {
		out = append(out, cause{"it was deleted", e.began, e.grace, true})
	}
	if c, is := w.doomed[in.ID]; is {
		out = append(out, c)
	}
	if at := w.over[in.UID]; !at.IsZero() {
		out = append(out, cause{"the pod is over", at, grace, true})
	}
	if w.replaced(in) {
		out = append(out, cause{"another container or sandbox is in its place", time.Now(), unknownGrace, false})
	}
	if st := w.statics[in.UID]; st != nil {
		if !st.overAt.IsZero() {
			out = append(out, cause{"its manifest changed", st.overAt, grace, true})
		}
		return out
	}
	return append(out, w.apiCauses(w.pods[in.UID], spec, in)...)
}

// apiCauses returns those reasons to end a container that only a pod of the API can have. s is the pod.
func (w *Witness) apiCauses(s *podSeen, spec *v1.PodSpec, in *Instance) (out []cause) {
	grace := graceOf(spec)
	if c, is := w.evicts(in.UID, spec); is {
		out = append(out, c)
	}
	if s.gone || s.forced {
		out = append(out, cause{"the pod was removed by force, which leaves it no time", s.deletedAt, 0, true})
	}
	if !s.finalAt.IsZero() {
		out = append(out, cause{"the pod's phase is final", s.finalAt, grace, true})
	}
	if d := spec.ActiveDeadlineSeconds; d != nil {
		switch at := s.startTime().Add(time.Duration(*d) * time.Second); {
		case w.moved:
			out = append(out, cause{"it has a deadline and the clock was moved", time.Now(), unknownGrace, false})
		case !time.Now().Before(at.Add(-rounding)):
			out = append(out, cause{"its deadline has passed", at, grace, true})
		}
	}
	if len(s.resizes) > 0 && w.unsaved[in.UID] && slices.ContainsFunc(spec.Containers, func(c v1.Container) bool { return restartsToResize(&c) }) {
		// A new agent reads the last checkpoint, which has the resources from before the resize if later writes failed.
		out = append(out, cause{"it was resized, and that could not be written down", time.Now(), unknownGrace, false})
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == in.Name && restartsToResize(c) {
			if since := s.resized(c, in); !since.IsZero() {
				out = append(out, cause{"it is resized", since, grace, false})
			}
		}
	}
	return out
}

// startTime returns the time from which the pod's activeDeadlineSeconds count.
func (s *podSeen) startTime() time.Time {
	if t := s.pod.Status.StartTime; t != nil {
		return t.Time
	}
	return s.added
}

// resized returns when the spec first requested other resources than those with which the container was created; zero: the spec still
// requests those. If several changes follow each other, the first one counts, because it caused the stop.
func (s *podSeen) resized(c *v1.Container, in *Instance) time.Time {
	n := len(s.resizes)
	if n == 0 {
		return time.Time{}
	}
	if i := slices.IndexFunc(s.resizes, func(at time.Time) bool { return !at.Before(in.Created) }); i >= 0 {
		return s.resizes[i]
	}
	if in.Shares != sharesOf(c.Resources.Requests.Cpu().MilliValue()) {
		return s.resizes[n-1]
	}
	return time.Time{}
}

// sharesOf returns the CPU shares (cpu.shares) for a request in thousandths of a CPU.
func sharesOf(milli int64) int64 { return min(milli*1024/1000, 1<<18) }

func restartsToResize(c *v1.Container) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool { return p.RestartPolicy == v1.RestartContainer })
}

// replaced reports whether a newer instance of the container exists, or the ready sandbox of the pod is not the one of the container.
func (w *Witness) replaced(in *Instance) bool {
	if in.Name != "" {
		if newest := w.newest(in.UID, in.Name); newest != nil && newest.ID != in.ID {
			return true
		}
	}
	for id, s := range w.sandboxes {
		if s.uid == in.UID && (id == in.Sandbox) != s.ready {
			return true
		}
	}
	return w.sandboxes[in.Sandbox] == nil
}

// noteOver records whether a pod has run to its end. It is called whenever a container starts or ends.
func (w *Witness) noteOver(uid types.UID) {
	spec := w.specOf(uid)
	if spec == nil {
		return
	}
	_, was := w.over[uid]
	switch is := w.isOver(spec, uid); {
	case is && !was:
		w.over[uid] = time.Now()
	case !is && was:
		delete(w.over, uid)
	}
}

// isOver reports whether a pod has run to its end by its restartPolicy: an init container failed and is not restarted, or all main
// containers ended and none is restarted.
func (w *Witness) isOver(spec *v1.PodSpec, uid types.UID) bool {
	if spec.RestartPolicy == v1.RestartPolicyAlways || spec.RestartPolicy == "" {
		return false
	}
	ended := func(name string) (code int32, is bool) {
		in := w.newestOf[string(uid)+"/"+name]
		if in == nil || !in.Exited {
			return 0, false
		}
		return in.ExitCode, true
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if code, is := ended(c.Name); is && code != 0 && c.RestartPolicy == nil && spec.RestartPolicy == v1.RestartPolicyNever {
			return true
		}
	}
	for i := range spec.Containers {
		code, is := ended(spec.Containers[i].Name)
		if !is || code != 0 && spec.RestartPolicy != v1.RestartPolicyNever {
			return false
		}
	}
	return true
}
