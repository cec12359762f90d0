package cri

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// What the runtime reports of a container that only few have: images mounted as volumes, and a period of its own for the CPU quota.
func TestReportedByFewContainers(t *testing.T) {
	t.Parallel()
	c := (&Client{}).container(&runtimeapi.ContainerStatus{
		Mounts: []*runtimeapi.Mount{
			nil, {ContainerPath: "/data", HostPath: "/x"}, {ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: "sha256:model"}}, {Image: &runtimeapi.ImageSpec{}},
		},
		Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 5000, CpuQuota: 1000}},
	}, &pod.Container{})
	if !slices.Equal(c.ImageVolumes, []string{"sha256:model"}) || c.Actual.CPULimit != 200 || c.LeastCPULimit != 200 {
		t.Errorf("images %q, limit %d, least %d", c.ImageVolumes, c.Actual.CPULimit, c.LeastCPULimit)
	}
	if c = (&Client{}).container(&runtimeapi.ContainerStatus{}, &pod.Container{}); c.ImageVolumes != nil || c.LeastCPULimit != 0 {
		t.Errorf("nothing is reported: %q, %d", c.ImageVolumes, c.LeastCPULimit)
	}
}
