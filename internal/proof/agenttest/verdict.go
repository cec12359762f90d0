package agenttest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Idle lists containers that should run and do not. It considers only pods whose spec and annotations let them run for ever (see
// runsForEver).
func (w *World) Idle() []string {
	var out []string
	for uid, p := range w.Kube.Pods() {
		if pod.IsMirror(p) {
			uid = types.UID(p.Annotations[pod.AnnotationHash])
		}
		if p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded || !runsForEver(p) {
			continue
		}
		for i := range p.Spec.Containers {
			if c := w.Witness.Newest(uid, p.Spec.Containers[i].Name); c == nil || !c.Running {
				out = append(out, fmt.Sprintf("pod %s: container %s does not run: %v", p.Name, p.Spec.Containers[i].Name, c))
			}
		}
	}
	slices.Sort(out)
	return out
}

// runsForEver reports whether nothing in the pod's spec or annotations ends its containers or prevents their start.
func runsForEver(p *v1.Pod) bool {
	s := &p.Spec
	if s.RestartPolicy != v1.RestartPolicyAlways || s.ActiveDeadlineSeconds != nil || probesFail(p) {
		return false
	}
	for a := range p.Annotations {
		for _, ends := range []string{simcri.AnnotationRunFor, simcri.AnnotationStartError, simcri.AnnotationExitCode} {
			if _, soon := p.Annotations[simcri.AnnotationFailAttempts+strings.TrimPrefix(a, ends)]; strings.HasPrefix(a, ends) && !soon {
				return false
			}
		}
	}
	return !slices.ContainsFunc(allContainers(s), func(c v1.Container) bool {
		hook := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
		return hook || strings.Contains(c.Image, ".invalid/") || slices.Contains(c.Command, "exit 1")
	})
}

// Unresized lists resizes of main containers that are neither carried out nor refused with a reason.
func (w *World) Unresized() []string {
	var out []string
	free := int64(100_000) // the simulated machine has 100 CPUs; free is in thousandths of a CPU
	pods := w.Kube.Pods()
	for _, p := range pods {
		if p.Status.Phase == v1.PodRunning || p.Status.Phase == v1.PodPending {
			for i := range p.Spec.Containers {
				free -= accepted(p, i)
			}
		}
	}
	for uid, p := range pods {
		c := w.Witness.Newest(uid, "main")
		if p.DeletionTimestamp != nil || p.Status.Phase != v1.PodRunning || c == nil || !c.Running || p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
			continue
		}
		want, has := p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), accepted(p, 0)
		pending := ""
		for _, cond := range p.Status.Conditions {
			switch cond.Type {
			case v1.PodResizePending:
				pending = cond.Reason
			case v1.PodResizeInProgress:
				out = append(out, fmt.Sprintf("pod %s: its resize is in progress: %s", p.Name, cond.Message))
			}
		}
		switch {
		case pending == "" && has != want:
			out = append(out, fmt.Sprintf("pod %s: %dm CPU requested, %dm allocated, without a reason", p.Name, want, has))
		case pending == v1.PodReasonDeferred && want-has <= free:
			out = append(out, fmt.Sprintf("pod %s: a resize from %dm to %dm is deferred, and %dm are free", p.Name, has, want, free))
		case pending == v1.PodReasonInfeasible && want <= 100_000:
			out = append(out, fmt.Sprintf("pod %s: a resize to %dm is reported as infeasible", p.Name, want))
		}
		r, err := w.Runtime.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		if err != nil {
			continue // the container has disappeared in the meantime
		}
		if shares := r.GetStatus().GetResources().GetLinux().GetCpuShares(); shares != min(has*1024/1000, 1<<18) {
			out = append(out, fmt.Sprintf("pod %s: it has %d shares of CPU, but %dm in the API", p.Name, shares, has))
		}
	}
	slices.Sort(out)
	return out
}

// accepted returns the allocated CPU request of the i-th main container, in thousandths of a CPU.
func accepted(p *v1.Pod, i int) int64 {
	for j := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[j]; s.Name == p.Spec.Containers[i].Name && s.AllocatedResources != nil {
			return s.AllocatedResources.Cpu().MilliValue()
		}
	}
	return p.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()
}

// Unfollowed lists manifests that have no pod or no mirror, or a wrong one, and mirrors that have no manifest.
func (w *World) Unfollowed() []string {
	var out []string
	wanted := w.Witness.Manifests()
	for name, version := range wanted {
		if p := w.Kube.Pod(Namespace, strings.TrimPrefix(name, Namespace+"/")); p == nil || !pod.IsMirror(p) || p.DeletionTimestamp != nil || p.Annotations[annotationVersion] != version {
			out = append(out, fmt.Sprintf("static pod %s version %s: its mirror is not there", name, version))
		}
	}
	for _, p := range w.Kube.Pods() {
		if pod.IsMirror(p) && wanted[p.Namespace+"/"+p.Name] == "" {
			out = append(out, fmt.Sprintf("mirror %s has no manifest any more", p.Name))
		}
	}
	slices.Sort(out)
	return out
}
