package pod

import (
	"iter"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Statuses iterates over the statuses of all containers of a pod: init, main and ephemeral ones. They point into s.
func Statuses(s *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return statuses(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

// BaseStatuses iterates over the statuses of the containers that a pod was created with, which are init and main containers. They
// point into s.
func BaseStatuses(s *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return statuses(s.InitContainerStatuses, s.ContainerStatuses)
}

func statuses(lists ...[]v1.ContainerStatus) iter.Seq[*v1.ContainerStatus] {
	return func(yield func(*v1.ContainerStatus) bool) {
		for _, list := range lists {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// StatusOf returns the status of a container of any kind, by its name; nil: there is none.
func StatusOf(s *v1.PodStatus, name string) *v1.ContainerStatus {
	for st := range Statuses(s) {
		if st.Name == name {
			return st
		}
	}
	return nil
}

// BareID returns the ID that the runtime has for a container, from the ID in a status ("containerd://abc"). It returns "" for a text of
// another form.
func BareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

// IsSidecar reports whether an init container is a sidecar: one that keeps running beside the main containers
// ("init containers with an Always restart policy").
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
