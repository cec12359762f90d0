package crispec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// systemCritical is the priority from which a pod is critical: 2 billion, "twice the highest user definable".
const systemCritical = 2_000_000_000

// QOS returns the quality of service class in the pod's status, or else the one of its spec. "Guaranteed: every container has a memory
// and CPU limit equal to its request; BestEffort: none has any; Burstable: the others." If the pod has pod-level resources, only
// these count, and not those of its containers. An empty spec.resources counts as none.
func QOS(p *v1.Pod) v1.PodQOSClass {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass
	}
	return SpecQOS(p)
}

// SpecQOS returns the class of the spec, and ignores the status.
func SpecQOS(p *v1.Pod) v1.PodQOSClass {
	all := []*v1.ResourceRequirements{p.Spec.Resources}
	if !resourcehelper.IsPodLevelResourcesSet(p) {
		all = all[:0]
		for i := range p.Spec.Containers {
			all = append(all, &p.Spec.Containers[i].Resources)
		}
		for i := range p.Spec.InitContainers {
			all = append(all, &p.Spec.InitContainers[i].Resources)
		}
	}
	some, guaranteed := false, true
	var requests, limits [2]resource.Quantity
	for _, r := range all {
		for i, name := range [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if request.Sign() > 0 {
				some = true
				requests[i].Add(request)
			}
			if limit.Sign() > 0 {
				some = true
				limits[i].Add(limit)
			} else {
				guaranteed = false
			}
		}
	}
	switch {
	case !some:
		return v1.PodQOSBestEffort
	case guaranteed && requests[0].Cmp(limits[0]) == 0 && requests[1].Cmp(limits[1]) == 0:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// IsCritical reports whether the node must keep a pod running in preference to other pods. This is so for static pods and for pods of
// a system priority. Mirrors never run, so this function is not called for them.
func IsCritical(p *v1.Pod) bool {
	return pod.IsStatic(p) || (p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical)
}
