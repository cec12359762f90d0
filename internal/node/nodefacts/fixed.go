package nodefacts

import (
	"context"
	"net/netip"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Fixed is a simulated machine with a given size. Its eviction signals (memory.available, nodefs.available) are the size minus the usage
// of its simulated pods.
type Fixed struct {
	Machine nodestatus.Machine
	Storage int64 // bytes
	PIDs    int64
	Address netip.Addr
	// Used returns the current usage of the simulated pods; nil: they use nothing.
	Used func() (memory, storage, pids int64)
}

// FixedInodes is how many inodes the disk of a Fixed machine has. None is ever used.
const FixedInodes = 1 << 24

var _ Machine = (*Fixed)(nil)

// Facts returns the field Machine.
func (f *Fixed) Facts() (nodestatus.Machine, error) { return f.Machine, nil }

// EphemeralStorage returns the field Storage.
func (f *Fixed) EphemeralStorage() int64 { return f.Storage }

// Network returns the field Address as the only address of the host.
func (f *Fixed) Network() nodestatus.Network {
	n := nodestatus.Network{Interfaces: []netip.Addr{f.Address}}
	if f.Address.Is4() {
		n.DefaultV4 = f.Address
	} else {
		n.DefaultV6 = f.Address
	}
	return n
}

// Signals returns the eviction signals: capacity minus usage.
func (f *Fixed) Signals(context.Context) pressure.Signals {
	var memory, storage, pids int64
	if f.Used != nil {
		memory, storage, pids = f.Used()
	}
	of := func(capacity, used int64) pressure.Observation {
		return pressure.Observation{Available: max(0, capacity-used), Capacity: capacity}
	}
	return pressure.Signals{
		pressure.MemoryAvailable:            of(f.Machine.MemoryBytes, memory),
		pressure.AllocatableMemoryAvailable: of(f.Machine.MemoryBytes, memory),
		pressure.NodefsAvailable:            of(f.Storage, storage),
		pressure.NodefsInodesFree:           of(FixedInodes, 0),
		pressure.ImagefsAvailable:           of(f.Storage, storage),
		pressure.ImagefsInodesFree:          of(FixedInodes, 0),
		pressure.PIDAvailable:               of(f.PIDs, pids),
	}
}
