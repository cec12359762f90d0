package kubeclient

import (
	"hash/maphash"
	"maps"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// These constants bound what known remembers.
const (
	maxTexts = 8192
	longest  = 128 // bytes of a text
	maxMaps  = 1024
	largest  = 32 // entries of a map
)

// known has what many objects have: texts, such as the name of a namespace or of an image, and maps, such as the labels of a workload's pods or the
// resources that their containers request. A decoder makes a copy for each object, and a small map of resources takes 700 bytes.
type known struct {
	texts   map[string]string
	seed    maphash.Seed
	labels  map[uint64]map[string]string // by a hash of the entries
	amounts map[uint64]map[v1.ResourceName]quantity.Quantity
}

func newKnown() *known {
	return &known{
		texts: map[string]string{}, seed: maphash.MakeSeed(),
		labels: map[uint64]map[string]string{}, amounts: map[uint64]map[v1.ResourceName]quantity.Quantity{},
	}
}

// share replaces s by the text of an earlier object that is equal.
func share[S ~string](t *known, s *S) {
	if *s == "" || len(*s) > longest {
		return
	}
	if have, ok := t.texts[string(*s)]; ok {
		*s = S(have)
		return
	}
	if len(t.texts) >= maxTexts {
		clear(t.texts)
	}
	t.texts[string(*s)] = string(*s)
}

// entry is an entry of a map.
type entry[K, V comparable] struct {
	key   K
	value V
}

// shareMap replaces m by the map of an earlier object that is equal. So nobody may write to a map of an object that was followed.
func shareMap[M ~map[K]V, K, V comparable](seed maphash.Seed, all map[uint64]map[K]V, m *M) {
	if len(*m) == 0 || len(*m) > largest {
		return
	}
	var sum uint64 // does not depend on the order of the entries
	for k, v := range *m {
		sum += maphash.Comparable(seed, entry[K, V]{k, v})
	}
	if have := all[sum]; maps.Equal(have, map[K]V(*m)) {
		*m = have
		return
	}
	if len(all) >= maxMaps {
		clear(all)
	}
	all[sum] = *m
}

// compact makes an object that was just decoded smaller. What the object says stays the same, except that managed fields are dropped: no
// node needs them, and they are half of the bytes of a small pod. The fields whose texts are shared are those that are equal in many pods.
func (t *known) compact(obj runtime.Object) {
	if m, ok := obj.(metav1.Object); ok && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *v1.Pod:
		t.pod(o)
	case *v1.Node:
		t.node(o)
	}
}

func (t *known) pod(p *v1.Pod) {
	share(t, &p.Namespace)
	share(t, &p.GenerateName)
	t.pairs(&p.Labels)
	t.pairs(&p.Annotations)
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

func (t *known) node(n *v1.Node) {
	t.pairs(&n.Labels)
	t.pairs(&n.Annotations)
	s := &n.Status
	t.resources(&s.Capacity)
	t.resources(&s.Allocatable)
	s.Conditions, s.Addresses, s.Images = clipped(s.Conditions), clipped(s.Addresses), clipped(s.Images)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		share(t, &c.Type)
		share(t, &c.Status)
		share(t, &c.Reason)
		share(t, &c.Message)
	}
	for i := range s.Addresses {
		share(t, &s.Addresses[i].Type)
	}
	for _, text := range []*string{
		&s.NodeInfo.KernelVersion, &s.NodeInfo.OSImage, &s.NodeInfo.ContainerRuntimeVersion, &s.NodeInfo.KubeletVersion,
		&s.NodeInfo.OperatingSystem, &s.NodeInfo.Architecture,
	} {
		share(t, text)
	}
}

// pairs shares a map, or at least its keys and values.
func (t *known) pairs(m *map[string]string) {
	long := false
	for k, v := range *m {
		share(t, &k)
		share(t, &v)
		(*m)[k] = v
		long = long || len(k) > longest || len(v) > longest
	}
	if !long {
		shareMap(t.seed, t.labels, m)
	}
}

func (t *known) resources(l *v1.ResourceList) { shareMap(t.seed, t.amounts, l) }

// requirements shares the maps of r, if r is not nil.
func (t *known) requirements(r *v1.ResourceRequirements) {
	if r != nil {
		t.resources(&r.Requests)
		t.resources(&r.Limits)
	}
}

func (t *known) spec(s *v1.PodSpec) {
	share(t, &s.NodeName)
	t.pairs(&s.NodeSelector)
	share(t, &s.RestartPolicy)
	share(t, &s.DNSPolicy)
	share(t, &s.ServiceAccountName)
	share(t, &s.DeprecatedServiceAccount)
	share(t, &s.SchedulerName)
	share(t, &s.PriorityClassName)
	t.requirements(s.Resources)
	t.resources(&s.Overhead)
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

func (t *known) container(c *v1.Container) {
	share(t, &c.Name)
	share(t, &c.Image)
	share(t, &c.TerminationMessagePath)
	share(t, &c.TerminationMessagePolicy)
	share(t, &c.ImagePullPolicy)
	t.requirements(&c.Resources)
	c.Env, c.VolumeMounts = clipped(c.Env), clipped(c.VolumeMounts)
	for i := range c.Env {
		share(t, &c.Env[i].Name)
		share(t, &c.Env[i].Value)
	}
	for i := range c.VolumeMounts {
		share(t, &c.VolumeMounts[i].MountPath)
	}
}

func (t *known) status(s *v1.PodStatus) {
	share(t, &s.Phase)
	share(t, &s.QOSClass)
	share(t, &s.HostIP)
	t.resources(&s.AllocatedResources)
	t.requirements(s.Resources)
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
			t.resources(&list[i].AllocatedResources)
			t.requirements(list[i].Resources)
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
