package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{ref("pull"), ref("")},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("vol")}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "vol"}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("kube-root-ca.crt")}}, {Secret: &v1.SecretProjection{LocalObjectReference: ref("proj")}}}}}},
		},
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("init")}}}}},
		Containers:     []v1.Container{{Env: []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("vol")}}}}}},
	}}
	want := []key{
		{configMap, "ns", "init"}, {configMap, "ns", "kube-root-ca.crt"}, {configMap, "ns", "vol"},
		{secret, "ns", "proj"}, {secret, "ns", "pull"}, {secret, "ns", "vol"},
	}
	if diff := cmp.Diff(want, references(p), cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
