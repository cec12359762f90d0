package agenttest

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// termed is when a container was first asked to end, and the end of the time that it was given then.
type termed struct{ at, until time.Time }

// asked sees what the agent asks of the runtime, before it is done.
func (w *Witness) asked(in any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := in.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		uid := types.UID(r.GetConfig().GetMetadata().GetUid())
		w.askedBy[uid] = w.agents
		w.mayStart(r.GetConfig(), "a sandbox")
	case *runtimeapi.CreateContainerRequest:
		w.mayStart(r.GetSandboxConfig(), "container "+r.GetConfig().GetMetadata().GetName())
	case *runtimeapi.StopContainerRequest:
		w.mayStop(r.ContainerId)
		if r.Timeout > 0 {
			if _, again := w.termed[r.ContainerId]; !again {
				w.termed[r.ContainerId] = termed{time.Now(), time.Now().Add(time.Duration(r.Timeout) * time.Second)}
			}
			return
		}
		w.mustBeDead(r.ContainerId, "is killed")
	case *runtimeapi.RemoveContainerRequest:
		w.mustBeDead(r.ContainerId, "is removed")
	case *runtimeapi.StopPodSandboxRequest:
		w.mayStopSandbox(r.PodSandboxId)
		w.sandboxMustBeDead(r.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		w.sandboxMustBeDead(r.PodSandboxId)
	}
}

func (w *Witness) mustBeDead(id, what string) {
	if _, asked := w.termed[id]; asked {
		return
	}
	if c := w.containers[id]; c != nil && c.Running {
		w.broken(RuleTerm, "pod %s: container %s %s without being asked to end", c.Pod, c.Name, what)
	}
}

func (w *Witness) sandboxMustBeDead(id string) {
	for _, c := range w.containers {
		if c.Sandbox == id {
			w.mustBeDead(c.ID, "loses its sandbox")
		}
	}
}

// mayStart holds that the agent asks for nothing in a pod that it must know to be on its way out.
func (w *Witness) mayStart(c *runtimeapi.PodSandboxConfig, what string) {
	uid := types.UID(c.GetMetadata().GetUid())
	s := w.pods[uid]
	if s == nil {
		// A static pod's UID has none, where the node makes it.
		if strings.Contains(string(uid), "-") && !strings.HasSuffix(c.GetMetadata().GetName(), pod.StaticSuffix(NodeName)) {
			w.broken(RuleEnding, "%s is asked for in a pod that the API never had: %s", what, uid)
			return
		}
		w.mayStartStatic(c, what)
		return
	}
	now := time.Now()
	if s.deletedAt.IsZero() || w.down || now.Sub(w.backAt) < w.KnowsAgainWithin {
		return
	}
	if late := now.Sub(s.deletedAt); late > w.KnownWithin {
		w.broken(RuleEnding, "pod %s: %s is asked for %s after the deletion", s.pod.Name, what, late)
	}
}

// mayStop holds that a container that runs is asked to end only where the pod, its spec, or the end of something else of
// it is a reason.
func (w *Witness) mayStop(id string) {
	in := w.containers[id]
	if in == nil || !in.Running {
		return
	}
	p, touched := w.wanted(in)
	if p == nil || touched || w.ofOldSandbox(in) || newerThan(w.newest(in.UID, in.Name), in) || mayEndIt(&p.Spec, in.Name) {
		return
	}
	if p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded {
		return
	}
	if p.Spec.RestartPolicy != v1.RestartPolicyAlways && w.oneEnded(&p.Spec, in.UID) {
		return // the pod is over, or its sidecars are not needed any more
	}
	rule := RuleUncalled
	if w.statics[in.UID] != nil {
		rule = RuleStatic
	}
	w.broken(rule, "pod %s: container %s, attempt %d, is asked to end, and nothing asks for that", in.Pod, in.Name, in.Attempt)
}

// mayStopSandbox holds the same of the sandbox of a pod that never ends by itself.
func (w *Witness) mayStopSandbox(id string) {
	s := w.sandboxes[id]
	if s == nil || !s.ready {
		return
	}
	in := &Instance{UID: s.uid, Sandbox: id, Started: s.since}
	in.Namespace, in.Pod, _ = strings.Cut(s.name, "/")
	p, touched := w.wanted(in)
	if p == nil || touched || w.ofOldSandbox(in) || p.Spec.RestartPolicy != v1.RestartPolicyAlways || p.Spec.ActiveDeadlineSeconds != nil ||
		p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded {
		return
	}
	w.broken(RuleUncalled, "pod %s: its sandbox is asked to end, and nothing asks for that", in.Pod)
}

// wanted is the pod of an instance as its source has it, and whether the source has had something else since it began.
func (w *Witness) wanted(in *Instance) (p *v1.Pod, touched bool) {
	if st := w.statics[in.UID]; st != nil {
		m := w.manifests[in.Namespace+"/"+in.Pod]
		if m == nil || m.pod == nil || m.version != st.version || !m.since.Before(in.Started) {
			return nil, true
		}
		return m.pod, false
	}
	s := w.pods[in.UID]
	if s == nil {
		return nil, true
	}
	return s.pod, s.gone || s.forced || !s.deletedAt.IsZero()
}

// ofOldSandbox reports whether the instance's sandbox is not the only one of its pod, and ready.
func (w *Witness) ofOldSandbox(in *Instance) bool {
	for id, s := range w.sandboxes {
		if s.uid == in.UID && (id == in.Sandbox) != s.ready {
			return true
		}
	}
	return w.sandboxes[in.Sandbox] == nil
}

func newerThan(newest *Instance, in *Instance) bool { return newest != nil && newest.ID != in.ID }

// mayEndIt reports whether the spec of a pod gives the node reasons of its own to end a container.
func mayEndIt(s *v1.PodSpec, name string) bool {
	return s.ActiveDeadlineSeconds != nil || slices.ContainsFunc(allContainers(s), func(c v1.Container) bool {
		return c.Name == name && (c.LivenessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil && c.Lifecycle.PostStart != nil || restartsToResize(&c))
	})
}

func restartsToResize(c *v1.Container) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool { return p.RestartPolicy == v1.RestartContainer })
}

// oneEnded reports whether a container of the pod that is no sidecar has ended, for good or for bad.
func (w *Witness) oneEnded(s *v1.PodSpec, uid types.UID) bool {
	return slices.ContainsFunc(allContainers(s), func(c v1.Container) bool {
		code, ended := w.exits[string(uid)+"/"+c.Name]
		init := slices.ContainsFunc(s.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
		return ended && c.RestartPolicy == nil && (!init || code != 0)
	})
}
