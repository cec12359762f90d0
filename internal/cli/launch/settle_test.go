package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
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
		part("232a000-2400000", "rw-p", "/usr/bin/wherry", "0", "0") +
		part("2400000-2500000", "r--p", "/usr/bin/wherry", "4", "4") + // relocations
		part("2500000-2600000", "r--p", "", "0", "0") +
		part("2600000-2700000", "r--p", "[vvar]", "0", "0") +
		part("2700000-2700001", "r--s", "/shared", "0", "0") +
		part("zz-2700001", "r--p", "/no/address", "0", "0") +
		part("3000800-3001800", "r--p", "/no/page", "0", "0") +
		"garbage\n\n- - - - - -\n"
	want := []mapping{{0x400000, 0x1322000}, {0x1322000, 0x232a000}}
	if got := unchanged(text, 4096); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// The program still works after settle, and its code is among what settle gives back.
func TestSettle(t *testing.T) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if len(unchanged(string(text), os.Getpagesize())) == 0 {
		t.Errorf("nothing of the program can be given back:\n%s", text)
	}
	settle()
	if got := strings.Repeat("still here ", 2); got != "still here still here " {
		t.Errorf("got %q", got)
	}
}
