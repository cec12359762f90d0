package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// WriteFile writes the whole file or leaves the old one, also on a disk that is full or becomes read-only, and leaves
// nothing else behind.
func TestWriteFileIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(string, []byte, fs.FileMode) error{"WriteFile": WriteFile, "ReplaceFile": ReplaceFile} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			holds := func(want string, mode fs.FileMode) {
				t.Helper()
				data, err := os.ReadFile(path)
				must(t, err)
				info, err := os.Stat(path)
				must(t, err)
				if string(data) != want || info.Mode() != mode {
					t.Errorf("holds %q, mode %v; want %q, %v", data, info.Mode(), want, mode)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
					t.Errorf("the directory has %v, %v", entries, err)
				}
			}
			must(t, write(path, []byte("one"), 0o600))
			holds("one", 0o600)
			must(t, os.WriteFile(path+Unfinished, []byte("of a process that ended, and longer than what comes"), 0o666))
			must(t, write(path, []byte("two"), 0o666)) // the file gets exactly this mode, whatever the umask is
			holds("two", 0o666)
			must(t, os.Symlink("/dev/full", path+Unfinished))
			if err := write(path, []byte("three"), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("on a full disk: %v", err)
			}
			holds("two", 0o666)
			if err := write(filepath.Join(dir, "no/file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("in a directory that does not exist: %v", err)
			}
			if os.Geteuid() != 0 {
				return // the other cases need a mount
			}
			must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			must(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			if err := write(path, []byte("four"), 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("on a read-only disk: %v", err)
			}
			holds("two", 0o666)
		})
	}
}
