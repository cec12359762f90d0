package plugin

import (
	"io/fs"
	"syscall"
)

// inodeOf returns what identifies a file on this machine.
func inodeOf(info fs.FileInfo) [2]uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return [2]uint64{uint64(st.Dev), st.Ino}
	}
	return [2]uint64{}
}
