package stats

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reader reads the files of one control group. A missing file gives nil: a root group has fewer files than others, and a controller
// may not be enabled.
type reader struct {
	tree  tree
	group string
	now   time.Time
	want  level
}

// read takes one reading of a control group; ok is false if the group does not exist.
func (t tree) read(group string, now time.Time, want level) (u usage, ok bool) {
	r := reader{tree: t, group: group, now: now, want: want}
	u = usage{at: now, cpu: r.cpu(), memory: r.memory()}
	if u.cpu == nil && u.memory == nil {
		return usage{}, false
	}
	u.swap = r.swap(u.memory)
	if want == everything {
		u.pids = r.number("pids", "pids.current")
		if t.v2 {
			u.psi = psiUsage{cpu: r.psi("cpu.pressure"), memory: r.psi("memory.pressure"), io: r.psi("io.pressure")}
		}
	}
	if want != usageOnly && u.memory != nil {
		if limit := r.memoryLimit(); limit != nil {
			u.memory.available = ptr(less(*limit, *u.memory.workingSet))
		}
	}
	return u, true
}

func (r *reader) text(controller, name string) (string, bool) {
	return slurp(r.tree.dir(controller, r.group) + "/" + name)
}

// slurp reads a file of /proc or of a control group. Such files are short and never block, so it reads them without the poller that
// os.Open sets up.
func slurp(path string) (string, bool) {
	fd, err := open(path)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, 2048)
	for {
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return "", false
		case n == 0:
			return strings.TrimSpace(string(buf)), true
		}
		if buf = buf[:len(buf)+n]; len(buf) == cap(buf) {
			buf = slices.Grow(buf, cap(buf))
		}
	}
}

func open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (r *reader) number(controller, name string) *uint64 {
	text, ok := r.text(controller, name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil { // "max", or something that is not a number
		return nil
	}
	return &n
}

func (r *reader) table(controller, name string) map[string]uint64 {
	text, ok := r.text(controller, name)
	if !ok {
		return nil
	}
	out := make(map[string]uint64, 48)
	for line := range strings.Lines(text) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64); err == nil {
			out[key] = n
		}
	}
	return out
}

func (r *reader) cpu() *cpuUsage {
	if r.tree.v2 {
		stat := r.table("", "cpu.stat")
		total, ok := stat["usage_usec"]
		if !ok {
			return nil
		}
		return &cpuUsage{
			at: r.now, nanos: total * 1000, user: micros(stat, "user_usec"), system: micros(stat, "system_usec"),
			periods: entry(stat, "nr_periods"), throttled: entry(stat, "nr_throttled"), throttle: micros(stat, "throttled_usec"),
			bursts: entry(stat, "nr_bursts"), burst: micros(stat, "burst_usec"),
		}
	}
	total := r.number("cpuacct", "cpuacct.usage")
	if total == nil {
		return nil
	}
	if r.want != everything {
		return &cpuUsage{at: r.now, nanos: *total}
	}
	stat := r.table("cpu", "cpu.stat")
	return &cpuUsage{
		at: r.now, nanos: *total, user: r.number("cpuacct", "cpuacct.usage_user"), system: r.number("cpuacct", "cpuacct.usage_sys"),
		periods: entry(stat, "nr_periods"), throttled: entry(stat, "nr_throttled"), throttle: entry(stat, "throttled_time"),
		bursts: entry(stat, "nr_bursts"), burst: entry(stat, "burst_time"),
	}
}

