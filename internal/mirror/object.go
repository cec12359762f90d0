package mirror

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// AnnotationOmits names the ConfigMaps and Secrets that a static pod refers to and that its mirror leaves out: the API
// server refuses mirrors that refer to them. "configmap/app,secret/key".
const AnnotationOmits = "wherry.dev/mirror-omits"

// Of is the mirror of a static pod, owned by the Node: it goes when the Node does.
func Of(static *v1.Pod, node *v1.Node) *v1.Pod {
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
	if left := withoutReferences(&m.Spec); len(left) > 0 {
		m.Annotations[AnnotationOmits] = strings.Join(left, ",")
	}
	return m
}

// omission drops from a spec what refers to ConfigMaps and Secrets.
type omission struct{ left map[string]bool }

func (o *omission) configMap(name string) { o.left["configmap/"+name] = true }
func (o *omission) secret(name string)    { o.left["secret/"+name] = true }

func withoutReferences(s *v1.PodSpec) []string {
	o := omission{left: map[string]bool{}}
	for _, r := range s.ImagePullSecrets {
		o.secret(r.Name)
	}
	s.ImagePullSecrets = nil
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
		o.configMap(e.ValueFrom.ConfigMapKeyRef.Name)
		return true
	case e.ValueFrom.SecretKeyRef != nil:
		o.secret(e.ValueFrom.SecretKeyRef.Name)
		return true
	}
	return false
}

func (o *omission) envFrom(e v1.EnvFromSource) bool {
	if e.ConfigMapRef != nil {
		o.configMap(e.ConfigMapRef.Name)
	}
	if e.SecretRef != nil {
		o.secret(e.SecretRef.Name)
	}
	return true
}

// volume reports whether a volume has to go; a projected one only loses some of its sources.
func (o *omission) volume(v *v1.Volume) bool {
	switch {
	case v.ConfigMap != nil:
		o.configMap(v.ConfigMap.Name)
		return true
	case v.Secret != nil:
		o.secret(v.Secret.SecretName)
		return true
	case v.Projected != nil:
		v.Projected.Sources = slices.DeleteFunc(v.Projected.Sources, o.projection)
		return false
	}
	if name := secretOf(v); name != "" {
		o.secret(name)
		return true
	}
	return false
}

func (o *omission) projection(p v1.VolumeProjection) bool {
	switch {
	case p.ConfigMap != nil:
		o.configMap(p.ConfigMap.Name)
		return true
	case p.Secret != nil:
		o.secret(p.Secret.Name)
		return true
	}
	return false
}

// secretOf is the Secret by which a volume of another kind is reached.
func secretOf(v *v1.Volume) string {
	var ref *v1.LocalObjectReference
	switch {
	case v.AzureFile != nil:
		return v.AzureFile.SecretName
	case v.CSI != nil:
		ref = v.CSI.NodePublishSecretRef
	case v.CephFS != nil:
		ref = v.CephFS.SecretRef
	case v.Cinder != nil:
		ref = v.Cinder.SecretRef
	case v.FlexVolume != nil:
		ref = v.FlexVolume.SecretRef
	case v.ISCSI != nil:
		ref = v.ISCSI.SecretRef
	case v.RBD != nil:
		ref = v.RBD.SecretRef
	case v.ScaleIO != nil:
		ref = v.ScaleIO.SecretRef
	case v.StorageOS != nil:
		ref = v.StorageOS.SecretRef
	}
	if ref == nil {
		return ""
	}
	return ref.Name
}
