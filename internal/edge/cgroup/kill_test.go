package cgroup

import (
	"os"
	"path/filepath"
	"testing"
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
