package hostfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// After SetGroup the group may read and write the whole volume. Files outside of the volume to which a link in it points, and mounts inside
// the volume, stay as they are.
func TestSetGroup(t *testing.T) {
	t.Parallel()
	needRoot(t)
	h, base := Host{}, t.TempDir()
	dir, outside := filepath.Join(base, "volume"), filepath.Join(base, "outside")
	inside := filepath.Join(dir, "sub", "mounted")
	must(t, os.MkdirAll(inside, 0o755), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "sub", "file"), nil, 0o600), os.WriteFile(filepath.Join(dir, "program"), nil, 0o755))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")), os.Symlink(outside, filepath.Join(dir, "sub", "linked")))
	disk, onto := filepath.Join(base, "disk"), filepath.Join(dir, "file-of-another-disk")
	must(t, os.Mkdir(disk, 0o755), os.WriteFile(onto, nil, 0o600))
	mountTmpfs(t, h, disk, 0)
	must(t, os.WriteFile(filepath.Join(disk, "file"), nil, 0o600), unix.Mount(filepath.Join(disk, "file"), onto, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, h.Unmount(onto), h.Unmount(disk)) })
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600), unix.Mount(outside, inside, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, h.Unmount(inside)) })

	const group = 4321
	if done, err := h.HasGroup(dir, group); done || err != nil {
		t.Errorf("has the group before: %v, %v", done, err)
	}
	for range 2 {
		must(t, h.SetGroup(t.Context(), dir, group))
	}
	if done, err := h.HasGroup(dir, group); !done || err != nil {
		t.Errorf("has not the group: %v", err)
	}
	for path, want := range map[string]string{
		"volume": "4321 42775", "volume/sub": "4321 42775", "volume/sub/file": "4321 100660", "volume/program": "4321 100775",
		"volume/pipe": "4321 10660", "volume/link": "4321 120777", "volume/sub/linked": "4321 120777",
		"outside": "0 40700", "outside/secret": "0 100600", "volume/sub/mounted": "0 40700", "disk/file": "0 100600",
	} {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(base, path), &st))
		if got := fmt.Sprintf("%d %o", st.Gid, st.Mode); got != want {
			t.Errorf("%s: group and mode %s, want %s", path, got, want)
		}
	}
}

func TestSetGroupEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Host{}).SetGroup(ctx, dir, os.Getgid()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if done, _ := (Host{}).HasGroup(dir, os.Getgid()); done {
		t.Error("the directory counts as done, although its files were not changed")
	}
}