func entry(m map[string]uint64, key string) *uint64 {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

func micros(m map[string]uint64, key string) *uint64 {
	if v, ok := m[key]; ok {
		return ptr(v * 1000)
	}
	return nil
}

func (r *reader) memory() *memoryUsage {
	stat := r.table("memory", "memory.stat")
	if stat == nil {
		return nil
	}
	m := &memoryUsage{at: r.now}
	if r.tree.v2 {
		m.usage = r.number("", "memory.current")
		if m.usage == nil {
			m.usage = r.inUse("MemTotal:", "MemFree:")
		}
		m.rss, m.cache, m.mapped, m.kernel = entry(stat, "anon"), entry(stat, "file"), entry(stat, "file_mapped"), entry(stat, "kernel")
		m.active, m.inactive = entry(stat, "active_file"), entry(stat, "inactive_file")
		m.faults, m.majorFaults = entry(stat, "pgfault"), entry(stat, "pgmajfault")
		m.ownFaults, m.ownMajorFaults = m.faults, m.majorFaults // v2 does not count the group's own faults separately
	} else {
		m.usage = r.number("memory", "memory.usage_in_bytes")
		m.rss, m.cache, m.mapped = entry(stat, "total_rss"), entry(stat, "total_cache"), entry(stat, "total_mapped_file")
		m.active, m.inactive = entry(stat, "total_active_file"), entry(stat, "total_inactive_file")
		m.faults, m.majorFaults = entry(stat, "total_pgfault"), entry(stat, "total_pgmajfault")
		m.ownFaults, m.ownMajorFaults = entry(stat, "pgfault"), entry(stat, "pgmajfault")
	}
	if m.usage == nil {
		return nil
	}
	if r.want == everything {
		r.memoryExtremes(m)
	}
	m.workingSet = ptr(*m.usage)
	if m.inactive != nil {
		m.workingSet = ptr(less(*m.usage, *m.inactive))
	}
	return m
}

// memoryExtremes reads the values that have files of their own: the highest usage, how often the limit was reached, and, with v1, the
// memory of the kernel.
func (r *reader) memoryExtremes(m *memoryUsage) {
	if r.tree.v2 {
		m.peak, m.failed = r.number("", "memory.peak"), entry(r.table("", "memory.events"), "max")
		return
	}
	m.peak = r.number("memory", "memory.max_usage_in_bytes")
	m.kernel, m.failed = r.number("memory", "memory.kmem.usage_in_bytes"), r.number("memory", "memory.failcnt")
}

// inUse returns a total of /proc/meminfo minus what is free of it, in bytes, because the root group of v2 counts neither memory nor swap
// space. It returns nil if the file has not both lines.
func (r *reader) inUse(total, free string) *uint64 {
	data, err := os.ReadFile(filepath.Join(r.tree.host, "proc/meminfo"))
	if err != nil {
		return nil
	}
	values := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != total && f[0] != free {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 10, 64); err == nil && n < noLimit/1024 {
			values[f[0]] = n * 1024
		}
	}
	if len(values) != 2 {
		return nil
	}
	return ptr(less(values[total], values[free]))
}

// noLimit is the smallest value that counts as "unlimited". For "unlimited", v1 shows the largest multiple of the page size, which is
// above noLimit.
const noLimit = uint64(1) << 62

func (r *reader) memoryLimit() *uint64 {
	name := "memory.limit_in_bytes"
	if r.tree.v2 {
		name = "memory.max"
	}
	if n := r.number("memory", name); n != nil && *n < noLimit {
		return n
	}
	return nil
}

func (r *reader) swap(memory *memoryUsage) *swapUsage {
	var used *uint64
	if r.tree.v2 {
		used = r.number("", "memory.swap.current")
		if used == nil && r.group == "/" {
			used = r.inUse("SwapTotal:", "SwapFree:")
		}
	} else if both := r.number("memory", "memory.memsw.usage_in_bytes"); both != nil && memory != nil {
		used = ptr(less(*both, *memory.usage))
	}
	if used == nil {
		return nil
	}
	out := &swapUsage{at: r.now, usage: used}
	if limit := r.swapLimit(); limit != nil {
		out.available = ptr(less(*limit, *used))
	}
	return out
}

func (r *reader) swapLimit() *uint64 {
	if r.tree.v2 {
		return r.number("", "memory.swap.max")
	}
	both, memory := r.number("memory", "memory.memsw.limit_in_bytes"), r.memoryLimit()
	if both == nil || *both >= noLimit || memory == nil {
		return nil
	}
	return ptr(less(*both, *memory))
}

