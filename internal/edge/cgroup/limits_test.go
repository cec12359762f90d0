package cgroup

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// list parses resources such as "cpu=1 memory=1Gi".
func list(s string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, f := range strings.Fields(s) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func podOf(containers ...v1.ResourceRequirements) *v1.Pod {
	p := &v1.Pod{}
	for i, r := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: r})
	}
	return p
}

func needs(requests, limits string) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

func (l Limits) String() string {
	var b strings.Builder
	for _, f := range []struct {
		name string
		v    *int64
	}{{"shares", l.CPUShares}, {"quota", l.CPUQuota}, {"period", l.CPUPeriod}, {"memory", l.Memory}, {"min", l.MemoryMin}, {"low", l.MemoryLow}, {"pids", l.Pids}} {
		if f.v != nil {
			fmt.Fprintf(&b, "%s=%d ", f.name, *f.v)
		}
	}
	if len(l.HugePages) > 0 {
		fmt.Fprintf(&b, "%v", l.HugePages)
	}
	return strings.TrimSpace(b.String())
}

func TestPodLimits(t *testing.T) {
	t.Parallel()
	overhead := podOf(needs("cpu=1 memory=1Gi", "cpu=1 memory=1Gi"))
	overhead.Spec.Overhead = list("cpu=250m memory=64Mi")
	podLevel := podOf(needs("", ""), needs("cpu=100m", ""))
	podLevel.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu=500m"), Limits: list("cpu=2 memory=512Mi")}
	for _, tc := range []struct {
		name   string
		p      *v1.Pod
		config Config
		want   string
	}{
		{"best effort", podOf(needs("", "")), Config{CPUCFSQuota: true, PodPidsLimit: 100}, "shares=2 quota=-1 period=100000 memory=-1 pids=100"},
		{
			"guaranteed", podOf(needs("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")), Config{CPUCFSQuota: true},
			"shares=1024 quota=100000 period=100000 memory=1073741824",
		},
		{
			"guaranteed without CFS quota", podOf(needs("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")), Config{},
			"shares=1024 quota=-1 period=100000 memory=1073741824",
		},
		{
			"burstable, every container limited", podOf(needs("cpu=100m", "cpu=200m memory=1Mi"), needs("cpu=100m", "cpu=200m memory=1Mi")),
			Config{CPUCFSQuota: true, CPUCFSPeriod: 10 * time.Millisecond}, "shares=204 quota=4000 period=10000 memory=2097152",
		},
		{
			"burstable, one container not limited", podOf(needs("cpu=100m", "cpu=200m memory=1Mi"), needs("cpu=100m", "")),
			Config{CPUCFSQuota: true}, "shares=204 quota=-1 period=100000 memory=-1",
		},
		{"overhead counts", overhead, Config{CPUCFSQuota: true}, "shares=1280 quota=125000 period=100000 memory=1140850688"},
		{
			"the pod's own resources", podLevel, Config{CPUCFSQuota: true},
			"shares=512 quota=200000 period=100000 memory=536870912",
		},
		{
			"huge pages", podOf(needs("hugepages-2Mi=4Mi memory=1Mi", "hugepages-2Mi=4Mi memory=1Mi")), Config{},
			"shares=2 quota=-1 period=100000 memory=1048576 map[2MB:4194304]",
		},
		{
			"memory that is not kept", podOf(needs("cpu=100m memory=1Mi", "")), Config{MemoryQoS: true},
			"shares=102 quota=-1 period=100000 memory=-1 min=0 low=0",
		},
		{
			"memory that is kept for a burstable pod", podOf(needs("cpu=100m memory=1Mi", "memory=2Mi")), Config{MemoryQoS: true, ReserveMemory: true},
			"shares=102 quota=-1 period=100000 memory=2097152 min=0 low=1048576",
		},
		{
			"memory that is kept for a guaranteed pod", podOf(needs("cpu=1 memory=1Mi", "cpu=1 memory=1Mi")), Config{MemoryQoS: true, ReserveMemory: true},
			"shares=1024 quota=-1 period=100000 memory=1048576 min=1048576 low=0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, PodLimits(tc.p, crispec.PodSize(tc.p), &tc.config).String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLimitsInTheLibrarysForm(t *testing.T) {
	t.Parallel()
	shares, memory, quota, period := int64(1024), int64(1<<20), int64(-1), int64(100000)
	l := Limits{CPUShares: &shares, Memory: &memory, CPUQuota: &quota, CPUPeriod: &period, HugePages: map[string]int64{"2MB": 1 << 21}}
	got := l.resources(false, []string{"2MB", "1GB"})
	want := &cgroups.Resources{
		CpuShares: 1024, Memory: 1 << 20, CpuQuota: -1, CpuPeriod: 100000,
		HugetlbLimit: []*cgroups.HugepageLimit{{Pagesize: "2MB", Limit: 1 << 21}, {Pagesize: "1GB", Limit: 0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("v1 -want +got:\n%s", diff)
	}
	l.MemoryMin, l.MemoryLow = &memory, &shares
	if got := l.resources(false, nil).Unified; got != nil {
		t.Errorf("v1 has no files such as %v", got)
	}
	v2 := l.resources(true, nil)
	if diff := cmp.Diff(map[string]string{"memory.min": "1048576", "memory.low": "1024"}, v2.Unified); diff != "" {
		t.Errorf("v2 -want +got:\n%s", diff)
	}
	if v2.CpuShares != 0 || v2.CpuWeight < 1 || v2.CpuWeight > 10000 {
		t.Errorf("v2: shares %d and weight %d, want no shares and a weight of 1 to 10000", v2.CpuShares, v2.CpuWeight)
	}
}

// A memory limit is compared with the usage only if it becomes lower. If it stays, usage that has reached the limit is no reason to refuse it.
func TestTheSameMemoryLimitIsNotCompared(t *testing.T) {
	t.Parallel()
	h := &hierarchy{v2: true, mounts: map[string]string{"": t.TempDir()}}
	for has, compared := range map[string]bool{"max\n": true, "2097152\n": true, "1048576\n": false, "524288\n": false, "": true} {
		if err := os.WriteFile(h.dir("memory", "memory.max"), []byte(has), 0o600); err != nil {
			t.Fatal(err)
		}
		memory, unlimited := int64(1<<20), int64(unlimited)
		if got := h.change("/", Limits{Memory: &memory}, nil); got.MemoryCheckBeforeUpdate != compared || got.Memory != memory {
			t.Errorf("from %q: %+v", has, got)
		}
		if got := h.change("/", Limits{Memory: &unlimited}, nil); got.Memory != -1 {
			t.Errorf("from %q to no limit: %+v", has, got)
		}
	}
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	c := New(Config{SystemReserved: list("cpu=500m memory=1Gi"), KubeReserved: list("cpu=500m ephemeral-storage=1Gi")})
	for capacity, want := range map[string]string{
		"cpu=4 memory=512Mi pid=1000":                      "cpu=3 memory=0 pid=1000",
		"memory=64Gi hugepages-2Mi=8Gi hugepages-1Gi=24Gi": "memory=31Gi hugepages-2Mi=8Gi hugepages-1Gi=24Gi",
		"memory=8Gi hugepages-1Gi=8Gi":                     "memory=0 hugepages-1Gi=8Gi",
	} {
		if diff := cmp.Diff(list(want), c.Allocatable(list(capacity))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", capacity, diff)
		}
	}
}

// The cgroup of all pods has a limit of processes if some are reserved, and if the reservations are enforced on pods.
func TestProcessesOfAllPods(t *testing.T) {
	t.Parallel()
	for want, config := range map[int64]Config{
		3800: {Enforce: []string{"pods"}, SystemReserved: list("pid=1000"), KubeReserved: list("pid=200")},
		4800: {Enforce: []string{"pods"}, KubeReserved: list("pid=200")},
		-1:   {Enforce: []string{"none"}, SystemReserved: list("pid=1000")},
	} {
		if got := New(config).podsLimits(list("cpu=4 memory=8Gi pid=5000")).Pids; got == nil || *got != want {
			t.Errorf("%+v: got %v, want %d", config, got, want)
		}
	}
	if got := New(Config{Enforce: []string{"pods"}, SystemReserved: list("cpu=1")}).podsLimits(list("cpu=4 pid=5000")).Pids; got == nil || *got != unlimited {
		t.Errorf("nothing is reserved: got %v", got)
	}
}

// The classes of pods get the sums of their pods: CPU shares, and with MemoryQoS the memory that the kernel keeps for them.
func TestClassLimits(t *testing.T) {
	t.Parallel()
	pods := []*v1.Pod{
		podOf(needs("", "")),
		podOf(needs("cpu=500m memory=1Mi", "")), podOf(needs("cpu=500m memory=2Mi", "memory=4Mi")),
		podOf(needs("cpu=1 memory=8Mi", "cpu=1 memory=8Mi")), podOf(needs("cpu=1 memory=16Mi", "cpu=1 memory=16Mi")),
	}
	for _, tt := range []struct {
		name   string
		config Config
		v2     bool
		want   classLimits
	}{
		{"without the gate", Config{ReserveMemory: true}, true, classLimits{shares: 1024}},
		{"on cgroup v1", Config{MemoryQoS: true, ReserveMemory: true}, false, classLimits{shares: 1024}},
		{"memory is not kept", Config{MemoryQoS: true}, true, classLimits{shares: 1024, protect: true}},
		{"memory is kept", Config{MemoryQoS: true, ReserveMemory: true}, true, classLimits{shares: 1024, protect: true, guaranteed: 24 << 20, burstable: 3 << 20}},
	} {
		if got := New(tt.config).classLimits(pods, tt.v2); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
