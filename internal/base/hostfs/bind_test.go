package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountOptionsOfABindMount(t *testing.T) {
	t.Parallel()
	needRoot(t)
	h, base := Host{}, t.TempDir()
	source, target, other := filepath.Join(base, "source"), filepath.Join(base, "target"), filepath.Join(base, "other")
	must(t, os.Mkdir(source, 0o755), os.Mkdir(target, 0o755), os.Mkdir(other, 0o755))
	mountTmpfs(t, h, source, unix.MS_NOSUID)
	t.Cleanup(func() { must(t, h.Unmount(target), h.Unmount(other), h.Unmount(source)) })
	for _, at := range []string{target, other} {
		if on, err := h.Mounted(at); on || err != nil {
			t.Errorf("%s is mounted before the mount: %v, %v", at, on, err)
		}
		f, err := h.OpenDir(source)
		must(t, err)
		must(t, h.Bind(f, at), f.Close())
		if on, err := h.Mounted(at); !on || err != nil {
			t.Errorf("%s is not mounted: %v", at, err)
		}
	}
	without, err := h.SetMountOptions(target, []string{"ro,noexec", "noatime", "uid=3"})
	must(t, err)
	if !slices.Equal(without, []string{"uid=3"}) {
		t.Errorf("options without effect: %q", without)
	}
	for at, want := range map[string]string{target: "ro,nosuid,noexec,noatime", other: "rw,nosuid,relatime", source: "rw,nosuid,relatime"} {
		if got := optionsOf(t, at); got != want {
			t.Errorf("options of %s: %s, want %s", at, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only mount can be written to: %v", err)
	}
	if _, err := h.SetMountOptions(target, []string{"rw"}); err != nil || optionsOf(t, target) != "rw,nosuid,noexec,noatime" {
		t.Errorf("after rw: %s, %v", optionsOf(t, target), err)
	}
}

func TestOpenDirRefusesAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	if _, err := (Host{}).OpenDir(file); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("error %v, want ENOTDIR", err)
	}
	if on, err := (Host{}).Mounted(filepath.Join(file+".missing", "x")); on || err != nil {
		t.Errorf("below a missing directory: mounted %v, %v", on, err)
	}
}
