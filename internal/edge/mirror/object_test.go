package mirror

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

// The mirror leaves out references to objects that only the node has, and names them in an annotation. It keeps references to objects of
// the API. The static pod stays unchanged.
func TestOfLeavesReferencesOut(t *testing.T) {
	t.Parallel()
	static := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-n", UID: "static", Annotations: map[string]string{pod.AnnotationHash: "h", AnnotationOmits: "nothing"}},
		Spec: v1.PodSpec{
			ImagePullSecrets: []v1.LocalObjectReference{named("pull")},
			Volumes: []v1.Volume{
				{Name: "c", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: named("conf")}}},
				{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}},
				{Name: "api", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "api"}}},
				{Name: "e"},
				{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: new(named("csi"))}}},
				{Name: "iscsi", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: "iqn", SessionCHAPAuth: true, SecretRef: new(named("chap"))}}},
				{Name: "api-csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: new(named("api"))}}},
				{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
					{Secret: &v1.SecretProjection{LocalObjectReference: named("part")}}, {DownwardAPI: &v1.DownwardAPIProjection{}},
				}}}},
			},
			InitContainers: []v1.Container{{Name: "i", EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named("all")}}}}},
			Containers: []v1.Container{{
				Name:         "c",
				Env:          []v1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("one")}}}},
				VolumeMounts: []v1.VolumeMount{{Name: "c"}, {Name: "s"}, {Name: "api"}, {Name: "e"}, {Name: "p"}},
			}},
		},
	}
	before := static.DeepCopy()
	m := Of(static, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}}, func(kind, namespace, name string) bool { return namespace == "ns" && name != "api" })
	if d := cmp.Diff(before, static); d != "" {
		t.Errorf("the static pod was changed:\n%s", d)
	}
	controller := true
	want := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-n",
			Annotations: map[string]string{
				pod.AnnotationHash: "h", pod.AnnotationMirror: "h",
				AnnotationOmits: "configmap/all,configmap/conf,secret/chap,secret/csi,secret/key,secret/one,secret/part,secret/pull",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node", Controller: &controller}},
		},
		Spec: v1.PodSpec{
			Volumes: []v1.Volume{{Name: "api", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "api"}}}, {Name: "e"},
				{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}},
				{Name: "iscsi", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: "iqn"}}},
				{Name: "api-csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: new(named("api"))}}},
				{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
					Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{}}}}}}},
			InitContainers: []v1.Container{{Name: "i", EnvFrom: []v1.EnvFromSource{}}},
			Containers:     []v1.Container{{Name: "c", Env: []v1.EnvVar{{Name: "A", Value: "a"}}, VolumeMounts: []v1.VolumeMount{{Name: "api"}, {Name: "e"}, {Name: "p"}}}},
		},
	}
	if d := cmp.Diff(want, m); d != "" {
		t.Errorf("mirror (-want +got):\n%s", d)
	}
}
