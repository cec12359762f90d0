package admit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// The messages of resizes that a node never accepts; tools compare these texts.
const (
	messageStatic   = "In-place resize of static-pods is not supported"
	messageSwap     = "In-place resize of containers with swap is not supported."
	messageQOS      = "Pod QOS Class may not change as a result of resizing"
	messagePinned   = "Resize is infeasible for Guaranteed Pods alongside %s policy %q"
	messageGate     = "Resize of %s is off on this node: feature gate %s"
	messageCapacity = "Node didn't have enough capacity: %s, requested: %d, capacity: %d"
)

// ResizeInput is the input of Resize.
type ResizeInput struct {
	// Pod is the pod with its new spec. Allocated is the same pod with the resources that the node has accepted before.
	Pod, Allocated *v1.Pod
	// Others are the pods that use resources of the node, without Pod, with their allocated resources.
	Others []*v1.Pod
	Node   *v1.Node
	// LimitedSwap says that burstable pods have a limit of swap that follows from their memory request. A resize cannot change that
	// limit, so a resize that changes the memory request of such a container is infeasible.
	LimitedSwap bool
	// PinnedCPUs and PinnedMemory say that the static policies of cpuManagerPolicy and memoryManagerPolicy are on.
	PinnedCPUs, PinnedMemory bool
	Gates                    ResizeGates
}

// ResizeGates holds the feature gates that exclude parts of a pod from resizes if they are off; by default all are on.
type ResizeGates struct {
	// NoPodLevel forbids changes of the pod-level resources (InPlacePodLevelResourcesVerticalScaling).
	NoPodLevel bool
	// NoInitContainers forbids changes of init containers that are not sidecars
	// (InPlacePodVerticalScalingInitContainers).
	NoInitContainers bool
}

// ResizeResult is the answer of Resize: OK, or the reason Infeasible (never possible on this node) or Deferred (possible when other pods
// have ended), with a message. For the resize of a critical pod, Preempt lists the pods that must end first, as Result.Preempt does for a
// new critical pod.
type ResizeResult struct {
	OK      bool
	Reason  string
	Message string
	// Detail is the reason in one word, for metrics. For Infeasible it is one of the constants below, for Deferred it is the
	// scarce resource.
	Detail  string
	Preempt []*v1.Pod
}

// These values of Detail are for infeasible resizes. They are upstream's names where upstream's kubelet has the same case.
const (
	whyStatic   = "static_pod"
	whyQOS      = "qos_class"
	whyPodLevel = "plr_feature_gate_off"
	whyInit     = "init_containers_feature_gate_off"
	whySwap     = "swap_limitation"
	whyCPUs     = "guaranteed_pod_cpu_manager_static_policy"
	whyMemory   = "guaranteed_pod_memory_manager_static_policy"
	whyCapacity = "insufficient_node_allocatable"
)

// Resize decides whether the node accepts the new resources of a running pod. A resize that requests no more of any resource than
// before needs no free resources on the node.
func Resize(in ResizeInput) ResizeResult {
	infeasible := func(detail, format string, args ...any) ResizeResult {
		return ResizeResult{Reason: v1.PodReasonInfeasible, Detail: detail, Message: fmt.Sprintf(format, args...)}
	}
	class := crispec.QOS(in.Allocated)
	switch {
	case pod.IsStatic(in.Pod):
		return infeasible(whyStatic, messageStatic)
	case crispec.SpecQOS(in.Pod) != class:
		return infeasible(whyQOS, messageQOS)
	case in.Gates.NoPodLevel && !equality.Semantic.DeepEqual(in.Pod.Spec.Resources, in.Allocated.Spec.Resources):
		return infeasible(whyPodLevel, messageGate, "pod-level resources", "InPlacePodLevelResourcesVerticalScaling")
	case in.Gates.NoInitContainers && in.initChanges():
		return infeasible(whyInit, messageGate, "init containers", "InPlacePodVerticalScalingInitContainers")
	case in.LimitedSwap && class == v1.PodQOSBurstable && in.swapChanges():
		return infeasible(whySwap, messageSwap)
	case in.PinnedCPUs && class == v1.PodQOSGuaranteed && in.changes(v1.ResourceCPU):
		return infeasible(whyCPUs, messagePinned, "CPU Manager", "static")
	case in.PinnedMemory && class == v1.PodQOSGuaranteed && in.changes(v1.ResourceMemory):
		return infeasible(whyMemory, messagePinned, "Memory Manager", "Static")
	}
	grows := in.grows()
	if len(grows) == 0 {
		return ResizeResult{OK: true}
	}
	requests := requestsOf(in.Pod)
	for _, name := range grows {
		if asked, capacity := amount(name, requests[name]), amount(name, in.Node.Status.Allocatable[name]); asked > capacity {
			return infeasible(whyCapacity, messageCapacity, name, asked, capacity)
		}
	}
	short := slices.DeleteFunc(Shortages(in.Pod, in.Others, in.Node), func(s Shortage) bool { return !slices.Contains(grows, s.Resource) })
	if len(short) == 0 {
		return ResizeResult{OK: true}
	}
	r := ResizeResult{Reason: v1.PodReasonDeferred, Detail: string(short[0].Resource), Message: short[0].String()}
	if crispec.IsCritical(in.Pod) {
		r.Preempt = (&Input{Pod: in.Pod, Others: in.Others, Node: in.Node}).makeRoom(short).Preempt
	}
	return r
}

// grows lists the resources whose request has become larger.
func (in *ResizeInput) grows() []v1.ResourceName {
	var out []v1.ResourceName
	now, before := Requests(in.Pod), Requests(in.Allocated)
	for _, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		asked, had := now[name], before[name]
		if asked.Cmp(had) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// Requests returns the requests of a whole pod, with its overhead.
func Requests(p *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// Grows reports whether a resize requests more of any resource than the pod has.
func Grows(p, allocated *v1.Pod) bool {
	in := ResizeInput{Pod: p, Allocated: allocated}
	return len(in.grows()) > 0
}

// changes reports whether the resize changes any container's request of the resource name.
func (in *ResizeInput) changes(name v1.ResourceName) bool {
	was := requestsByName(in.Allocated, name)
	for c, n := range requestsByName(in.Pod, name) {
		if was[c] != n {
			return true
		}
	}
	return false
}

// initChanges reports whether the resize changes the resources of an init container that is not a sidecar.
func (in *ResizeInput) initChanges() bool {
	had := map[string]*v1.ResourceRequirements{}
	for i := range in.Allocated.Spec.InitContainers {
		c := &in.Allocated.Spec.InitContainers[i]
		had[c.Name] = &c.Resources
	}
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		if was := had[c.Name]; !pod.IsSidecar(c) && was != nil && !equality.Semantic.DeepEqual(was, &c.Resources) {
			return true
		}
	}
	return false
}

// swapChanges reports whether the resize changes the memory request of a container without a restart of that container.
func (in *ResizeInput) swapChanges() bool {
	was := requestsByName(in.Allocated, v1.ResourceMemory)
	for c := range crispec.Containers(in.Pod) {
		restarts := false
		for _, p := range c.ResizePolicy {
			restarts = restarts || p.ResourceName == v1.ResourceMemory && p.RestartPolicy == v1.RestartContainer
		}
		if !restarts && was[c.Name] != c.Resources.Requests.Memory().Value() {
			return true
		}
	}
	return false
}

func requestsByName(p *v1.Pod, name v1.ResourceName) map[string]int64 {
	out := map[string]int64{}
	for c := range crispec.Containers(p) {
		out[c.Name] = amount(name, c.Resources.Requests[name])
	}
	return out
}
