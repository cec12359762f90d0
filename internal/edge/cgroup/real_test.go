package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// realRoot creates a cgroup for the test in the real cgroup hierarchies of this machine. The test's cleanup removes it with all
// cgroups below it.
func realRoot(t *testing.T) (root string, h *hierarchy) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	h, err := discover()
	if err != nil {
		t.Skipf("no usable cgroups: %v", err)
	}
	root = fmt.Sprintf("/wherry-test-%d/%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "_"))
	m, err := h.manager(root, &cgroups.Resources{}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(-1); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for _, dir := range h.dirs(root) {
			if err := cgroups.RemovePath(dir); err != nil {
				t.Errorf("remove %s: %v", dir, err)
			}
			_ = os.Remove(filepath.Dir(dir)) // the last test of the process succeeds in removing the common parent
		}
	})
	return root, h
}

func (h *hierarchy) read(t *testing.T, controller, group, v1File, v2File string) string {
	t.Helper()
	file := v1File
	if h.v2 {
		file = v2File
	}
	data, err := os.ReadFile(filepath.Join(h.dir(controller, group), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func uidPod(uid string, r v1.ResourceRequirements) *v1.Pod {
	p := podOf(r)
	p.Name, p.Namespace, p.UID = "p", "ns", types.UID(uid)
	return p
}

func TestRealLifeOfAPod(t *testing.T) {
	t.Parallel()
	root, h := realRoot(t)
	ctx := context.Background()
	c := New(Config{
		Root: root, Driver: DriverCgroupfs, PerQOS: true, PodPidsLimit: 64, CPUCFSQuota: true, Enforce: []string{"pods"},
		SystemReserved: list("memory=1Gi"), MemoryQoS: true, ReserveMemory: true,
	})
	if err := c.SetUpNode(ctx, list("cpu=2 memory=3Gi pid=5000")); err != nil {
		t.Fatal(err)
	}
	if err := c.SetUpNode(ctx, list("cpu=2 memory=3Gi pid=5000")); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	if got := h.read(t, "memory", root+"/kubepods", "memory.limit_in_bytes", "memory.max"); got != "2147483648" {
		t.Errorf("limit of all pods: got %s, want the capacity less the reservation", got)
	}

	p := uidPod("u-1", needs("cpu=250m memory=32Mi", "cpu=500m memory=64Mi hugepages-2Mi=2Mi"))
	parent, err := c.EnsurePod(ctx, p, crispec.PodSize(p))
	if err != nil {
		t.Fatal(err)
	}
	if want := root + "/kubepods/burstable/podu-1"; parent != want {
		t.Errorf("parent: got %s, want %s", parent, want)
	}
	got := []string{
		h.read(t, "memory", parent, "memory.limit_in_bytes", "memory.max"),
		h.read(t, "pids", parent, "pids.max", "pids.max"),
	}
	if diff := cmp.Diff([]string{"67108864", "64"}, got); diff != "" {
		t.Errorf("memory and pids: -want +got:\n%s", diff)
	}
	if !h.v2 {
		got := []string{h.read(t, "cpu", parent, "cpu.shares", ""), h.read(t, "cpu", parent, "cpu.cfs_quota_us", "")}
		if diff := cmp.Diff([]string{"256", "50000"}, got); diff != "" {
			t.Errorf("cpu: -want +got:\n%s", diff)
		}
		if err := c.UpdateQOS(ctx, []*v1.Pod{p, uidPod("u-2", needs("cpu=750m", ""))}); err != nil {
			t.Fatal(err)
		}
		if got := h.read(t, "cpu", root+"/kubepods/burstable", "cpu.shares", ""); got != "1024" {
			t.Errorf("shares of the burstable class: got %s, want the sum of its pods, 1024", got)
		}
	}

	if h.v2 { // the class of the pod has the sum of its pods, and the cgroup of all pods lets the kernel keep as much
		if err := c.UpdateQOS(ctx, []*v1.Pod{p, uidPod("u-2", needs("cpu=1 memory=8Mi", "cpu=1 memory=8Mi"))}); err != nil {
			t.Fatal(err)
		}
		got := []string{
			h.read(t, "memory", parent, "", "memory.low"), h.read(t, "memory", root+"/kubepods/burstable", "", "memory.low"),
			h.read(t, "memory", root+"/kubepods", "", "memory.low"), h.read(t, "memory", root+"/kubepods", "", "memory.min"),
		}
		if diff := cmp.Diff([]string{"33554432", "33554432", "33554432", "41943040"}, got); diff != "" {
			t.Errorf("memory that the kernel keeps: -want +got:\n%s", diff)
		}
	}

	p.Spec.Containers[0].Resources = needs("cpu=250m memory=32Mi", "cpu=500m memory=128Mi")
	if _, err := c.EnsurePod(ctx, p, crispec.PodSize(p)); err != nil {
		t.Fatalf("resize: %v", err)
	}
	if got := h.read(t, "memory", parent, "memory.limit_in_bytes", "memory.max"); got != "134217728" {
		t.Errorf("memory limit after a resize: got %s", got)
	}
	testShrink(t, c, h, p)
	testTasksKeepTheGroup(t, c, h, parent)
}

// testShrink resizes a pod to a smaller CPU limit. While the container still has its old quota, the pod's cgroup keeps a quota that
// is as large in proportion. After the container is resized, the pod's cgroup gets the new quota.
func testShrink(t *testing.T, c *Cgroups, h *hierarchy, p *v1.Pod) {
	if h.v2 {
		return // on v2 a cgroup may have a smaller quota than its children
	}
	ctx := context.Background()
	parent := c.Parent(p)
	container := filepath.Join(parent, "shrinks")
	quota := func(group string, want string) {
		t.Helper()
		if got := h.read(t, "cpu", group, "cpu.cfs_quota_us", ""); got != want {
			t.Errorf("quota of %s: got %s, want %s", group, got, want)
		}
	}
	set := func(n int64) {
		t.Helper()
		m, err := h.manager(container, &cgroups.Resources{CpuQuota: n, CpuPeriod: 50000}, false)
		if err == nil {
			err = errors.Join(m.Apply(-1), m.Set(&cgroups.Resources{CpuQuota: n, CpuPeriod: 50000, SkipDevices: true}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set(25000) // set half a CPU as quota
	p.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = list("cpu=300m")[v1.ResourceCPU]
	if _, err := c.EnsurePod(ctx, p, crispec.PodSize(p)); err != nil {
		t.Fatalf("before the container shrank: %v", err)
	}
	quota(parent, "50000")
	set(15000)
	if _, err := c.EnsurePod(ctx, p, crispec.PodSize(p)); err != nil {
		t.Fatalf("after the container shrank: %v", err)
	}
	quota(parent, "30000")
	p.Spec.Containers[0].Resources.Limits = nil
	if _, err := c.EnsurePod(ctx, p, crispec.PodSize(p)); err != nil {
		t.Fatalf("without limits: %v", err)
	}
	quota(parent, "-1")
}

// testTasksKeepTheGroup puts a process into the cgroup where a runtime would put a container. RemovePod has to kill the process
// before it removes the pod's cgroup.
func testTasksKeepTheGroup(t *testing.T, c *Cgroups, h *hierarchy, parent string) {
	ctx := context.Background()
	container := filepath.Join(parent, "cri-containerd-abc123.scope")
	m, err := h.manager(container, &cgroups.Resources{}, false)
	if err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleep.Wait() }()
	defer func() { _ = sleep.Process.Kill() }()
	if err := m.Apply(sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if uids, err := c.PodCgroups(); err != nil || !cmp.Equal(uids, []types.UID{"u-1"}) {
		t.Errorf("pod groups: got %v, %v", uids, err)
	}
	// A runtime that was interrupted may leave a process that belongs to no listed container.
	err = c.RemovePod(ctx, "u-1")
	for range 60 { // a killed process needs CPU time to end; each try waits a second
		if !errors.Is(err, ErrBusy) {
			break
		}
		err = c.RemovePod(ctx, "u-1")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the remaining process ended with %v, want SIGKILL", err)
	}
	if err := c.RemovePod(ctx, "u-1"); err != nil {
		t.Errorf("remove a missing cgroup: %v", err)
	}
	if uids, err := c.PodCgroups(); err != nil || len(uids) != 0 {
		t.Errorf("pod groups after removal: got %v, %v", uids, err)
	}
	for controller, dir := range h.dirs(parent) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("controller %q: %s is still there (%v)", controller, dir, err)
		}
	}
}

func TestRealOrphanInOneHierarchy(t *testing.T) {
	t.Parallel()
	root, h := realRoot(t)
	ctx := context.Background()
	c := New(Config{Root: root, Driver: DriverCgroupfs, PerQOS: true})
	if err := c.SetUpNode(ctx, list("cpu=2 memory=3Gi")); err != nil {
		t.Fatal(err)
	}
	// A crash during a removal may leave a cgroup in one hierarchy only.
	if err := os.Mkdir(h.dir("memory", root+"/kubepods/besteffort/podgone"), 0o755); err != nil {
		t.Fatal(err)
	}
	if uids, err := c.PodCgroups(); err != nil || !cmp.Equal(uids, []types.UID{"gone"}) {
		t.Fatalf("pod groups: got %v, %v", uids, err)
	}
	if err := c.RemovePod(ctx, "gone"); err != nil {
		t.Fatal(err)
	}
	if uids, err := c.PodCgroups(); err != nil || len(uids) != 0 {
		t.Errorf("pod groups after removal: got %v, %v", uids, err)
	}
}

func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	root, _ := realRoot(t)
	for _, tc := range []struct {
		name, want string
		config     Config
	}{
		{"driver", "cgroupDriver", Config{Driver: "docker", PerQOS: true}},
		{"upwards", "cgroupRoot", Config{Driver: DriverCgroupfs, PerQOS: true, Root: "/a/../.."}},
		{"enforce", "enforceNodeAllocatable[1]", Config{Driver: DriverCgroupfs, PerQOS: true, Enforce: []string{"pods", "all"}}},
		{"no such root", "does not exist", Config{Driver: DriverCgroupfs, PerQOS: true, Root: root + "/none"}},
		{"no QoS groups", "cgroupsPerQOS", Config{Driver: DriverCgroupfs, Enforce: []string{"pods"}}},
		{
			"reserved without a group", "system-reserved",
			Config{Driver: DriverCgroupfs, PerQOS: true, Root: root, Enforce: []string{"system-reserved"}},
		},
		{
			"reserved on a group that is not there", root + "/kubelet",
			Config{Driver: DriverCgroupfs, PerQOS: true, Root: root, Enforce: []string{"kube-reserved"}, KubeReservedCgroup: root + "/kubelet"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := New(tc.config).SetUpNode(context.Background(), list("cpu=2 memory=3Gi"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error that names %s", err, tc.want)
			}
		})
	}
}

func TestUIDThatIsNoName(t *testing.T) {
	t.Parallel()
	c := New(Config{Driver: DriverCgroupfs, PerQOS: true, Root: "/wherry-test-none"}) // the test must create no cgroup below this root
	for _, uid := range []string{"", "..", "a/b", "/", "a\n"} {
		if _, err := c.EnsurePod(context.Background(), uidPod(uid, needs("", "")), pod.Size{}); err == nil {
			t.Errorf("uid %q was used as a directory name", uid)
		}
		if err := c.RemovePod(context.Background(), types.UID(uid)); err != nil {
			t.Errorf("remove uid %q: %v", uid, err)
		}
	}
}
