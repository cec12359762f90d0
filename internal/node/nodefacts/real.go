package nodefacts

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Real is the machine that the agent runs on.
type Real struct {
	Proc hostfs.Machine
	Disk hostfs.Host
	// RootDir is a directory on the file system that pods write to. ImageDir returns the directory where the runtime keeps images, or ""
	// while that is unknown.
	RootDir  string
	ImageDir func() string
	// LayerDir returns the directory where the runtime keeps the writable layers of containers, or "" while that is unknown. Nil: no
	// threshold depends on the file system of this directory.
	LayerDir func() string
	// Pods returns the memory that all pods together use, in bytes, without page cache; nil: the signal is not measured. If the result
	// with page cache is not above the argument enough, Pods may return it without subtracting the page cache.
	Pods func(enough uint64) (used uint64, ok bool)
	// PodsMemory returns how much memory all pods together may use, in bytes.
	PodsMemory func() int64
	// Wanted returns how much of a limit of the pods' memory has to be available so that no threshold is met, in bytes; nil: there are no
	// thresholds.
	Wanted func(limit int64) int64
	// Hostname is the name of the host, which Network looks up; "": it looks up no name. Lookup finds the addresses of a name; nil: the
	// resolver of this process.
	Hostname string
	Lookup   func(ctx context.Context, network, name string) ([]netip.Addr, error)
	// AllAddresses makes Network return every address of the host, because configured node IPs are checked against them. The host's name is
	// not looked up then.
	AllAddresses bool

	mu       sync.Mutex // guards the last list of addresses, and the last answer about the host's name
	listed   []netip.Addr
	listedAt time.Time
	named    []netip.Addr
	nameDue  time.Time   // when the name is looked up again; zero: no lookup has ended yet
	lookup   *nameLookup // the lookup that runs; nil: none
	closed   bool
}

var _ Machine = (*Real)(nil)

// Facts reads the facts that do not change.
func (r *Real) Facts() (nodestatus.Machine, error) {
	f, err := r.Proc.Facts()
	if err != nil {
		return nodestatus.Machine{}, err
	}
	m := nodestatus.Machine{
		MachineID: f.MachineID, SystemUUID: f.SystemUUID, BootID: f.BootID, KernelVersion: f.KernelVersion, OSImage: f.OSImage,
		CPUs: f.CPUs, MemoryBytes: int64(f.MemoryBytes), SwapBytes: int64(f.SwapBytes), HugePages: map[int64]int64{},
	}
	for _, h := range f.HugePages {
		m.HugePages[int64(h.PageBytes)] = int64(h.Pages)
	}
	return m, nil
}

// EphemeralStorage returns the size of RootDir's file system, in bytes.
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
	if m, err := r.Proc.Memory(); err == nil {
		s[pressure.MemoryAvailable] = pressure.Observation{Available: int64(m.AvailableBytes), Capacity: int64(m.TotalBytes)}
	}
	r.disk(s, r.RootDir, pressure.NodefsAvailable, pressure.NodefsInodesFree)
	if dir := r.ImageDir(); dir != "" {
		r.disk(s, dir, pressure.ImagefsAvailable, pressure.ImagefsInodesFree)
	}
	if r.LayerDir != nil {
		if dir := r.LayerDir(); dir != "" {
			r.disk(s, dir, pressure.ContainerfsAvailable, pressure.ContainerfsInodesFree)
		}
	}
	if most := r.Proc.PIDMax(); most > 0 { // read each time, because an administrator may change it
		if used, err := r.Proc.Tasks(); err == nil {
			s[pressure.PIDAvailable] = pressure.Observation{Available: most - used, Capacity: most}
		}
	}
	if r.Pods != nil && r.PodsMemory != nil {
		limit := r.PodsMemory()
		if used, ok := r.Pods(r.fewEnough(limit)); ok && limit > 0 {
			s[pressure.AllocatableMemoryAvailable] = pressure.Observation{Available: limit - int64(used), Capacity: limit}
		}
	}
	return s
}

// fewEnough returns how much memory pods may use, page cache included, so that the page cache need not be subtracted: if they use at most that
// much, no threshold is met.
func (r *Real) fewEnough(limit int64) uint64 {
	few := limit / 4 * 3
	if r.Wanted != nil {
		few = min(few, limit-r.Wanted(limit))
	}
	return uint64(max(few, 0))
}

func (r *Real) disk(s pressure.Signals, dir string, bytes, inodes pressure.Signal) {
	capacity, available, all, free, err := r.Disk.DiskSpace(dir)
	if err != nil {
		return
	}
	s[bytes] = pressure.Observation{Available: int64(available), Capacity: int64(capacity)}
	if all > 0 {
		s[inodes] = pressure.Observation{Available: int64(free), Capacity: int64(all)}
	}
}

// Network reads the host's addresses.
func (r *Real) Network() nodestatus.Network {
	var n nodestatus.Network
	n.DefaultV4 = defaultAddress(r.Proc.Root+"/proc/net", false)
	n.DefaultV6 = defaultAddress(r.Proc.Root+"/proc/net", true)
	if !r.AllAddresses {
		n.Resolved = r.addressesOfName()
	}
	if r.AllAddresses || len(n.Resolved) > 0 {
		n.Interfaces = r.addresses()
	}
	return n
}
