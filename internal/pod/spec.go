package pod

import v1 "k8s.io/api/core/v1"

// SpecOf returns the spec of a container of any kind, by its name; an ephemeral one as the container that it is beside its
// target. It points into p. nil: there is no such container, or no pod.
func SpecOf(p *v1.Pod, name string) *v1.Container {
	if p == nil {
		return nil
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if c := (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return c
		}
	}
	return nil
}
