package kubeclient

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// These constants bound what texts remembers.
const (
	maxTexts = 8192
	longest  = 128 // bytes of a text
)

// texts are texts that many objects have, such as the name of a namespace or of an image. A decoder makes a copy for each object.
type texts map[string]string

// share replaces s by the text of an earlier object that is equal.
func share[S ~string](t texts, s *S) {
	if *s == "" || len(*s) > longest {
		return
	}
	if have, ok := t[string(*s)]; ok {
		*s = S(have)
		return
	}
	if len(t) >= maxTexts {
		clear(t)
	}
	t[string(*s)] = string(*s)
}

// compact makes an object that was just decoded smaller. What the object says stays the same, except that managed fields are dropped: no
// node needs them, and they are half of the bytes of a small pod. The fields whose texts are shared are those that are equal in many pods.
func (t texts) compact(obj runtime.Object) {
	if m, ok := obj.(metav1.Object); ok && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	p, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	share(t, &p.Namespace)
	share(t, &p.GenerateName)
	t.pairs(p.Labels)
	t.pairs(p.Annotations)
	for i := range p.OwnerReferences {
		o := &p.OwnerReferences[i]
		share(t, &o.APIVersion)
		share(t, &o.Kind)
		share(t, &o.Name)
		share(t, &o.UID)
	}
	t.spec(&p.Spec)
	t.status(&p.Status)
}

// pairs shares the keys and values of a map.
func (t texts) pairs(m map[string]string) {
	for k, v := range m {
		share(t, &k)
		share(t, &v)
		m[k] = v
	}
}

func (t texts) spec(s *v1.PodSpec) {
	share(t, &s.NodeName)
	share(t, &s.RestartPolicy)
	share(t, &s.DNSPolicy)
	share(t, &s.ServiceAccountName)
	share(t, &s.DeprecatedServiceAccount)
	share(t, &s.SchedulerName)
	share(t, &s.PriorityClassName)
	s.Containers, s.InitContainers = clipped(s.Containers), clipped(s.InitContainers)
	for _, list := range [][]v1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			t.container(&list[i])
		}
	}
	s.Tolerations = clipped(s.Tolerations)
	for i := range s.Tolerations {
		o := &s.Tolerations[i]
		share(t, &o.Key)
		share(t, &o.Operator)
		share(t, &o.Value)
		share(t, &o.Effect)
	}
	s.Volumes = clipped(s.Volumes)
}

func (t texts) container(c *v1.Container) {
	share(t, &c.Name)
	share(t, &c.Image)
	share(t, &c.TerminationMessagePath)
	share(t, &c.TerminationMessagePolicy)
	share(t, &c.ImagePullPolicy)
	c.Env, c.VolumeMounts = clipped(c.Env), clipped(c.VolumeMounts)
	for i := range c.Env {
		share(t, &c.Env[i].Name)
		share(t, &c.Env[i].Value)
	}
	for i := range c.VolumeMounts {
		share(t, &c.VolumeMounts[i].MountPath)
	}
}

func (t texts) status(s *v1.PodStatus) {
	share(t, &s.Phase)
	share(t, &s.QOSClass)
	share(t, &s.HostIP)
	for i := range s.HostIPs {
		share(t, &s.HostIPs[i].IP)
	}
	s.Conditions = clipped(s.Conditions)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		share(t, &c.Type)
		share(t, &c.Status)
		share(t, &c.Reason)
	}
	s.ContainerStatuses, s.InitContainerStatuses = clipped(s.ContainerStatuses), clipped(s.InitContainerStatuses)
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			share(t, &list[i].Name)
			share(t, &list[i].Image)
			share(t, &list[i].ImageID)
		}
	}
}

// clipped returns s without unused capacity. Decoders append, which leaves up to half of the memory unused.
func clipped[E any](s []E) []E {
	if cap(s) == len(s) {
		return s
	}
	out := make([]E, len(s))
	copy(out, s)
	return out
}
