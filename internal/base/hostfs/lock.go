package hostfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another open file holds the lock. Its process may be this one.
var ErrLocked = errors.New("it is locked")

// Lock locks an open file or directory for as long as the file is open (flock(2)): the kernel releases the lock when the process ends,
// however it ends. It does not wait: if the file is locked, it returns ErrLocked.
func Lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// LockDir opens and locks a directory. The caller closes the file to release the lock. If the directory is locked, the error wraps ErrLocked
// and names the process, if the kernel tells which one it is.
func LockDir(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = Lock(f)
	if err == nil {
		return f, nil
	}
	defer f.Close()
	if pid := holderOf(f); errors.Is(err, ErrLocked) && pid != 0 {
		err = fmt.Errorf("%w by process %d", err, pid)
	}
	return nil, err
}

// holderOf returns the ID of the process that has locked a file, or 0 if the kernel does not tell: the process may be in another PID
// namespace.
func holderOf(f *os.File) int {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	return lockHolder(bufio.NewScanner(locks), fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino))
}

// lockHolder finds the holder of a lock in lines of /proc/locks: "NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END". A line of
// a process that waits has "->" after the number.
func lockHolder(lines *bufio.Scanner, file string) int {
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
