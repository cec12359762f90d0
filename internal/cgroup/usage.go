package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Usage is one reading of a group's files, of the group and all below it. Counters only grow while the group
// exists. What the machine cannot tell is nil.
type Usage struct {
	At     time.Time
	CPU    *CPU
	Memory *Memory
	Pids   *uint64
	PSI    *PSI // v2 only
}

// CPU time used, in nanoseconds, and how often the quota ran out.
type CPU struct {
	Nanos                        uint64
	Periods, Throttled, Throttle uint64 // periods, periods throttled, nanoseconds throttled
}

// Memory in bytes. WorkingSet is usage less inactive file pages: what cannot be reclaimed easily, and what
// eviction goes by.
type Memory struct {
	Usage, WorkingSet, RSS, Cache, MappedFile, Swap uint64
	PageFaults, MajorPageFaults                     uint64
	Limit                                           *uint64 // nil: none
}

// PSI is pressure stall information per resource.
type PSI struct{ CPU, Memory, IO *Pressure }

// Pressure of one resource: some tasks stalled, all tasks stalled.
type Pressure struct{ Some, Full Stall }

// Stall averages are percentages over 10, 60 and 300 seconds. Total is in microseconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// NodeUsage reads the machine's root group, PodsUsage the root of all pods.
func (c *Cgroups) NodeUsage() (Usage, error) { return c.Usage("/") }

// PodsUsage reads the group of all pods together.
func (c *Cgroups) PodsUsage() (Usage, error) { return c.Usage(c.names.qos(v1.PodQOSGuaranteed)) }

// PodUsage reads a pod's group. A pod without one is fs.ErrNotExist.
func (c *Cgroups) PodUsage(uid types.UID) (Usage, error) {
	group, err := c.podGroup(uid)
	if err != nil {
		return Usage{}, err
	}
	return c.Usage(group)
}

// ContainerUsage reads the group of a container or sandbox by its ID in the runtime: the directory below the pod's
// whose name is the ID, or <runtime>-<ID>.scope.
func (c *Cgroups) ContainerUsage(uid types.UID, id string) (Usage, error) {
	pod, err := c.podGroup(uid)
	if err != nil {
		return Usage{}, err
	}
	h, err := c.hierarchy()
	if err != nil {
		return Usage{}, err
	}
	entries, err := os.ReadDir(h.dir("memory", pod))
	if err != nil {
		return Usage{}, fmt.Errorf("find cgroup of container %s: %w", id, err)
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".scope")
		if e.IsDir() && id != "" && (name == id || strings.HasSuffix(name, "-"+id)) {
			return c.Usage(filepath.Join(pod, e.Name()))
		}
	}
	return Usage{}, fmt.Errorf("find cgroup of container %s: %w", id, fs.ErrNotExist)
}

func (c *Cgroups) podGroup(uid types.UID) (string, error) {
	h, err := c.hierarchy()
	if err != nil {
		return "", err
	}
	for _, class := range classes() {
		if !isName(uid) {
			break
		}
		group := c.names.pod(class, uid)
		if _, err := os.Stat(h.dir("memory", group)); err == nil {
			return group, nil
		}
	}
	return "", fmt.Errorf("find cgroup of pod %s: %w", uid, fs.ErrNotExist)
}

// Usage reads any group, by its path below the mount point.
func (c *Cgroups) Usage(group string) (Usage, error) {
	h, err := c.hierarchy()
	if err != nil {
		return Usage{}, err
	}
	u, err := h.usage(group)
	u.At = c.config.Now()
	return u, err
}

func (h *hierarchy) usage(group string) (Usage, error) {
	read := reader{}
	var u Usage
	if h.v2 {
		dir := h.dir("", group)
		if _, err := os.Stat(dir); err != nil {
			return Usage{}, fmt.Errorf("read usage of cgroup %s: %w", group, err)
		}
		u = Usage{CPU: read.cpuV2(dir), Memory: read.memoryV2(dir), Pids: read.number(dir, "pids.current"), PSI: read.psi(dir)}
	} else {
		if _, err := os.Stat(h.dir("memory", group)); err != nil {
			return Usage{}, fmt.Errorf("read usage of cgroup %s: %w", group, err)
		}
		u = Usage{CPU: read.cpuV1(h, group), Memory: read.memoryV1(h.dir("memory", group))}
		if h.has("pids") {
			u.Pids = read.number(h.dir("pids", group), "pids.current")
		}
	}
	if read.err != nil {
		return Usage{}, fmt.Errorf("read usage of cgroup %s: %w", group, read.err)
	}
	return u, nil
}

