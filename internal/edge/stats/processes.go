package stats

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processUsage counts the processes of a control group and their descriptors and sockets. A number that was not measured is nil.
type processUsage struct {
	count, descriptors, sockets *uint64
	openFiles                   *int64 // soft limit of the first process; -1: unlimited
}

// A container may have any number of processes with any number of descriptors, so these constants bound the cost of counting
// them.
const (
	mostProcesses   = 2_000
	mostDescriptors = 20_000 // limit for one group, because the agent reads each descriptor to find the sockets
)

// processes counts the processes of the group itself, without the groups below, and their descriptors. It leaves out the numbers of a
// group that has too many processes or descriptors to count.
func (r *reader) processes() processUsage {
	text, ok := r.text("memory", "cgroup.procs")
	if !ok {
		return processUsage{}
	}
	pids := strings.Fields(text)
	u := processUsage{count: ptr(uint64(len(pids)))}
	if len(pids) == 0 || len(pids) > mostProcesses {
		return u
	}
	u.openFiles = r.openFilesLimit(pids[0])
	var sum processDescriptors
	for _, pid := range pids {
		d, err := r.descriptors(pid, mostDescriptors-int(min(sum.looked, mostDescriptors)))
		if err != nil { // the process has ended, or the agent may not read it
			continue
		}
		sum.read = true
		sum.open, sum.sockets, sum.looked = sum.open+d.open, sum.sockets+d.sockets, sum.looked+d.looked
		sum.tooMany, sum.unknown = sum.tooMany || d.tooMany, sum.unknown || d.unknown
	}
	if sum.read && !sum.unknown {
		u.descriptors = &sum.open
	}
	if sum.read && !sum.tooMany {
		u.sockets = &sum.sockets
	}
	return u
}

// processDescriptors counts the descriptors of one or of several processes.
type processDescriptors struct {
	open, sockets, looked  uint64
	read, tooMany, unknown bool // read: the process could be read; tooMany: sockets were not counted; unknown: descriptors were not counted either
}

// descriptors counts the open descriptors of a process and the sockets among them. If the process has more descriptors than the argument
// most allows, it does not count the sockets.
func (r *reader) descriptors(pid string, most int) (processDescriptors, error) {
	path := filepath.Join(r.tree.host, "proc", pid, "fd")
	dir, err := os.Open(path)
	if err != nil {
		return processDescriptors{}, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return processDescriptors{}, err
	}
	d := processDescriptors{open: uint64(len(names)), looked: uint64(len(names))}
	if len(names) > most {
		d.tooMany, d.unknown = true, true
		if info, err := dir.Stat(); err == nil && info.Size() > int64(most) { // the number of descriptors since Linux 6.2
			d.open, d.unknown = uint64(info.Size()), false
		}
		return d, nil
	}
	for _, name := range names {
		if link, err := os.Readlink(filepath.Join(path, name)); err == nil && strings.HasPrefix(link, "socket:") {
			d.sockets++
		}
	}
	return d, nil
}

// openFilesLimit returns the soft limit from the line "Max open files  1024  4096  files".
func (r *reader) openFilesLimit(pid string) *int64 {
	text, ok := slurp(filepath.Join(r.tree.host, "proc", pid, "limits"))
	if !ok {
		return nil
	}
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, "Max open files")
		f := strings.Fields(rest)
		if !found || len(f) == 0 {
			continue
		}
		if f[0] == "unlimited" {
			return ptr(int64(-1))
		}
		if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
			return &n
		}
	}
	return nil
}
