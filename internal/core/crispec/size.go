package crispec

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Sizes returns the sizes of a pod's cgroup (an entry without a name) and of its init and main containers, or nil if nothing in
// the pod has a size.
func Sizes(p *v1.Pod) []pod.NamedSize {
	var out []pod.NamedSize
	add := func(name string, s pod.Size) {
		if s != (pod.Size{}) {
			out = append(out, pod.NamedSize{Name: name, Size: s})
		}
	}
	add("", PodSize(p))
	for i := range p.Spec.InitContainers {
		add(p.Spec.InitContainers[i].Name, ContainerSize(p, &p.Spec.InitContainers[i]))
	}
	for i := range p.Spec.Containers {
		add(p.Spec.Containers[i].Name, ContainerSize(p, &p.Spec.Containers[i]))
	}
	return out
}

// ContainerSize returns the values of ContainerResources in the units of the spec.
func ContainerSize(p *v1.Pod, c *v1.Container) pod.Size {
	cpu, memory := limitOf(p, c, v1.ResourceCPU), limitOf(p, c, v1.ResourceMemory)
	request, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		request = cpu
	}
	return pod.Size{
		CPURequest: request.MilliValue(), CPULimit: cpu.MilliValue(),
		MemoryRequest: c.Resources.Requests.Memory().Value(), MemoryLimit: memory.Value(),
	}
}

// PodSize returns the size of the pod's cgroup, including the pod's overhead. A burstable pod has a limit if all of its
// containers have one, or the pod itself. A best-effort pod has the least weight and no limit.
func PodSize(p *v1.Pod) pod.Size {
	class := QOS(p)
	if class == v1.PodQOSBestEffort {
		return pod.Size{}
	}
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	cpu, memory := true, true
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{
		ContainerFn: func(r v1.ResourceList, _ resourcehelper.ContainerType) {
			cpu = cpu && !r.Cpu().IsZero()
			memory = memory && !r.Memory().IsZero()
		},
	})
	if r := p.Spec.Resources; r != nil {
		cpu, memory = cpu || !r.Limits.Cpu().IsZero(), memory || !r.Limits.Memory().IsZero()
	}
	whole := class == v1.PodQOSGuaranteed
	s := pod.Size{CPURequest: requests.Cpu().MilliValue(), MemoryRequest: requests.Memory().Value()}
	if whole || cpu {
		s.CPULimit = limits.Cpu().MilliValue()
	}
	if whole || memory {
		s.MemoryLimit = limits.Memory().Value()
	}
	return s
}

// LeastCPULimit returns the CPU limit, in thousandths, that a container has with the smallest quota; 0: the runtime does not report the
// container's period.
func LeastCPULimit(r *runtimeapi.LinuxContainerResources) int64 {
	if period := r.GetCpuPeriod(); period > 0 {
		return minQuota * 1000 / period
	}
	return 0
}

// ActualSize returns the size of a container that a runtime reports. A field is zero if the runtime did not report it.
func ActualSize(r *runtimeapi.LinuxContainerResources) pod.Size {
	var s pod.Size
	if n := r.GetCpuShares(); n > 0 && n <= maxShares {
		s.CPURequest = (n*1000 + 1023) / 1024
	}
	if q, period := r.GetCpuQuota(), r.GetCpuPeriod(); q > 0 && period > 0 && q < 1<<50 {
		s.CPULimit = q * 1000 / period
	}
	s.MemoryLimit = max(r.GetMemoryLimitInBytes(), 0)
	return s
}
