package agenttest

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// runtimeChanged is called for every change in the runtime and checks the rules about it.
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
	if ip := st.GetNetwork().GetIp(); ip != "" && s.ip != ip {
		s.ip = ip
		if !slices.Contains(w.users[ip], uid) {
			w.users[ip] = append(w.users[ip], uid)
		}
	}
	s.ready = st.State == runtimeapi.PodSandboxState_SANDBOX_READY
	if !s.ready {
		return
	}
	for id, o := range w.sandboxes {
		if id == st.Id || !o.ready {
			continue
		}
		switch {
		case o.uid == uid:
			w.broken(RuleOneInstance, "pod %s has two ready sandboxes", s.name)
		case o.name == s.name && w.creator[uid] == w.agents: // not checked if an agent that was killed asked for the sandbox, because its call may complete late
			w.broken(RuleNames, "two pods named %s are alive at once", s.name)
		}
	}
}

func (w *Witness) container(c *runtimeapi.ContainerStatus, st *runtimeapi.PodSandboxStatus, uid types.UID) {
	in := w.containers[c.Id]
	name := c.Labels[pod.LabelContainerName]
	if in == nil {
		in = &Instance{ID: c.Id, Name: name, UID: uid, Namespace: st.Metadata.Namespace, Pod: st.Metadata.Name, Sandbox: st.Id,
			Attempt: c.Metadata.Attempt, Created: time.Now(), Shares: c.GetResources().GetLinux().GetCpuShares()}
		w.containers[c.Id] = in
		key := string(uid) + "/" + name
		if o := w.newestOf[key]; o != nil && in.Attempt <= o.Attempt {
			w.broken(RuleAttempts, "pod %s: container %s was created with attempt %d after %d", in.Pod, name, in.Attempt, o.Attempt)
		}
		w.newestOf[key] = in
	}
	was := in.Running
	in.Running, in.ExitCode = c.State == runtimeapi.ContainerState_CONTAINER_RUNNING, c.ExitCode
	in.Exited = c.State == runtimeapi.ContainerState_CONTAINER_EXITED
	switch {
	case in.Running && !was:
		w.started(in)
	case in.Exited: // this is also the state of a container that could not be started
		w.ended(in)
	}
	w.noteOver(uid)
}

func (w *Witness) started(in *Instance) {
	w.starts++
	in.Started = time.Now()
	w.resetProbes(in.UID, in.Name)
	if key := string(in.UID) + "/" + in.Name; len(w.startsOf[key]) < maxStarts {
		w.startsOf[key] = append(w.startsOf[key], time.Now())
	}
	for _, o := range w.containers {
		if o != in && o.Running && o.UID == in.UID && o.Name == in.Name {
			w.broken(RuleOneInstance, "pod %s: container %s has two live instances, attempts %d and %d", in.Pod, in.Name, o.Attempt, in.Attempt)
		}
	}
	w.startsAll[string(in.UID)]++
	w.startsWithVolumes(in)
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

func (w *Witness) ended(in *Instance) {
	w.exits[string(in.UID)+"/"+in.Name] = in.ExitCode
	if in.ExitCode == 0 {
		w.initDone[in.Sandbox+"/"+in.Name] = true
	}
}
