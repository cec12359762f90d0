package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
)

// Where the kernel can kill a whole cgroup (cgroup.kill), the agent asks for that; with an older kernel, or cgroup v1, it has to signal each process.
// The directory is not a real cgroup here, so that the test needs no such kernel; TestRealLifeOfAPod kills a process.
func TestAWholeCgroupIsKilledAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := &hierarchy{v2: true, mounts: map[string]string{"": dir}}
	file := filepath.Join(dir, "pod", "cgroup.kill")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if all, err := h.killAll("/pod"); all || err != nil {
		t.Errorf("without cgroup.kill: %t, %v", all, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := (&hierarchy{mounts: h.mounts}).killAll("/pod"); all || err != nil {
		t.Errorf("on v1: %t, %v", all, err)
	}
	if all, err := h.killAll("/pod"); !all || err != nil {
		t.Errorf("with cgroup.kill: %t, %v", all, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "1" {
		t.Errorf("cgroup.kill: %q, %v", text, err)
	}
}

// If the kernel has cgroup.kill and fails to kill the processes with it, each of them gets a signal. The error is told only if processes are left.
func TestProcessesAreKilledOneByOneIfAllAtOnceFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("operation not supported")
		left, stays := []int{7, 8, 9}, 0
		k := killing{
			tasks: func() ([]int, error) { return left, nil },
			all:   func() (bool, error) { return false, refused },
			one: func(pid int) error {
				if pid != stays {
					left = slices.DeleteFunc(slices.Clone(left), func(p int) bool { return p == pid })
				}
				return nil
			},
		}
		if err := k.run(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("%v; %v are left", err, left)
		}
		left, stays = []int{7, 8}, 8
		if err := k.run(t.Context()); !errors.Is(err, ErrBusy) || !errors.Is(err, refused) || !slices.Equal(left, []int{8}) {
			t.Errorf("%v; %v are left, want 8, and why the kernel did not kill it", err, left)
		}
	})
}
