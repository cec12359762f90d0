package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CPU is processor time, user and system, that the parts of a node have used. Unlike the time that a clock shows, it
// hardly depends on what else the machine does.
type CPU struct {
	Containerd time.Duration // the process itself
	Programs   time.Duration // programs that containerd runs: network plugins, and the starters of shims
	Shims      time.Duration // shims and what they run: runc, and what a container does before it is one
	API        time.Duration // kube-apiserver
	Etcd       time.Duration
	Plane      time.Duration // the rest of the control plane: scheduler, controllers
	Agent      time.Duration // with its children; zero where the benchmark itself is the agent
	Bench      time.Duration // the benchmark's own
}

// All returns the sum.
func (c CPU) All() time.Duration {
	return c.Containerd + c.Programs + c.Shims + c.API + c.Etcd + c.Plane + c.Agent + c.Bench
}

// Sub returns what was used since b was taken.
func (c CPU) Sub(b CPU) CPU {
	return CPU{c.Containerd - b.Containerd, c.Programs - b.Programs, c.Shims - b.Shims,
		c.API - b.API, c.Etcd - b.Etcd, c.Plane - b.Plane, c.Agent - b.Agent, c.Bench - b.Bench}
}

// runtimeCgroup holds containerd and all that it starts: shims outlive their parents, and the time of one that has ended is
// in no file of /proc.
func runtimeCgroup() string { return Cgroup("runtime") }

// cpuController returns the directory of the hierarchy that counts processor time.
func cpuController() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/cpuacct"
}

// meter puts the runtime where its processor time is counted.
func (r *Rig) meter() error {
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(r.Socket), "containerd.pid"))
	if err != nil {
		return err
	}
	f := strings.Fields(string(pid))
	if len(f) == 0 {
		return fmt.Errorf("containerd.pid is empty")
	}
	if r.runtimePID, err = strconv.Atoi(f[0]); err != nil {
		return err
	}
	dir := cpuController() + runtimeCgroup()
	r.cgroups = append(r.cgroups, runtimeCgroup())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(f[0]), 0o644)
}

// CPU returns what was used until now; agent is the process of the agent under test, or 0.
func (r *Rig) CPU(agent int) (CPU, error) {
	all, err := cgroupCPU(cpuController() + runtimeCgroup())
	if err != nil {
		return CPU{}, err
	}
	var c CPU
	if c.Containerd, c.Programs, err = processCPU(r.runtimePID); err != nil {
		return CPU{}, err
	}
	c.Shims = all - c.Containerd - c.Programs
	if err := c.plane(r.plane.Process.Pid); err != nil {
		return CPU{}, err
	}
	if agent != 0 {
		own, children, err := processCPU(agent)
		if err != nil {
			return CPU{}, err
		}
		c.Agent = own + children
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return CPU{}, err
	}
	c.Bench = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	return c, nil
}

func cgroupCPU(dir string) (time.Duration, error) {
	if b, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return time.Duration(ns), err
	}
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "usage_usec" {
			us, err := strconv.ParseInt(f[1], 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no usage_usec", dir)
}

// plane adds what the control plane has used: one process that starts one for each part.
func (c *CPU) plane(pid int) error {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, p := range procs {
		child, err := strconv.Atoi(p.Name())
		if err != nil || child != pid && parent(child) != pid {
			continue
		}
		own, children, err := processCPU(child)
		if err != nil {
			continue // it has ended
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		switch f := strings.Split(string(args), "\x00"); {
		case slices.Contains(f, "kube-apiserver"):
			c.API += own + children
		case slices.Contains(f, "etcd"):
			c.Etcd += own + children
		default:
			c.Plane += own + children
		}
	}
	return nil
}

func parent(pid int) int {
	f, err := stat(pid)
	if err != nil {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1])
	return ppid
}

// stat returns what /proc/PID/stat has after the program's name, which is in parentheses and may hold anything.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	return f, nil
}

// processCPU returns what a process and those of its children that it has waited for have used.
func processCPU(pid int) (own, children time.Duration, err error) {
	f, err := stat(pid)
	if err != nil {
		return 0, 0, err
	}
	const tick = time.Second / 100 // USER_HZ is 100 wherever Linux runs
	var ticks [4]time.Duration
	for i := range ticks { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(f[11+i], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks[i] = time.Duration(n) * tick
	}
	return ticks[0] + ticks[1], ticks[2] + ticks[3], nil
}
