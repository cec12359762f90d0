package crispec

import (
	"math"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/pod"
)

const (
	guaranteedOOM = -997
	bestEffortOOM = 1000
)

// OOMScoreAdj returns oom_score_adj for a container's processes: "Guaranteed: -997; BestEffort: 1000; Burstable: min(max(2, 1000 -
// (1000 * memoryRequestBytes) / machineMemoryCapacityBytes), 999)". Pods of system-node-critical have -997. A sidecar is killed no
// sooner than the pod's main containers. If the pod requests more memory than its containers together, the difference is divided
// equally among the containers.
func OOMScoreAdj(p *v1.Pod, c *v1.Container, capacity int64) int64 {
	if IsCritical(p) && p.Spec.PriorityClassName == "system-node-critical" {
		return guaranteedOOM
	}
	switch QOS(p) {
	case v1.PodQOSGuaranteed:
		return guaranteedOOM
	case v1.PodQOSBestEffort:
		return bestEffortOOM
	}
	request := c.Resources.Requests.Memory().Value()
	if isSidecar(p, c) {
		request = max(request, leastMainRequest(p))
	}
	request += podShare(p)
	if capacity <= 0 || request <= 0 {
		return bestEffortOOM - 1
	}
	request = min(request, capacity)
	part := request / max(capacity/1000, 1) // used if 1000*request does not fit into 64 bits
	if request <= math.MaxInt64/1000 {
		part = 1000 * request / capacity
	}
	return min(max(bestEffortOOM-part, bestEffortOOM+guaranteedOOM), bestEffortOOM-1)
}

func isSidecar(p *v1.Pod, c *v1.Container) bool {
	if !pod.IsSidecar(c) {
		return false
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}

func leastMainRequest(p *v1.Pod) int64 {
	least := int64(-1)
	for i := range p.Spec.Containers {
		if r := p.Spec.Containers[i].Resources.Requests.Memory().Value(); least < 0 || r < least {
			least = r
		}
	}
	return max(least, 0)
}

// podShare returns how much memory the pod requests beyond the sum of its containers, divided by the number of containers.
func podShare(p *v1.Pod) int64 {
	if p.Spec.Resources == nil {
		return 0
	}
	request, ok := p.Spec.Resources.Requests[v1.ResourceMemory]
	n := int64(len(p.Spec.Containers) + len(p.Spec.InitContainers))
	if !ok || n == 0 {
		return 0
	}
	used := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	return max(request.Value()-used.Memory().Value(), 0) / n
}
