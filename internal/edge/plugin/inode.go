package plugin

import (
	"io/fs"
	"syscall"
)

// inodeOf returns the device and the inode number of a file, which identify it on this machine.
func inodeOf(info fs.FileInfo) [2]uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return [2]uint64{uint64(st.Dev), st.Ino}
	}
	return [2]uint64{}
}
