package rig

import (
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
