package nodefacts

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wherry-node/wherry/internal/cgroup"
	"github.com/wherry-node/wherry/internal/hostfs"
	"github.com/wherry-node/wherry/internal/nodestatus"
	"github.com/wherry-node/wherry/internal/pressure"
)

// Real is the machine that the agent runs on.
type Real struct {
	Proc hostfs.Machine
	Disk hostfs.Host
	// RootDir is where pods write; ImageDir answers where the runtime keeps images ("" while it has not said).
	RootDir  string
	ImageDir func() string
	// Pods reads the usage of all pods together; nil: the signal is not measured.
	Pods func() (cgroup.Usage, error)
	// PodsMemory is what all pods together may use, in bytes.
	PodsMemory func() int64
	Hostname   string

	pidMax atomic.Int64 // found with the facts
}

var _ Machine = (*Real)(nil)

// Facts reads what does not change.
func (r *Real) Facts() (nodestatus.Machine, error) {
	f, err := r.Proc.Facts()
	if err != nil {
		return nodestatus.Machine{}, err
	}
	r.pidMax.Store(f.PIDMax)
	m := nodestatus.Machine{
		MachineID: f.MachineID, SystemUUID: f.SystemUUID, BootID: f.BootID, KernelVersion: f.KernelVersion, OSImage: f.OSImage,
		CPUs: f.CPUs, MemoryBytes: int64(f.MemoryBytes), SwapBytes: int64(f.SwapBytes), HugePages: map[int64]int64{},
	}
	for _, h := range f.HugePages {
		m.HugePages[int64(h.PageBytes)] = int64(h.Pages)
	}
	return m, nil
}

// EphemeralStorage is the size of RootDir's file system.
func (r *Real) EphemeralStorage() int64 {
	capacity, _, _, _, err := r.Disk.DiskSpace(r.RootDir)
	if err != nil {
		return 0
	}
	return int64(capacity)
}

// Signals reads memory, disk and process IDs.
func (r *Real) Signals(context.Context) pressure.Signals {
	s := pressure.Signals{}
	now := time.Now()
	if m, err := r.Proc.Memory(); err == nil {
		s[pressure.MemoryAvailable] = pressure.Observation{Available: int64(m.AvailableBytes), Capacity: int64(m.TotalBytes), At: now}
	}
	r.disk(s, now, r.RootDir, pressure.NodefsAvailable, pressure.NodefsInodesFree)
	if dir := r.ImageDir(); dir != "" {
		r.disk(s, now, dir, pressure.ImagefsAvailable, pressure.ImagefsInodesFree)
	}
	if most := r.pidMax.Load(); most > 0 {
		if used, err := r.Proc.Tasks(); err == nil {
			s[pressure.PIDAvailable] = pressure.Observation{Available: most - used, Capacity: most, At: now}
		}
	}
	if r.Pods != nil && r.PodsMemory != nil {
		if u, err := r.Pods(); err == nil && u.Memory != nil {
			limit := r.PodsMemory()
			s[pressure.AllocatableMemoryAvailable] = pressure.Observation{Available: limit - int64(u.Memory.WorkingSet), Capacity: limit, At: now}
		}
	}
	return s
}

func (r *Real) disk(s pressure.Signals, now time.Time, dir string, bytes, inodes pressure.Signal) {
	capacity, available, all, free, err := r.Disk.DiskSpace(dir)
	if err != nil {
		return
	}
	s[bytes] = pressure.Observation{Available: int64(available), Capacity: int64(capacity), At: now}
	if all > 0 {
		s[inodes] = pressure.Observation{Available: int64(free), Capacity: int64(all), At: now}
	}
}

// Network reads the host's addresses.
func (r *Real) Network() nodestatus.Network {
	var n nodestatus.Network
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Interfaces = append(n.Interfaces, p.Addr().Unmap())
			}
		}
	}
	n.DefaultV4 = defaultAddress("proc/net/route", r.Proc.Root)
	n.DefaultV6 = defaultAddress("proc/net/ipv6_route", r.Proc.Root)
	if !n.DefaultV4.IsValid() && !n.DefaultV6.IsValid() && r.Hostname != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", r.Hostname); err == nil {
			n.Resolved = ips
		}
	}
	return n
}

// defaultAddress is the host's global address on the interface of the default route; invalid when there is none.
func defaultAddress(table, root string) netip.Addr {
	v6 := strings.HasSuffix(table, "ipv6_route")
	name := defaultInterface(root+"/"+table, v6)
	if name == "" {
		return netip.Addr{}
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}
	}
	addrs, err := ifi.Addrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is6() == v6 && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// defaultInterface finds the interface of the default route in the kernel's table.
func defaultInterface(path string, v6 bool) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(raw), "\n") {
		f := strings.Fields(line)
		switch {
		case v6 && len(f) >= 10 && f[1] == "00" && strings.Trim(f[0], "0") == "" && f[9] != "lo":
			return f[9]
		case !v6 && len(f) >= 8 && f[1] == "00000000" && f[7] == "00000000":
			return f[0]
		}
	}
	return ""
}
