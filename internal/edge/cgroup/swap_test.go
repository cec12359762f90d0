package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Whether swap can be limited is known with cgroupsPerQOS: false too, so that containers get no swap then either (NoSwap). The directories are not
// real cgroups here, so that the test needs neither root nor v2.
func TestSwapControllerWithoutClassesOfPods(t *testing.T) {
	t.Parallel()
	for _, version := range []struct{ v1, perQOS bool }{{false, true}, {false, false}, {true, true}, {true, false}} {
		c := New(Config{PerQOS: version.perQOS, Driver: "cgroupfs"})
		dir, file := t.TempDir(), "memory.swap.max"
		c.tree, c.self = &hierarchy{v2: true, mounts: map[string]string{"": dir}}, filepath.Join(dir, "self")
		group := "/agent"
		if version.v1 {
			c.tree, file, group = &hierarchy{mounts: map[string]string{"memory": dir}}, "memory.memsw.limit_in_bytes", "/"
		}
		if version.perQOS {
			group = c.names.qos(v1.PodQOSGuaranteed)
		}
		if err := errors.Join(os.WriteFile(c.self, []byte("0::/agent\n"), 0o600), os.MkdirAll(filepath.Join(dir, group), 0o700)); err != nil {
			t.Fatal(err)
		}
		if can, err := c.SwapController(); can || err != nil {
			t.Errorf("%+v, without %s: %t, %v", version, file, can, err)
		}
		if err := os.WriteFile(filepath.Join(dir, group, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if can, err := c.SwapController(); !can || err != nil {
			t.Errorf("%+v, with %s: %t, %v", version, file, can, err)
		}
	}
}
