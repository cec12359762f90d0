package objects

import (
	"fmt"
	"slices"
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

// The references of a pod are compared once each, under the lock that the reads of all pods need: the author of a pod chooses how many there
// are, and each change of the pod's object compares them.
func TestReferencesAreComparedOnceEach(t *testing.T) {
	t.Parallel()
	const n = 1000
	list := func(first int) (out []*object) {
		for i := range n {
			out = append(out, &object{key: key{configMap, "ns", fmt.Sprintf("c%05d", first+i)}})
		}
		return out
	}
	for _, moved := range []int{0, 1, n / 2, n, 2 * n} { // how many of the references are new
		before, now := list(0), list(moved)
		kept := max(0, n-moved)
		copy(now, before[n-kept:]) // the same object for the same key, as in Objects
		var gone, come []*object
		comparisons := 0
		changes(before, now, func(a, b key) int {
			comparisons++
			return compareKeys(a, b)
		}, func(o *object) { gone = append(gone, o) }, func(o *object) { come = append(come, o) })
		if !slices.Equal(gone, before[:n-kept]) || !slices.Equal(come, now[kept:]) {
			t.Errorf("%d new references: %d are gone and %d have come, want %d of each, in order", moved, len(gone), len(come), n-kept)
		}
		if comparisons > 2*n {
			t.Errorf("%d new references: %d comparisons, want at most one for each of %d references", moved, comparisons, 2*n)
		}
	}
}
