package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind says which list of a pod's spec a container is in. Checkpoints store it as a number.
type Kind uint8

// These are the kinds. An unknown kind is KindMain too.
const (
	KindMain Kind = iota
	KindInit      // init containers, also sidecars
	KindEphemeral
)

// String returns the list's name in the API.
func (k Kind) String() string {
	switch k {
	case KindMain:
		return "containers"
	case KindInit:
		return "initContainers"
	case KindEphemeral:
		return "ephemeralContainers"
	}
	return "invalid"
}

// FieldPath returns the field path of a container of this kind, for the object reference of an event.
func (k Kind) FieldPath(container string) string { return "spec." + k.String() + "{" + container + "}" }

// KindOf returns the kind of a container, by its name, and its index in its list; false: there is no such container, or p is nil.
func KindOf(p *v1.Pod, name string) (kind Kind, place int, ok bool) {
	if p == nil {
		return KindMain, 0, false
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return KindInit, i, true
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return KindEphemeral, i, true
		}
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return KindMain, i, true
		}
	}
	return KindMain, 0, false
}

// Remnant returns a minimal pod in place of an object that no longer exists. It has the pod's names and UID and, if container is not
// empty, that one container, in the list of the spec that kind names.
func Remnant(ref Ref, kind Kind, container string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}}
	switch {
	case container == "":
	case kind == KindInit:
		p.Spec.InitContainers = []v1.Container{{Name: container}}
	case kind == KindEphemeral:
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: container}}}
	default:
		p.Spec.Containers = []v1.Container{{Name: container}}
	}
	return p
}

// SpecOf returns the spec of a container of any kind, by its name; for an ephemeral container, its EphemeralContainerCommon as a
// Container. The result points into p. It is nil if there is no such container, or p is nil.
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

// Seconds converts seconds of the API to a duration. A negative value counts as 0, and a huge one does not overflow.
func Seconds(s int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(s, 0), most)) * time.Second
}
