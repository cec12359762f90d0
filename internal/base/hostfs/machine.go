package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Machine reads what the kernel and the operating system report about the machine. All files that it reads are below Root.
type Machine struct {
	// Root is "/" on a real machine, and also if empty. In tests it is a directory with proc, sys and etc.
	Root string
}

// Facts are facts that do not change while the machine runs (except huge pages). Strings that cannot be read are empty.
type Facts struct {
	MachineID     string // /etc/machine-id
	SystemUUID    string // the firmware's UUID, or the machine ID if the firmware has none
	BootID        string
	KernelVersion string // release of the kernel, as uname -r prints it
	OSImage       string // PRETTY_NAME of os-release
	CPUs          int    // all CPUs that are online, also those that this process may not use
	MemoryBytes   uint64
	SwapBytes     uint64
	HugePages     []HugePages // huge pages, one entry for each page size
	BootTime      time.Time
}

// HugePages is a pool of pages of one size.
type HugePages struct {
	PageBytes uint64
	Pages     uint64
}

// Facts reads the facts. It fails only if the number of CPUs or the memory size is unknown, because a node cannot admit pods
// without them.
func (m Machine) Facts() (Facts, error) {
	f := Facts{
		MachineID:     m.first("etc/machine-id", "var/lib/dbus/machine-id"),
		BootID:        m.BootID(),
		KernelVersion: m.first("proc/sys/kernel/osrelease"),
		OSImage:       m.osImage(),
		HugePages:     m.hugePages(),
		BootTime:      m.bootTime(),
	}
	f.SystemUUID = m.first("sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id")
	var err error
	if f.CPUs, err = m.CPUs(); err != nil {
		return f, err
	}
	mem, err := m.Memory()
	f.MemoryBytes, f.SwapBytes = mem.TotalBytes, mem.SwapTotalBytes
	return f, err
}

// BootID returns the identifier of this run of the machine, which the kernel makes anew when it boots (random(4)). It is empty if it cannot be read.
func (m Machine) BootID() string { return m.first("proc/sys/kernel/random/boot_id") }

func (m Machine) path(rel string) string { return filepath.Join("/", m.Root, rel) }

// first returns the trimmed content of the first file that is not empty.
func (m Machine) first(paths ...string) string {
	for _, p := range paths {
		data, err := os.ReadFile(m.path(p))
		if s := strings.Trim(string(data), " \t\r\n\x00"); err == nil && s != "" {
			return s
		}
	}
	return ""
}

// CPUs returns the number of CPUs that are online. It ignores the CPU affinity and the cgroup of this process.
func (m Machine) CPUs() (int, error) {
	if n, err := parseCPUList(m.first("sys/devices/system/cpu/online")); err == nil {
		return n, nil
	}
	n := 0
	for line := range strings.Lines(m.first("proc/cpuinfo")) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "processor" {
			n++
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("count CPUs: neither %s nor %s has the number", m.path("sys/devices/system/cpu/online"), m.path("proc/cpuinfo"))
	}
	return n, nil
}

// maxCPUs bounds how many CPUs Topology looks at.
const maxCPUs = 4096

// Topology counts the physical cores and the sockets of the kernel's CPUs. It returns zeros if the kernel does not report them.
func (m Machine) Topology() (cores, sockets int) {
	type core struct{ socket, core string }
	byCore, bySocket := map[core]bool{}, map[string]bool{}
	present, err := parseCPUList(m.first("sys/devices/system/cpu/present"))
	if err != nil {
		return 0, 0
	}
	for i := range min(present, maxCPUs) {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", i)
		c := core{m.first(dir + "physical_package_id"), m.first(dir + "core_id")}
		if c.socket == "" || c.core == "" { // a CPU that is offline has no topology
			continue
		}
		byCore[c], bySocket[c.socket] = true, true
	}
	return len(byCore), len(bySocket)
}

