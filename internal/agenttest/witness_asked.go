package agenttest

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// asked sees what the agent asks of the runtime, before it is done.
func (w *Witness) asked(in any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := in.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		uid := types.UID(r.GetConfig().GetMetadata().GetUid())
		w.askedBy[uid] = w.agents
		w.mayStart(uid, "a sandbox")
	case *runtimeapi.CreateContainerRequest:
		w.mayStart(types.UID(r.GetSandboxConfig().GetMetadata().GetUid()), "container "+r.GetConfig().GetMetadata().GetName())
	case *runtimeapi.StopContainerRequest:
		if r.Timeout > 0 {
			w.termed[r.ContainerId] = true
			return
		}
		w.mustBeDead(r.ContainerId, "is killed")
	case *runtimeapi.RemoveContainerRequest:
		w.mustBeDead(r.ContainerId, "is removed")
	case *runtimeapi.StopPodSandboxRequest:
		w.sandboxMustBeDead(r.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		w.sandboxMustBeDead(r.PodSandboxId)
	}
}

func (w *Witness) mustBeDead(id, what string) {
	if c := w.containers[id]; c != nil && c.Running && !w.termed[id] {
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
func (w *Witness) mayStart(uid types.UID, what string) {
	s := w.pods[uid]
	if s == nil {
		if strings.Contains(string(uid), "-") { // a static pod's UID, which the node makes, has none
			w.broken(RuleEnding, "%s is asked for in a pod that the API never had: %s", what, uid)
		}
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