// psi reads a file of pressure stall information with two such lines: "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", with the
// total in microseconds, and another line that begins with "full".
func (r *reader) psi(name string) *psi {
	text, ok := r.text("", name)
	if !ok { // the file is missing, or reading it fails with EOPNOTSUPP because PSI was switched off at boot
		return nil
	}
	var p psi
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		s := &p.some
		if kind == "full" {
			s = &p.full
		}
		for _, f := range strings.Fields(rest) {
			key, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || math.IsNaN(n) || n < 0 {
				continue
			}
			switch key {
			case "avg10":
				s.avg10 = n
			case "avg60":
				s.avg60 = n
			case "avg300":
				s.avg300 = n
			case "total":
				s.nanos = uint64(n) * 1000
			}
		}
	}
	return &p
}

// limits reads the limits of the control group, in the units of cgroup v1, because the metrics have these units.
func (r *reader) limits() *limits {
	l := &limits{}
	if r.tree.v2 {
		if weight := r.number("", "cpu.weight"); weight != nil {
			l.hasCPU, l.shares = true, sharesOf(*weight)
		}
		if text, ok := r.text("", "cpu.max"); ok {
			quota, period, _ := strings.Cut(text, " ")
			l.quota, _ = strconv.ParseUint(quota, 10, 64) // ParseUint returns 0 for "max", which means no limit
			l.period, _ = strconv.ParseUint(period, 10, 64)
		}
		l.reservation = orZero(r.number("", "memory.low"))
		l.swap = orZero(r.number("", "memory.swap.max"))
	} else {
		if shares := r.number("cpu", "cpu.shares"); shares != nil {
			l.hasCPU, l.shares = true, *shares
		}
		l.period = orZero(r.number("cpu", "cpu.cfs_period_us"))
		l.quota = orZero(r.number("cpu", "cpu.cfs_quota_us")) // -1 means no limit
		if n := r.number("memory", "memory.soft_limit_in_bytes"); n != nil && *n < noLimit {
			l.reservation = *n
		}
		if n := r.number("memory", "memory.memsw.limit_in_bytes"); n != nil && *n < noLimit {
			l.swap = *n
		}
	}
	l.hasMemory = true
	l.memory = orZero(r.memoryLimit())
	l.threads = r.number("pids", "pids.max")
	return l
}

func orZero(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

// sharesOf converts a CPU weight of cgroup v2 to CPU shares of cgroup v1. Runtimes convert by weight = 1 + (shares-2)*9999/262142.
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

// ooms returns how often the kernel killed a process of the control group because memory ran out.
func (r *reader) ooms() *uint64 {
	if r.tree.v2 {
		return entry(r.table("", "memory.events"), "oom_kill")
	}
	return entry(r.table("memory", "memory.oom_control"), "oom_kill")
}

// made returns when a control group was made. The modification time of its directory changes when a group is created in it. So made
// also reads the time of a file that nobody writes to, and returns the earlier time.
func (t tree) made(group string) time.Time {
	file := "cgroup.clone_children"
	if t.v2 {
		file = "cgroup.type"
	}
	var first time.Time
	for _, name := range []string{"", file} {
		info, err := os.Stat(filepath.Join(t.dir("memory", group), name))
		if err == nil && (first.IsZero() || info.ModTime().Before(first)) {
			first = info.ModTime()
		}
	}
	return first
}

// pid returns the ID of a process of the control group. The caller reads the network namespace of this process.
func (t tree) pid(group string) (string, error) {
	data, err := os.ReadFile(filepath.Join(t.dir("memory", group), "cgroup.procs"))
	if err != nil {
		return "", err
	}
	pid, _, _ := strings.Cut(string(data), "\n")
	if pid = strings.TrimSpace(pid); pid == "" || pid == "0" {
		return "", fmt.Errorf("cgroup %s: no process", group)
	}
	return pid, nil
}
