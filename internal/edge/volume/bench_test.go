package volume_test

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// BenchmarkOrdinaryPod measures what every ordinary pod costs: making its projected token volume, refreshing it without
// a change, and removing it.
func BenchmarkOrdinaryPod(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: mounts")
	}
	a := &api{configMaps: map[string]*v1.ConfigMap{"ca": {Data: map[string]string{"ca.crt": "x"}}}, token: "t"}
	v := volume.New(volume.Config{RootDir: b.TempDir(), Host: hostfs.Host{}, Objects: a})
	p := aPod(vol("token", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "ca"}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}))
	setUp := func(uid types.UID) {
		p.UID = uid
		if err := v.SetUp(b.Context(), volume.Pod{Pod: p}); err != nil {
			b.Fatal(err)
		}
	}
	remove := func(uid types.UID) {
		if err := v.Remove(b.Context(), pod.Ref{UID: uid}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("made", func(b *testing.B) {
		for b.Loop() {
			setUp("a")
			b.StopTimer()
			remove("a")
			b.StartTimer()
		}
	})
	b.Run("refreshed", func(b *testing.B) {
		setUp("b")
		for b.Loop() {
			setUp("b")
		}
		remove("b")
	})
	b.Run("removed", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			setUp("c")
			b.StartTimer()
			remove("c")
		}
	})
}
