package crispec

import (
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The kernel throttles a container between its request and what it may use, and keeps the request if the node's policy says so.
func TestMemoryQoS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		request, limit string
		cpu            string // request and limit of the CPU, which make a pod guaranteed
		policy         Policy
		want           string
	}{
		{"best effort, which upstream does not throttle", "", "", "", Policy{MemoryAllocatable: 10 << 30}, "memory.high=max memory.low=0 memory.min=0"},
		{"burstable with a limit", "1Gi", "2Gi", "", Policy{}, "memory.high=2040107008 memory.low=0 memory.min=0"},
		{"burstable with a limit, memory is kept", "1Gi", "2Gi", "", Policy{MemoryReservation: true}, "memory.high=2040107008 memory.low=1073741824"},
		{"burstable without a limit", "1Gi", "", "", Policy{MemoryAllocatable: 10 << 30}, "memory.high=9771048960 memory.low=0 memory.min=0"},
		{"burstable without a limit, the node's memory is not known", "1Gi", "", "", Policy{}, "memory.high=max memory.low=0 memory.min=0"},
		{"a request above the node's memory", "20Gi", "", "", Policy{MemoryAllocatable: 10 << 30}, "memory.high=max memory.low=0 memory.min=0"},
		{"request equal to the limit, but no CPU", "1Gi", "1Gi", "", Policy{MemoryReservation: true}, "memory.high=max memory.low=1073741824"},
		{"guaranteed", "1Gi", "1Gi", "1", Policy{}, "memory.high=max memory.low=0 memory.min=0"},
		{"guaranteed, memory is kept", "1Gi", "1Gi", "1", Policy{MemoryReservation: true}, "memory.high=max memory.min=1073741824"},
		{"the largest numbers", "1", "9223372036854775807", "", Policy{}, "memory.high=8301034833169297408 memory.low=0 memory.min=0"},
	} {
		list := func(memory string) v1.ResourceList {
			out := v1.ResourceList{}
			if memory != "" {
				out[v1.ResourceMemory] = resource.MustParse(memory)
			}
			if tt.cpu != "" {
				out[v1.ResourceCPU] = resource.MustParse(tt.cpu)
			}
			return out
		}
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list(tt.request), Limits: list(tt.limit)}}}}}
		said := func(policy Policy) string {
			policy.SingleProcessOOMKill = true
			unified := ContainerResources(p, &p.Spec.Containers[0], &policy).Unified
			var out []string
			for _, file := range slices.Sorted(maps.Keys(unified)) {
				out = append(out, file+"="+unified[file])
			}
			return strings.Join(out, " ")
		}
		tt.policy.MemoryThrottling, tt.policy.CgroupV2 = 0.9, true
		if got := said(tt.policy); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		off, v1 := tt.policy, tt.policy
		off.MemoryThrottling, v1.CgroupV2 = 0, false
		if got := said(off) + said(v1); got != "" {
			t.Errorf("%s: without the gate, or on cgroup v1: %s", tt.name, got)
		}
	}
}
