package syncloop

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/volume"
)

func TestOverLimit(t *testing.T) {
	t.Parallel()
	limit := resource.MustParse("1Ki")
	empty := func(name string, medium v1.StorageMedium, limit *resource.Quantity) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium, SizeLimit: limit}}}
	}
	p := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{empty("free", "", nil), empty("disk", "", &limit), empty("zero", "", new(resource.Quantity)), empty("memory", "Memory", &limit)}}}
	if !limitsVolumes(p) || limitsVolumes(&v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{p.Spec.Volumes[0], p.Spec.Volumes[2], p.Spec.Volumes[3]}}}) {
		t.Error("which pods are measured")
	}
	for _, c := range []struct {
		usage volume.Usage
		want  string
	}{
		{volume.Usage{Name: "free", UsedBytes: 1 << 40}, ""}, {volume.Usage{Name: "zero", UsedBytes: 1 << 40}, ""},
		{volume.Usage{Name: "memory", Memory: true, UsedBytes: 1 << 40}, ""}, {volume.Usage{Name: "disk", UsedBytes: 1024}, ""},
		{volume.Usage{Name: "disk", UsedBytes: 1025}, `Usage of EmptyDir volume "disk" exceeds the limit "1Ki". `},
	} {
		if got := overLimit(p, []volume.Usage{c.usage}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.usage, got, c.want)
		}
	}
}
