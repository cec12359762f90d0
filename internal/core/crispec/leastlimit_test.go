package crispec

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Whatever the period of the CPU quota (cpuCFSQuotaPeriod: 1 ms to 1 s), a container that has what its limit asks for does not look as if it had
// something else: otherwise each new agent would resize it.
func TestALimitLooksTheSameInEveryPeriod(t *testing.T) {
	t.Parallel()
	for _, period := range []int64{1000, 1500, 5000, 10_000, 33_333, 100_000, 1_000_000} {
		for _, limit := range []int64{1, 2, 9, 10, 11, 100, 333, 500, 1000, 1333, 64_000} {
			r := &runtimeapi.LinuxContainerResources{CpuPeriod: period, CpuQuota: CPUQuota(limit, period)}
			want := pod.Size{CPULimit: limit}
			if got := want.Shown(ActualSize(r), LeastCPULimit(r)); got != want {
				t.Errorf("period %d µs, limit %dm: looks like %dm", period, limit, got.CPULimit)
			}
		}
	}
	if LeastCPULimit(&runtimeapi.LinuxContainerResources{}) != 0 {
		t.Error("a container without a period has a least limit")
	}
}
