package admit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Shortage is a resource of which the node has too little for a pod. CPU is in thousandths of a CPU, other resources are in their own
// unit.
type Shortage struct {
	Resource  v1.ResourceName
	Requested int64
	Used      int64
	Capacity  int64
}

// Reason returns OutOf and the resource's name.
func (s Shortage) Reason() string { return ReasonOutOf + string(s.Resource) }

// String returns the message that upstream's kubelet gives for a resource that does not suffice.
func (s Shortage) String() string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.Resource, s.Requested, s.Used, s.Capacity)
}

// Missing returns how much of the resource must become free so that the pod fits.
func (s Shortage) Missing() int64 { return s.Requested - (s.Capacity - s.Used) }

// Shortages lists the resources of which the node has too little for the pod p in addition to the pods in others. The resource "pods"
// comes first, then cpu, memory and ephemeral-storage, then all other resources by name. Shortages ignores an extended resource that the
// node does not list, because such a resource may belong to the whole cluster and not to a node. It also checks a resize: p then has the
// new resources, and others does not contain p.
func Shortages(p *v1.Pod, others []*v1.Pod, node *v1.Node) []Shortage {
	var out []Shortage
	allocatable := node.Status.Allocatable
	if n := allocatable.Pods().Value(); int64(len(others))+1 > n {
		out = append(out, Shortage{Resource: v1.ResourcePods, Requested: 1, Used: int64(len(others)), Capacity: n})
	}
	requests := requestsOf(p)
	if len(requests) == 0 {
		return out
	}
	used := v1.ResourceList{}
	for _, o := range others {
		for name, q := range requestsOf(o) {
			if _, ok := requests[name]; ok {
				sum := used[name]
				sum.Add(q)
				used[name] = sum
			}
		}
	}
	for _, name := range inOrder(requests) {
		capacity, known := allocatable[name]
		if !known && isExtended(name) {
			continue
		}
		s := Shortage{
			Resource: name, Requested: amount(name, requests[name]),
			Used: amount(name, used[name]), Capacity: amount(name, capacity),
		}
		if s.Requested > 0 && s.Requested > s.Capacity-s.Used {
			out = append(out, s)
		}
	}
	return out
}

// requestsOf returns the requests of a pod with its overhead. It leaves out zero amounts, and resources that are neither basic (cpu,
// memory, ephemeral-storage) nor scalar.
func requestsOf(p *v1.Pod) v1.ResourceList {
	out := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(out, func(name v1.ResourceName, q resource.Quantity) bool {
		return q.IsZero() || !(isBasic(name) || isScalar(name))
	})
	return out
}

func isBasic(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// isScalar reports whether a resource is counted in whole numbers: huge pages, attachable volumes, and all names with a
// domain.
func isScalar(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), v1.ResourceAttachableVolumesPrefix) || strings.Contains(string(name), "/")
}

// isExtended reports whether a resource has a domain that is not Kubernetes' own.
func isExtended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

func inOrder(list v1.ResourceList) []v1.ResourceName {
	names := slices.Collect(maps.Keys(list))
	rank := func(n v1.ResourceName) int {
		return slices.Index([]v1.ResourceName{v1.ResourceEphemeralStorage, v1.ResourceMemory, v1.ResourceCPU}, n)
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		if d := rank(b) - rank(a); d != 0 {
			return d
		}
		return strings.Compare(string(a), string(b))
	})
	return names
}

func amount(name v1.ResourceName, q resource.Quantity) int64 {
	if name == v1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
