package stats

import (
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// A container that has ended still has its files until it is removed: the pod in back-off that filled the disk uses that space, and its end frees it.
// Limits of storage count only what runs, as upstream does.
func TestPodDisksOfContainersThatHaveEnded(t *testing.T) {
	t.Parallel()
	layer := func(id string, bytes uint64, measured time.Time) *runtimeapi.ContainerStats {
		l := filesystem(bytes, 1)
		l.Timestamp = measured.UnixNano()
		return &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: id}, WritableLayer: l}
	}
	crashed := func(id string, attempt uint32) pod.Container {
		return pod.Container{ID: id, Name: "main", Attempt: attempt, State: pod.StateExited, StartedAt: at(-50), FinishedAt: at(-20)}
	}
	for name, tt := range map[string]struct {
		containers []pod.Container
		layers     []*runtimeapi.ContainerStats
		bytes      uint64
		logs       uint64
		at         time.Time
	}{
		"it crashed, and all of its files are counted": {
			[]pod.Container{crashed("ccc", 1)}, []*runtimeapi.ContainerStats{layer("ccc", 4096, at(-10))}, 4096, 111, time.Time{}},
		"it crashed before the runtime measured all of its files": {
			[]pod.Container{crashed("ccc", 1)}, []*runtimeapi.ContainerStats{layer("ccc", 5, at(-25))}, 5, 111, at(-25)},
		"it crashed before the runtime measured anything": {
			[]pod.Container{crashed("ccc", 1)}, []*runtimeapi.ContainerStats{layer("ccc", 0, time.Unix(0, 0))}, 0, 111, at(-50)},
		"the runtime does not tell of what has ended": {
			[]pod.Container{crashed("ccc", 1)}, nil, 0, 111, time.Time{}},
		"earlier attempts count, and the logs of a name count once": {
			[]pod.Container{crashed("ccc", 1), crashed("old", 0)},
			[]*runtimeapi.ContainerStats{layer("ccc", 1000, at(-10)), layer("old", 24, at(-10))}, 1024, 111, time.Time{}},
		"beside one that runs": {
			[]pod.Container{{ID: "side", Name: "side", State: pod.StateRunning, StartedAt: at(-60)}, crashed("ccc", 0)},
			[]*runtimeapi.ContainerStats{layer("ccc", 1000, at(-10)), layer("side", 1, at(-8))}, 1001, 111, at(-8)},
	} {
		pods := onePod()
		pods[0].Containers = tt.containers
		stub := &runtimeStub{containers: tt.layers}
		s := newStats(t, func(c *Config) { c.Runtime, c.Images, c.HostRoot, c.Pods = stub, stub, hostV1(t), pods })
		got, err := s.PodDisks(t.Context(), "")
		web := got[webUID]
		if err != nil || web.Layers.Bytes != tt.bytes || web.Logs.Bytes != tt.logs || !web.LayersAt.Equal(tt.at) || web.NoLayers {
			t.Errorf("%s: %+v, %v; want %d bytes of layers, measured at %v, and %d of logs", name, web, err, tt.bytes, tt.at, tt.logs)
		}
		named := slices.ContainsFunc(web.Containers, func(c ContainerDisk) bool {
			return c.Name == "main" && c.Layer+c.Logs == tt.bytes-running(tt.containers)+111
		})
		if !named {
			t.Errorf("%s: the container is not among %+v", name, web.Containers)
		}
		if limited, err := s.PodDisks(t.Context(), webUID); err != nil || limited[webUID].Layers.Bytes != running(tt.containers) {
			t.Errorf("%s: for limits %+v, %v", name, limited, err)
		}
		if _, ended := got["2"]; ended {
			t.Errorf("%s: a pod that has ended was measured", name)
		}
	}
}

// running returns how many of the containers run. Each of them has a layer of one byte.
func running(containers []pod.Container) (n uint64) {
	for i := range containers {
		if containers[i].State == pod.StateRunning {
			n++
		}
	}
	return n
}
