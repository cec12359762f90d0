package mirror

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// AnnotationOmits names the ConfigMaps and Secrets, "configmap/app,secret/key", that a mirror leaves out: its static pod refers to them,
// and the node has them among its manifests. The API server refuses mirrors that refer to such objects, because it looks for them among
// its own objects.
const AnnotationOmits = "wherry.dev/mirror-omits"

// The kinds of objects, as AnnotationOmits names them.
const (
	KindConfigMap = "configmap"
	KindSecret    = "secret"
)

// Of returns the mirror of a static pod. The Node owns the mirror, so the mirror is deleted with the Node. local reports whether
// the node itself has an object that the pod refers to; the mirror leaves out those references, and names them in an annotation.
// It keeps all other references, so that the API server can check them.
func Of(static *v1.Pod, node *v1.Node, local func(kind, namespace, name string) bool) *v1.Pod {
	controller := true
	m := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: static.Name, Namespace: static.Namespace, Labels: maps.Clone(static.Labels), Annotations: maps.Clone(static.Annotations),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}},
		},
		Spec: *static.Spec.DeepCopy(),
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[pod.AnnotationMirror] = static.Annotations[pod.AnnotationHash]
	delete(m.Annotations, AnnotationOmits) // the mirror does not take this annotation from a manifest
	if left := withoutReferences(&m.Spec, func(kind, name string) bool { return local(kind, static.Namespace, name) }); len(left) > 0 {
		m.Annotations[AnnotationOmits] = strings.Join(left, ",")
	}
	return m
}

// omission removes from a spec the references to local ConfigMaps and Secrets.
type omission struct {
	local func(kind, name string) bool
	left  map[string]bool
}

// omits reports whether a reference is left out, and records it.
func (o *omission) omits(kind, name string) bool {
	if !o.local(kind, name) {
		return false
	}
	o.left[kind+"/"+name] = true
	return true
}

func withoutReferences(s *v1.PodSpec, local func(kind, name string) bool) []string {
	o := omission{local: local, left: map[string]bool{}}
	s.ImagePullSecrets = slices.DeleteFunc(s.ImagePullSecrets, func(r v1.LocalObjectReference) bool { return o.omits(KindSecret, r.Name) })
	if len(s.ImagePullSecrets) == 0 {
		s.ImagePullSecrets = nil
	}
	gone := map[string]bool{}
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v v1.Volume) bool {
		gone[v.Name] = o.volume(&v)
		return gone[v.Name]
	})
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			c := &list[i]
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return gone[m.Name] })
			c.Env = slices.DeleteFunc(c.Env, o.env)
			c.EnvFrom = slices.DeleteFunc(c.EnvFrom, o.envFrom)
		}
	}
	return slices.Sorted(maps.Keys(o.left))
}

func (o *omission) env(e v1.EnvVar) bool {
	switch {
	case e.ValueFrom == nil:
		return false
	case e.ValueFrom.ConfigMapKeyRef != nil:
		return o.omits(KindConfigMap, e.ValueFrom.ConfigMapKeyRef.Name)
	case e.ValueFrom.SecretKeyRef != nil:
		return o.omits(KindSecret, e.ValueFrom.SecretKeyRef.Name)
	}
	return false
}

func (o *omission) envFrom(e v1.EnvFromSource) bool {
	switch {
	case e.ConfigMapRef != nil:
		return o.omits(KindConfigMap, e.ConfigMapRef.Name)
	case e.SecretRef != nil:
		return o.omits(KindSecret, e.SecretRef.Name)
	}
	return false
}

// volume reports whether a volume must be left out. From a projected volume it removes only the sources that must be left out, and from a CSI or
// iSCSI volume only the name of the secret, with what the API server allows only together with it.
func (o *omission) volume(v *v1.Volume) bool {
	switch {
	case v.ConfigMap != nil:
		return o.omits(KindConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		return o.omits(KindSecret, v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil && o.omits(KindSecret, v.CSI.NodePublishSecretRef.Name):
		v.CSI.NodePublishSecretRef = nil
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil && o.omits(KindSecret, v.ISCSI.SecretRef.Name):
		v.ISCSI.SecretRef, v.ISCSI.DiscoveryCHAPAuth, v.ISCSI.SessionCHAPAuth = nil, false, false
	case v.Projected != nil:
		v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, o.projection)
	}
	return false
}

func (o *omission) projection(p v1.VolumeProjection) bool {
	switch {
	case p.ConfigMap != nil:
		return o.omits(KindConfigMap, p.ConfigMap.Name)
	case p.Secret != nil:
		return o.omits(KindSecret, p.Secret.Name)
	}
	return false
}
