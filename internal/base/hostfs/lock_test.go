package hostfs

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A directory can be locked once, the error of a second lock names the holder, and the lock ends with the file.
func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	first, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Lock(first); err != nil {
		t.Errorf("the holder locks again: %v", err)
	}
	if _, err := LockDir(dir); !errors.Is(err, ErrLocked) || err.Error() != fmt.Sprintf("it is locked by process %d", os.Getpid()) {
		t.Errorf("a second lock: %v", err)
	}
	_ = first.Close()
	second, err := LockDir(dir)
	if err != nil {
		t.Fatalf("after the first holder has closed the directory: %v", err)
	}
	_ = second.Close()
	if _, err := LockDir(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestLockHolder(t *testing.T) {
	t.Parallel()
	const locks = `1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF
3: FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fe:00:79 0 EOF
5: FLOCK
`
	for file, want := range map[string]int{"fe:00:77": 33, "fe:00:78": 22, "fe:00:79": 0, "fe:00:80": 0} {
		if pid := lockHolder(bufio.NewScanner(strings.NewReader(locks)), file); pid != want {
			t.Errorf("%s: process %d, want %d", file, pid, want)
		}
	}
}
