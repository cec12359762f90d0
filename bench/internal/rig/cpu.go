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

// CPU is the processor time, user and system, that each part of a node has used. Unlike elapsed time, it hardly depends on other load on
// the machine.
type CPU struct {
	Containerd time.Duration // containerd itself
	Programs   time.Duration // programs that containerd runs: network plugins, and the short processes that start shims
	Shims      time.Duration // shims and the programs that they run: runc, and init processes of containers before their own program starts
	API        time.Duration // kube-apiserver
	Etcd       time.Duration
	Plane      time.Duration // scheduler and controllers
	Agent      time.Duration // the agent and its children; zero if the benchmark itself is the agent
	Bench      time.Duration // the benchmark itself
}

// All returns the sum of all parts.
func (c CPU) All() time.Duration {
	return c.Containerd + c.Programs + c.Shims + c.API + c.Etcd + c.Plane + c.Agent + c.Bench
}

// Sub returns the processor time that was used between the measurement b and the measurement c.
func (c CPU) Sub(b CPU) CPU {
	return CPU{c.Containerd - b.Containerd, c.Programs - b.Programs, c.Shims - b.Shims,
		c.API - b.API, c.Etcd - b.Etcd, c.Plane - b.Plane, c.Agent - b.Agent, c.Bench - b.Bench}
}

// runtimeCgroup is the cgroup of containerd and of all processes that it starts. Their processor time cannot be read from /proc instead:
// shims outlive their parents, and /proc has no times of ended processes.
func runtimeCgroup() string { return Cgroup("runtime") }

// cpuController returns the directory of the hierarchy that counts processor time.
func cpuController() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "/sys/fs/cgroup"
	}
	return "/sys/fs/cgroup/cpuacct"
}

// meter moves containerd into runtimeCgroup, so that the kernel counts its processor time.
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

// CPU returns the processor time that the parts of the node have used until now. agent is the process ID of the measured agent, or 0 if
// there is none.
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
	if err := c.planeAndBench(r); err != nil {
		return CPU{}, err
	}
	if agent != 0 {
		own, children, err := processCPU(agent)
		if err != nil {
			return CPU{}, err
		}
		c.Agent = own + children
	}
	return c, nil
}

// PlaneCPU returns the processor time that the control plane and the benchmark itself have used until now; the other parts are zero.
func (r *Rig) PlaneCPU() (c CPU, err error) {
	err = c.planeAndBench(r)
	return c, err
}

func (c *CPU) planeAndBench(r *Rig) error {
	if err := c.plane(r.plane.Process.Pid); err != nil {
		return err
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return err
	}
	c.Bench = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	return nil
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

// plane adds the processor time of the control plane, which is one process with a child process for each component.
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
			continue // the process has ended
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

// afterName returns the fields of a line of /proc/PID/stat that follow the program's name. The name is in parentheses and may itself
// contain parentheses and spaces; the fields after it contain no parentheses.
func afterName(line string) []string {
	return strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
}

// stat returns the fields of /proc/PID/stat after the program's name.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	f := afterName(string(b))
	if len(f) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	return f, nil
}

// processCPU returns the processor time of a process, and of those of its children that have ended and been waited for.
func processCPU(pid int) (own, children time.Duration, err error) {
	f, err := stat(pid)
	if err != nil {
		return 0, 0, err
	}
	const tick = time.Second / 100 // USER_HZ is 100 on all systems that Linux supports
	var ticks [4]time.Duration
	for i := range ticks { // the fields utime, stime, cutime, cstime
		n, err := strconv.ParseInt(f[11+i], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks[i] = time.Duration(n) * tick
	}
	return ticks[0] + ticks[1], ticks[2] + ticks[3], nil
}
