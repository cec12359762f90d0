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
		if _, got := overLimit(p, &StorageUse{Volumes: []volume.Usage{c.usage}}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.usage, got, c.want)
		}
	}
}

// "If the sum of the local ephemeral storage usage from all containers and also the Pod's emptyDir volumes exceeds the overall
// Pod storage limit, then the kubelet also marks the Pod for eviction."
func TestOverLimitOfContainers(t *testing.T) {
	t.Parallel()
	limited := func(name, limit string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}}}
	}
	one := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{limited("a", "1Ki")}}}
	two := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{limited("a", "1Ki"), limited("b", "3Ki")}}}
	free := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
	const ofPod = "Pod ephemeral local storage usage exceeds the total limit of containers "
	for name, c := range map[string]struct {
		pod  *v1.Pod
		use  StorageUse
		want string
	}{
		"no limit":              {free, StorageUse{Containers: []ContainerUse{{Name: "a", Layer: 1 << 40}}}, ""},
		"just as much":          {one, StorageUse{Containers: []ContainerUse{{Name: "a", Layer: 1000, Logs: 24}}}, ""},
		"layer and logs":        {one, StorageUse{Containers: []ContainerUse{{Name: "a", Layer: 1000, Logs: 25}}}, ofPod + "1Ki. "},
		"volume":                {one, StorageUse{Volumes: []volume.Usage{{Name: "v", UsedBytes: 1025}}}, ofPod + "1Ki. "},
		"volume in memory":      {one, StorageUse{Volumes: []volume.Usage{{Name: "v", Memory: true, UsedBytes: 1025}}}, ""},
		"within the pod's":      {two, StorageUse{Containers: []ContainerUse{{Name: "b", Layer: 3000}}}, ""},
		"one of two":            {two, StorageUse{Containers: []ContainerUse{{Name: "a", Layer: 1000, Logs: 25}}}, `Container a exceeded its local ephemeral storage limit "1Ki". `},
		"layer of its own disk": {two, StorageUse{LayersApart: true, Containers: []ContainerUse{{Name: "a", Layer: 1025, Logs: 24}}}, ""},
		"logs beside it":        {two, StorageUse{LayersApart: true, Containers: []ContainerUse{{Name: "a", Logs: 1025}}}, `Container a exceeded its local ephemeral storage limit "1Ki". `},
	} {
		if _, got := overLimit(c.pod, &c.use); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
