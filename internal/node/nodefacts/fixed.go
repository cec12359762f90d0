package nodefacts

import (
	"context"
	"net/netip"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Fixed is a machine that does not exist, with the shape that somebody gave it. Its signals are what its simulated
// users leave over.
type Fixed struct {
	Machine nodestatus.Machine
	Storage int64 // bytes
	PIDs    int64
	Address netip.Addr
	// Used tells what the simulated pods use at the moment; nil: nothing.
	Used func() (memory, storage, pids int64)
}

var _ Machine = (*Fixed)(nil)

// Facts returns the shape.
func (f *Fixed) Facts() (nodestatus.Machine, error) { return f.Machine, nil }

// EphemeralStorage returns the shape's.
func (f *Fixed) EphemeralStorage() int64 { return f.Storage }

// Network has the one address.
func (f *Fixed) Network() nodestatus.Network {
	n := nodestatus.Network{Interfaces: []netip.Addr{f.Address}}
	if f.Address.Is4() {
		n.DefaultV4 = f.Address
	} else {
		n.DefaultV6 = f.Address
	}
	return n
}

// Signals are capacity less use.
func (f *Fixed) Signals(context.Context) pressure.Signals {
	var memory, storage, pids int64
	if f.Used != nil {
		memory, storage, pids = f.Used()
	}
	of := func(capacity, used int64) pressure.Observation {
		return pressure.Observation{Available: max(0, capacity-used), Capacity: capacity}
	}
	const inodes = 1 << 24
	return pressure.Signals{
		pressure.MemoryAvailable:            of(f.Machine.MemoryBytes, memory),
		pressure.AllocatableMemoryAvailable: of(f.Machine.MemoryBytes, memory),
		pressure.NodefsAvailable:            of(f.Storage, storage),
		pressure.NodefsInodesFree:           of(inodes, 0),
		pressure.ImagefsAvailable:           of(f.Storage, storage),
		pressure.ImagefsInodesFree:          of(inodes, 0),
		pressure.PIDAvailable:               of(f.PIDs, pids),
	}
}
