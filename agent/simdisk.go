package agent

import (
	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/node/nodefacts"
)

// simulatedDisk is the disk of a simulated machine: one file system. Only the logs of containers, if the machine has any, lie on the disk of the
// real machine; the embedded Host measures them.
type simulatedDisk struct {
	hostfs.Host
	machine *Machine
}

// DiskSpace returns the size and the free space of the machine's only file system.
func (d simulatedDisk) DiskSpace(string) (capacity, available, inodes, inodesFree uint64, err error) {
	whole := d.machine.Whole().Storage
	return uint64(whole), uint64(max(0, whole-d.machine.used().Storage)), nodefacts.FixedInodes, nodefacts.FixedInodes, nil
}