// reader keeps the first error; a file that is not there is none: a root group has fewer files, and a group may
// lack a controller.
type reader struct{ err error }

func (r *reader) file(dir, name string) (string, bool) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && r.err == nil {
			r.err = err
		}
		return "", false
	}
	return strings.TrimSpace(string(data)), true
}

func (r *reader) number(dir, name string) *uint64 {
	text, ok := r.file(dir, name)
	if !ok || text == "max" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		if r.err == nil {
			r.err = fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	return &n
}

// table reads a file of "name number" lines.
func (r *reader) table(dir, name string) map[string]uint64 {
	text, ok := r.file(dir, name)
	if !ok {
		return nil
	}
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				out[key] = n
			}
		}
	}
	return out
}

func (r *reader) cpuV1(h *hierarchy, group string) *CPU {
	nanos := r.number(h.dir("cpuacct", group), "cpuacct.usage")
	if nanos == nil {
		return nil
	}
	stat := r.table(h.dir("cpu", group), "cpu.stat")
	return &CPU{Nanos: *nanos, Periods: stat["nr_periods"], Throttled: stat["nr_throttled"], Throttle: stat["throttled_time"]}
}

func (r *reader) cpuV2(dir string) *CPU {
	stat := r.table(dir, "cpu.stat")
	if stat == nil {
		return nil
	}
	return &CPU{
		Nanos: stat["usage_usec"] * 1000, Periods: stat["nr_periods"], Throttled: stat["nr_throttled"],
		Throttle: stat["throttled_usec"] * 1000,
	}
}

// noLimit: cgroup v1 says unlimited as the largest multiple of a page.
const noLimit = 1 << 62

func (r *reader) memoryV1(dir string) *Memory {
	usage, stat := r.number(dir, "memory.usage_in_bytes"), r.table(dir, "memory.stat")
	if usage == nil || stat == nil {
		return nil
	}
	m := &Memory{
		Usage: *usage, WorkingSet: less(*usage, stat["total_inactive_file"]), RSS: stat["total_rss"],
		Cache: stat["total_cache"], MappedFile: stat["total_mapped_file"], Swap: stat["total_swap"],
		PageFaults: stat["total_pgfault"], MajorPageFaults: stat["total_pgmajfault"],
	}
	if limit := r.number(dir, "memory.limit_in_bytes"); limit != nil && *limit < noLimit {
		m.Limit = limit
	}
	return m
}

func (r *reader) memoryV2(dir string) *Memory {
	stat := r.table(dir, "memory.stat")
	if stat == nil {
		return nil
	}
	usage := r.number(dir, "memory.current")
	if usage == nil { // the root group has no such file
		n := stat["anon"] + stat["file"]
		usage = &n
	}
	m := &Memory{
		Usage: *usage, WorkingSet: less(*usage, stat["inactive_file"]), RSS: stat["anon"], Cache: stat["file"],
		MappedFile: stat["file_mapped"], PageFaults: stat["pgfault"], MajorPageFaults: stat["pgmajfault"],
		Limit: r.number(dir, "memory.max"),
	}
	if swap := r.number(dir, "memory.swap.current"); swap != nil {
		m.Swap = *swap
	}
	return m
}

func less(a, b uint64) uint64 { return a - min(a, b) }

func (r *reader) psi(dir string) *PSI {
	p := PSI{CPU: r.pressure(dir, "cpu.pressure"), Memory: r.pressure(dir, "memory.pressure"), IO: r.pressure(dir, "io.pressure")}
	if p == (PSI{}) {
		return nil
	}
	return &p
}

// pressure parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and the same for full.
func (r *reader) pressure(dir, name string) *Pressure {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil // not there, or EOPNOTSUPP: switched off at boot
	}
	var p Pressure
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		s := &p.Some
		if kind == "full" {
			s = &p.Full
		}
		for _, f := range strings.Fields(rest) {
			key, value, _ := strings.Cut(f, "=")
			switch key {
			case "avg10":
				s.Avg10 = percent(value)
			case "avg60":
				s.Avg60 = percent(value)
			case "avg300":
				s.Avg300 = percent(value)
			case "total":
				s.Total = uint64(percent(value))
			}
		}
	}
	return &p
}

func percent(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return f
}
