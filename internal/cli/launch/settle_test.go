package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// settle may only touch what the kernel finds in a file again: nothing that the process can write or has changed.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	part := func(addresses, perms, path, dirty, anonymous string) string {
		return fmt.Sprintf("%s %s 00001000 fe:00 247026 %s\nSize: 8 kB\nRss: 8 kB\nPrivate_Dirty: %s kB\nAnonymous: %s kB\nSwap: 0 kB\nLocked: 0 kB\nVmFlags: rd mr mw me\n",
			addresses, perms, path, dirty, anonymous)
	}
	text := part("400000-1322000", "r-xp", "/usr/bin/wherry", "0", "0") +
		part("1322000-232a000", "r--p", "/usr/bin/wherry (deleted)", "0", "0") +
		part("2320000-2324000", "rw-p", "", "16", "16") +
		part("232a000-2400000", "rw-p", "/usr/bin/wherry", "0", "0") +
		part("2400000-2500000", "r--p", "/usr/bin/wherry", "4", "4") + // relocations
		part("2800000-2900000", "r--p", "/usr/bin/new", "8", "0") + // the file is not yet on the disk
		part("2500000-2600000", "r--p", "", "0", "0") +
		part("2600000-2700000", "r--p", "[vvar]", "0", "0") +
		part("2700000-2700001", "r--s", "/shared", "0", "0") +
		part("zz-2700001", "r--p", "/no/address", "0", "0") +
		part("3000800-3001800", "r--p", "/no/page", "0", "0") +
		"garbage\n\n- - - - - -\n"
	want := []mapping{{0x400000, 0x1322000}, {0x1322000, 0x232a000}, {0x2800000, 0x2900000}}
	if got := unchanged(text, 4096); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// A node settles 5 s after its start or its last action, and every 5 minutes while it stays at rest.
func TestNodeAtRestSettlesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []string
		acted, stop := atRest(func() { at = append(at, time.Since(began).String()) })
		time.Sleep(4 * time.Second)
		acted() // at 4 s
		time.Sleep(11 * time.Minute)
		acted() // at 11m4s
		time.Sleep(time.Minute)
		stop()
		acted()
		time.Sleep(time.Hour)
		if want := []string{"9s", "5m9s", "10m9s", "11m9s"}; !slices.Equal(at, want) {
			t.Errorf("settled at %s, want %s", at, want)
		}
	})
}

// settle gives the pages of a file back that the process has only read, and the process can still read them: of a program that has long been there,
// and of one that was just installed.
func TestSettle(t *testing.T) {
	content, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(installed, content, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/bin/sh", installed} {
		checkSettle(t, path)
	}
}

func checkSettle(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(content) }()
	for range 2 {
		if string(content[:4]) != "\x7fELF" {
			t.Fatalf("%s: the content is %q", path, content[:4])
		}
		at := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&content[0])))
		if n := resident(t, at); n == 0 {
			t.Errorf("%s: a page that was read is not resident", path)
		}
		settle()
		if n := resident(t, at); n != 0 {
			t.Errorf("%s: %d KiB are resident after settle", path, n)
		}
	}
}

// resident returns how many KiB of the mapping at an address are in memory.
func resident(t *testing.T, at string) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut("\n"+string(text), "\n"+at)
	_, rest, _ = strings.Cut(rest, "Rss:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("no mapping at %s: %v", at, err)
	}
	return n
}
