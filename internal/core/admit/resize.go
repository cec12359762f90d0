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

// The messages of resizes that a node never accepts, as the field has them.
const (
	messageStatic   = "In-place resize of static-pods is not supported"
	messageSwap     = "In-place resize of containers with swap is not supported."
	messageQOS      = "Pod QOS Class may not change as a result of resizing"
	messagePinned   = "Resize is infeasible for Guaranteed Pods alongside %s policy %q"
	messageGate     = "Resize of %s is off on this node: feature gate %s"
	messageCapacity = "Node didn't have enough capacity: %s, requested: %d, capacity: %d"
)

// ResizeInput is what the acceptance of a resize depends on.
type ResizeInput struct {
	// Pod is the pod as its spec has it, Allocated the same with the resources that the node has accepted before.
	Pod, Allocated *v1.Pod
	// Others are the pods that hold a part of the node, without Pod, with their allocated resources.
	Others []*v1.Pod
	Node   *v1.Node
	// LimitedSwap: burstable pods may swap in proportion to their memory request, which cannot follow a resize.
	LimitedSwap bool
	// PinnedCPUs and PinnedMemory: the static policies of cpuManagerPolicy and memoryManagerPolicy are on.
	PinnedCPUs, PinnedMemory bool
	Gates                    ResizeGates
}

// ResizeGates are the feature gates that are off and leave a part of a pod without resizes; by default all are on.
type ResizeGates struct {
	// NoPodLevel: the resources of the pod as a whole stay (InPlacePodLevelResourcesVerticalScaling).
	NoPodLevel bool
	// NoInitContainers: those of init containers that are not sidecars stay (InPlacePodVerticalScalingInitContainers).
	NoInitContainers bool
}

// ResizeResult is the answer: OK, or Reason Infeasible (never on this node) or Deferred (when others leave), and why. For
// a critical pod, those in Preempt have to leave for it: what it asks for is admitted as a new critical pod is.
type ResizeResult struct {
	OK      bool
	Reason  string
	Message string
	Preempt []*v1.Pod
}

// Resize decides whether the node accepts what a running pod asks for now. A resize that asks for no more than the pod
// has fits always.
func Resize(in ResizeInput) ResizeResult {
	infeasible := func(format string, args ...any) ResizeResult {
		return ResizeResult{Reason: v1.PodReasonInfeasible, Message: fmt.Sprintf(format, args...)}
	}
	class := crispec.QOS(in.Allocated)
	switch {
	case pod.IsStatic(in.Pod):
		return infeasible(messageStatic)
	case crispec.SpecQOS(in.Pod) != class:
		return infeasible(messageQOS)
	case in.Gates.NoPodLevel && !equality.Semantic.DeepEqual(in.Pod.Spec.Resources, in.Allocated.Spec.Resources):
		return infeasible(messageGate, "pod-level resources", "InPlacePodLevelResourcesVerticalScaling")
	case in.Gates.NoInitContainers && in.initChanges():
		return infeasible(messageGate, "init containers", "InPlacePodVerticalScalingInitContainers")
	case in.LimitedSwap && class == v1.PodQOSBurstable && in.swapChanges():
		return infeasible(messageSwap)
	case in.PinnedCPUs && class == v1.PodQOSGuaranteed && in.changes(v1.ResourceCPU):
		return infeasible(messagePinned, "CPU Manager", "static")
	case in.PinnedMemory && class == v1.PodQOSGuaranteed && in.changes(v1.ResourceMemory):
		return infeasible(messagePinned, "Memory Manager", "Static")
	}
	grows := in.grows()
	if len(grows) == 0 {
		return ResizeResult{OK: true}
	}
	requests := requestsOf(in.Pod)
	for _, name := range grows {
		if asked, capacity := amount(name, requests[name]), amount(name, in.Node.Status.Allocatable[name]); asked > capacity {
			return infeasible(messageCapacity, name, asked, capacity)
		}
	}
	short := slices.DeleteFunc(Shortages(in.Pod, in.Others, in.Node), func(s Shortage) bool { return !slices.Contains(grows, s.Resource) })
	if len(short) == 0 {
		return ResizeResult{OK: true}
	}
	r := ResizeResult{Reason: v1.PodReasonDeferred, Message: short[0].String()}
	if crispec.IsCritical(in.Pod) {
		r.Preempt = (&Input{Pod: in.Pod, Others: in.Others, Node: in.Node}).makeRoom(short).Preempt
	}
	return r
}

// grows lists the resources of which the pod asks for more.
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

// Requests are those of a whole pod, with its overhead.
func Requests(p *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// Grows reports whether a resize asks for more of anything than the pod has.
func Grows(p, allocated *v1.Pod) bool {
	in := ResizeInput{Pod: p, Allocated: allocated}
	return len(in.grows()) > 0
}

// changes reports whether any container asks for another amount of a resource.
func (in *ResizeInput) changes(name v1.ResourceName) bool {
	was := requestsByName(in.Allocated, name)
	for c, n := range requestsByName(in.Pod, name) {
		if was[c] != n {
			return true
		}
	}
	return false
}

// initChanges reports whether an init container that is no sidecar asks for other resources.
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

// swapChanges: the memory request of a container changes that does not restart for it.
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