// parseCPUList returns the number of CPUs in a list such as 0-3,8.
func parseCPUList(s string) (int, error) {
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, err := strconv.Atoi(lo)
		if err != nil {
			return 0, fmt.Errorf("CPU list %q: %w", s, err)
		}
		b, err := strconv.Atoi(hi)
		if err != nil || b < a {
			return 0, fmt.Errorf("CPU list %q: bad range %q", s, part)
		}
		n += b - a + 1
	}
	return n, nil
}

// Memory is the state of the machine's memory, in bytes.
type Memory struct {
	TotalBytes, FreeBytes, AvailableBytes uint64
	SwapTotalBytes, SwapFreeBytes         uint64
}

// Memory reads /proc/meminfo.
func (m Machine) Memory() (Memory, error) {
	path := m.path("proc/meminfo")
	data, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, fmt.Errorf("read memory size: %w", err)
	}
	var mem Memory
	fields := map[string]*uint64{
		"MemTotal": &mem.TotalBytes, "MemFree": &mem.FreeBytes, "MemAvailable": &mem.AvailableBytes,
		"SwapTotal": &mem.SwapTotalBytes, "SwapFree": &mem.SwapFreeBytes,
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		dst := fields[name]
		if dst == nil {
			continue
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || unit != "kB" {
			return mem, fmt.Errorf("read %s: line %q", path, strings.TrimSpace(line))
		}
		*dst = n * 1024
	}
	if mem.TotalBytes == 0 {
		return mem, fmt.Errorf("read %s: no MemTotal", path)
	}
	return mem, nil
}

// Tasks returns how many tasks (threads) run on the machine now.
func (m Machine) Tasks() (int64, error) {
	path := m.path("proc/loadavg") // the line is like 0.12 0.10 0.09 2/345 6789: 345 tasks
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("count tasks: %w", err)
	}
	if f := strings.Fields(string(data)); len(f) > 3 {
		if _, total, ok := strings.Cut(f[3], "/"); ok {
			if n, err := strconv.ParseInt(total, 10, 64); err == nil {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("count tasks: %s has %q", path, strings.TrimSpace(string(data)))
}

// PIDMax returns how many tasks the machine can have: the smaller of the kernel's two limits, pid_max and threads-max; 0: not known. An
// administrator can change both limits at any time.
func (m Machine) PIDMax() int64 {
	limit := int64(0)
	for _, p := range []string{"proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"} {
		if n, err := strconv.ParseInt(m.first(p), 10, 64); err == nil && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

func (m Machine) bootTime() time.Time {
	for line := range strings.Lines(m.first("proc/stat")) {
		if s, ok := strings.CutPrefix(line, "btime "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil {
				return time.Unix(n, 0)
			}
		}
	}
	return time.Time{}
}

func (m Machine) hugePages() []HugePages {
	entries, err := os.ReadDir(m.path("sys/kernel/mm/hugepages"))
	if err != nil {
		return nil
	}
	var pools []HugePages
	for _, e := range entries { // the name of an entry is, for example, hugepages-2048kB
		size, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if !ok {
			continue
		}
		kb, err := strconv.ParseUint(strings.TrimSuffix(size, "kB"), 10, 64)
		n, err2 := strconv.ParseUint(m.first(filepath.Join("sys/kernel/mm/hugepages", e.Name(), "nr_hugepages")), 10, 64)
		if errors.Join(err, err2) == nil {
			pools = append(pools, HugePages{PageBytes: kb * 1024, Pages: n})
		}
	}
	sort.Slice(pools, func(i, j int) bool { return pools[i].PageBytes < pools[j].PageBytes })
	return pools
}

// osImage returns the name that the distribution gives itself.
func (m Machine) osImage() string {
	for line := range strings.Lines(m.first("etc/os-release", "usr/lib/os-release")) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME=")
		if !ok {
			continue
		}
		if s, err := strconv.Unquote(value); err == nil {
			return s
		}
		return strings.Trim(value, `'"`)
	}
	return "Linux"
}
