package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Configure sets more lines of the agent's KubeletConfiguration, from its next start on; "": none.
func (a *Agent) Configure(lines string) { a.prog.Config = lines }

// PodsMemory returns the working set of all pods of the agent together, in bytes: what they use, without page cache that the kernel can drop at
// once. This is what agents compare with the threshold of the pods' memory.
func (a *Agent) PodsMemory() (int64, error) {
	dir, used, cache := "/sys/fs/cgroup"+a.cgroup()+"/kubepods", "memory.current", "inactive_file"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		dir, used, cache = "/sys/fs/cgroup/memory"+a.cgroup()+"/kubepods", "memory.usage_in_bytes", "total_inactive_file"
	}
	b, err := os.ReadFile(filepath.Join(dir, used))
	if err != nil {
		return 0, err
	}
	all, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, err
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == cache {
			inactive, err := strconv.ParseInt(f[1], 10, 64)
			return max(0, all-inactive), err
		}
	}
	return 0, fmt.Errorf("%s/memory.stat has no %s", dir, cache)
}

// MemoryOfMachine returns the memory of the machine in bytes, which is the MemTotal of /proc/meminfo.
func MemoryOfMachine() (int64, error) {
	var s syscall.Sysinfo_t
	err := syscall.Sysinfo(&s)
	return int64(s.Totalram) * int64(s.Unit), err
}

// Space returns how many bytes are available on the file system of the rig, which has the agents' directories and the runtime's images.
func (r *Rig) Space() (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(r.Dir, &s); err != nil {
		return 0, fmt.Errorf("size of the file system of %s: %w", r.Dir, err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// Fill takes size bytes of the rig's file system at once. The function free gives them back.
func (r *Rig) Fill(size int64) (free func() error, err error) {
	name := r.path("fill")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	free = func() error { return os.Remove(name) }
	if err := errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, size), f.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("take %d MiB of the file system: %w", size>>20, err), free())
	}
	return free, nil
}
