package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Whether swap can be limited is known with cgroupsPerQOS: false too, so that containers get no swap then either (NoSwap). The directories are not
// real cgroups here, so that the test needs neither root nor v2.
func TestSwapControllerWithoutClassesOfPods(t *testing.T) {
	t.Parallel()
	own, err := Own("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	for _, perQOS := range []bool{true, false} {
		c := New(Config{PerQOS: perQOS, Driver: "cgroupfs"})
		c.tree = &hierarchy{v2: true, mounts: map[string]string{"": t.TempDir()}}
		group := own
		if perQOS {
			group = c.names.qos(v1.PodQOSGuaranteed)
		}
		dir := c.tree.dir("memory", group)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if can, err := c.SwapController(); can || err != nil {
			t.Errorf("cgroupsPerQOS %t, without memory.swap.max: %t, %v", perQOS, can, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("max\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if can, err := c.SwapController(); !can || err != nil {
			t.Errorf("cgroupsPerQOS %t, with memory.swap.max: %t, %v", perQOS, can, err)
		}
	}
}
