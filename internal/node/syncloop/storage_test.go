package syncloop

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/edge/volume"
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

// overLimit compares the layers, logs and volumes of a pod with the limits of the pod and of each container. The documentation says: "If
// the sum of the local ephemeral storage usage from all containers and also the Pod's emptyDir volumes exceeds the overall Pod storage
// limit, then the kubelet also marks the Pod for eviction."
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

// The hosts file and the termination messages of a pod count against its ephemeral-storage limits.
func TestCVE20208557HostsFileCountsAgainstTheLimit(t *testing.T) {
	t.Parallel()
	limit := v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: limit}}}}
	two := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: limit}, {Name: "b", Resources: limit}}}}
	const ofPod = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "
	for name, c := range map[string]struct {
		pod  *v1.Pod
		use  StorageUse
		want string
	}{
		"hosts":                 {p, StorageUse{Files: volume.FilesUsage{Hosts: 1<<20 + 1}}, ofPod},
		"hosts, just as much":   {p, StorageUse{Files: volume.FilesUsage{Hosts: 1 << 20}}, ""},
		"hosts and logs":        {p, StorageUse{Files: volume.FilesUsage{Hosts: 1 << 19}, Containers: []ContainerUse{{Name: "a", Logs: 1<<19 + 1}}}, ofPod},
		"termination log":       {p, StorageUse{Files: volume.FilesUsage{Messages: map[string]uint64{"a": 1<<20 + 1}}}, ofPod},
		"a container's own log": {two, StorageUse{Files: volume.FilesUsage{Messages: map[string]uint64{"b": 1<<20 + 1}}, Containers: []ContainerUse{{Name: "b"}}}, `Container b exceeded its local ephemeral storage limit "1Mi". `},
	} {
		if _, got := overLimit(c.pod, &c.use); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The agent evicts a pod without any limit whose hosts file exceeds its bound, or which fills a termination message faster than
// the agent truncates it. It does not evict a pod within the bounds, nor a critical pod.
func TestHostsFileAndTerminationLogHaveABoundWithoutALimit(t *testing.T) {
	t.Parallel()
	const mi = 1 << 20
	for name, c := range map[string]struct {
		files    volume.FilesUsage
		critical bool
		want     int
	}{
		"within bounds":   {volume.FilesUsage{Hosts: 10 * mi, Messages: map[string]uint64{"a": 100 * mi}}, false, 0},
		"hosts":           {volume.FilesUsage{Hosts: 10*mi + 1}, false, 1},
		"termination log": {volume.FilesUsage{Messages: map[string]uint64{"a": 100*mi + 1}}, false, 1},
		"critical":        {volume.FilesUsage{Hosts: 10*mi + 1}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }}
			var looks atomic.Int64
			b.files = func(types.UID) (volume.FilesUsage, error) { looks.Add(1); return c.files, nil }
			p := named("web")
			if c.critical {
				p.Spec.Priority = new(int32(2_000_000_000))
			}
			run(t, b, func(set *podset.Set) {
				set.Replace(pod.SourceAPI, []*v1.Pod{p})
				time.Sleep(2 * time.Minute)
				if n := b.count(&b.events, admit.ReasonEvicted+" web"); n != c.want {
					t.Errorf("%d evictions, want %d: events %q", n, c.want, b.events)
				}
				if n := looks.Load(); n == 0 || n > 5 {
					t.Errorf("%d looks in 2 minutes at a pod without a limit", n)
				}
			})
		})
	}
}

// A pod with a limit cannot escape it with a directory tree that cannot be measured. The part that was measured within the time
// counts, and a tree that is too deep makes the agent end the pod.
func TestAVolumeThatCannotBeMeasuredIsNotEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk func(context.Context, *v1.Pod) (StorageUse, error)
		want int
	}{
		"too deep": {func(context.Context, *v1.Pod) (StorageUse, error) {
			return StorageUse{}, fmt.Errorf("volume %q: %w", "v", hostfs.ErrTooDeep)
		}, 1},
		"takes for ever, over the limit": {func(ctx context.Context, _ *v1.Pod) (StorageUse, error) {
			<-ctx.Done()
			return StorageUse{Volumes: []volume.Usage{{Name: "v", UsedBytes: 2 << 20}}}, ctx.Err()
		}, 1},
		"takes for ever, within it": {func(ctx context.Context, _ *v1.Pod) (StorageUse, error) {
			<-ctx.Done()
			return StorageUse{Volumes: []volume.Usage{{Name: "v", UsedBytes: 1}}}, ctx.Err()
		}, 0},
		"another error": {func(context.Context, *v1.Pod) (StorageUse, error) {
			return StorageUse{}, fmt.Errorf("measure: %w", os.ErrPermission)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bare{node: true, fits: func(*v1.Pod, []*v1.Pod) admit.Result { return admit.Result{OK: true} }, disk: c.disk}
			p := named("web")
			limit := resource.MustParse("1Mi")
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
			run(t, b, func(set *podset.Set) {
				set.Replace(pod.SourceAPI, []*v1.Pod{p})
				time.Sleep(3 * time.Minute)
				if n := b.count(&b.events, admit.ReasonEvicted+" web"); n != c.want {
					t.Errorf("%d evictions, want %d: events %q", n, c.want, b.events)
				}
			})
		})
	}
}
