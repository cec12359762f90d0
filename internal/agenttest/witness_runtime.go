package agenttest

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// runtimeChanged sees every change in the runtime.
func (w *Witness) runtimeChanged(e *runtimeapi.ContainerEventResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := e.PodSandboxStatus
	uid := types.UID(st.GetMetadata().GetUid())
	if e.ContainerId == st.Id && e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		delete(w.sandboxes, st.Id)
	} else {
		w.sandbox(st, uid)
	}
	there := map[string]bool{}
	for _, c := range e.ContainersStatuses {
		there[c.Id] = true
		w.container(c, st, uid)
	}
	for id, c := range w.containers {
		if c.Sandbox == st.Id && !there[id] {
			delete(w.containers, id)
		}
	}
	w.staticGone(uid)
}

func (w *Witness) sandbox(st *runtimeapi.PodSandboxStatus, uid types.UID) {
	s := w.sandboxes[st.Id]
	if s == nil {
		s = &sandboxSeen{uid: uid, name: st.Metadata.Namespace + "/" + st.Metadata.Name, since: time.Now()}
		w.sandboxes[st.Id] = s
	}
	was := s.ready
	s.ready = st.State == runtimeapi.PodSandboxState_SANDBOX_READY
	if !s.ready {
		if was {
			w.troubled(uid)
		}
		return
	}
	for id, o := range w.sandboxes {
		if id == st.Id || !o.ready {
			continue
		}
		switch {
		case o.uid == uid:
			w.broken(RuleOneInstance, "pod %s has two ready sandboxes", s.name)
		case o.name == s.name && w.askedBy[uid] == w.agents: // what a killed agent asked for comes when the runtime likes
			w.broken(RuleNames, "two pods named %s are alive at once", s.name)
		}
	}
}

func (w *Witness) container(c *runtimeapi.ContainerStatus, st *runtimeapi.PodSandboxStatus, uid types.UID) {
	in := w.containers[c.Id]
	name := c.Labels[pod.LabelContainerName]
	if in == nil {
		in = &Instance{ID: c.Id, Name: name, UID: uid, Namespace: st.Metadata.Namespace, Pod: st.Metadata.Name, Sandbox: st.Id, Attempt: c.Metadata.Attempt}
		w.containers[c.Id] = in
		key := string(uid) + "/" + name
		if most, ok := w.highest[key]; ok && in.Attempt <= most {
			w.broken(RuleAttempts, "pod %s: container %s was created with attempt %d after %d", in.Pod, name, in.Attempt, most)
		}
		w.highest[key] = in.Attempt
	}
	was := in.Running
	in.Running, in.ExitCode = c.State == runtimeapi.ContainerState_CONTAINER_RUNNING, c.ExitCode
	switch {
	case in.Running && !was:
		w.started(in)
	case was && !in.Running:
		w.ended(in)
	case c.State == runtimeapi.ContainerState_CONTAINER_EXITED: // it could not be started
		// That is an end too, to the runtime (exited, 128, StartError) and so to the agent: where nothing is started again,
		// the pod is over, and its sidecars are asked to end, with a grace period that runs from then, not from a deletion.
		w.oneIsOver(uid)
		w.exits[string(uid)+"/"+name] = in.ExitCode
	}
}

func (w *Witness) started(in *Instance) {
	w.starts++
	in.Started = time.Now()
	if key := string(in.UID) + "/" + in.Name; len(w.startsOf[key]) < maxStarts {
		w.startsOf[key] = append(w.startsOf[key], time.Now())
	}
	for _, o := range w.containers {
		if o != in && o.Running && o.UID == in.UID && o.Name == in.Name {
			w.broken(RuleOneInstance, "pod %s: container %s has two live instances, attempts %d and %d", in.Pod, in.Name, o.Attempt, in.Attempt)
		}
	}
	w.startsAll[string(in.UID)]++
	s := w.pods[in.UID]
	if s == nil || !slices.ContainsFunc(s.pod.Spec.Containers, func(c v1.Container) bool { return c.Name == in.Name }) {
		return
	}
	for i := range s.pod.Spec.InitContainers {
		init := &s.pod.Spec.InitContainers[i]
		if init.RestartPolicy == nil && !w.initDone[in.Sandbox+"/"+init.Name] {
			w.broken(RuleInits, "pod %s: container %s started before its init container %s was done: %v", in.Pod, in.Name, init.Name, w.newest(in.UID, init.Name))
		}
	}
}

func (w *Witness) troubled(uid types.UID) {
	if s := w.pods[uid]; s != nil {
		s.trouble = time.Now()
	}
	if s := w.statics[uid]; s != nil {
		s.trouble = time.Now()
	}
}

// oneIsOver notes when a container of the pod was over for the first time.
func (w *Witness) oneIsOver(uid types.UID) {
	if _, ok := w.firstEnd[uid]; !ok {
		w.firstEnd[uid] = time.Now()
	}
}

func (w *Witness) ended(in *Instance) {
	w.troubled(in.UID)
	w.oneIsOver(in.UID)
	w.exits[string(in.UID)+"/"+in.Name] = in.ExitCode
	if in.ExitCode == 0 {
		w.initDone[in.Sandbox+"/"+in.Name] = true
	}
	s := w.pods[in.UID]
	if in.ExitCode != 137 || s == nil || s.deletedAt.IsZero() || s.forced || w.endsItself(s, in.UID) {
		return
	}
	if !w.clockAt.IsZero() && !w.agentAt.Before(s.deletedAt) {
		return // this agent may know from the API alone when the end began, and its clock is another than the API's
	}
	mayKillAt := s.mayKillAt
	if t, ok := w.termed[in.ID]; ok && t.until.Before(mayKillAt) && w.endsAlone(s, in, t.at) {
		mayKillAt = t.until
	}
	if early := time.Until(mayKillAt); early > 1500*time.Millisecond {
		w.broken(RuleGrace, "pod %s: container %s was killed %s before its grace period was over", in.Pod, in.Name, early)
	}
}

// endsAlone: a container that was asked to end was on its way out, for a probe, a hook or a resize, before the agent knew of
// its pod's deletion.
func (w *Witness) endsAlone(s *podSeen, in *Instance, asked time.Time) bool {
	return asked.Before(s.deletedAt) || asked.Before(s.deletedAt.Add(w.KnownWithin)) && mayEndIt(&s.pod.Spec, in.Name)
}

// endsItself: the pod may have been on its way out for reasons of its own before it was deleted.
func (w *Witness) endsItself(p *podSeen, uid types.UID) bool {
	s := &p.pod.Spec
	over := s.RestartPolicy != v1.RestartPolicyAlways && w.firstEnd[uid].Before(p.deletedAt)
	return over || s.ActiveDeadlineSeconds != nil
}
