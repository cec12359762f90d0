package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mountTmpfs(t *testing.T, h Host, target string, flags uintptr) {
	t.Helper()
	_, err := h.MountTmpfs(target, 1<<20, 0o755, -1, flags)
	must(t, err)
}

// optionsOf returns the kernel's options of the mount on target.
func optionsOf(t *testing.T, target string) string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range bytes.Lines(table) {
		if f := strings.Fields(string(line)); len(f) > 5 && f[4] == target {
			return f[5]
		}
	}
	t.Fatalf("nothing is mounted on %s", target)
	return ""
}

func TestMountTmpfsTakesFlags(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for flags, want := range map[uintptr]string{
		0: "rw,relatime", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC: "rw,nosuid,nodev,noexec,relatime",
	} {
		h, dir := Host{}, t.TempDir()
		mountTmpfs(t, h, dir, flags)
		t.Cleanup(func() { _ = h.Unmount(dir) })
		if got := optionsOf(t, dir); got != want {
			t.Errorf("flags %#x: options %s, want %s", flags, got, want)
		}
	}
}

// If the kernel does not know the option noswap (EINVAL), the tmpfs is mounted without it, and maySwap is true if the machine has swap
// space. After any other error, such as ENOMEM, there is no attempt without noswap, so that a lack of memory does not turn off the
// protection.
func TestTmpfsFallsBackToSwapOnlyOnOldKernels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second error
		swaps         bool
		tried         string
		maySwap       bool
		err           error
	}{
		"new kernel":               {nil, nil, true, "mode=1777,noswap", false, nil},
		"old kernel, no swap":      {unix.EINVAL, nil, false, "mode=1777,noswap mode=1777", false, nil},
		"old kernel, swap":         {unix.EINVAL, nil, true, "mode=1777,noswap mode=1777", true, nil},
		"no memory":                {unix.ENOMEM, nil, true, "mode=1777,noswap", false, unix.ENOMEM},
		"not allowed":              {unix.EPERM, nil, true, "mode=1777,noswap", false, unix.EPERM},
		"old kernel and no memory": {unix.EINVAL, unix.ENOMEM, true, "mode=1777,noswap mode=1777", false, unix.ENOMEM},
	} {
		var tried []string
		maySwap, err := mountWithoutSwap("mode=1777", func(options string) error {
			tried = append(tried, options)
			answer := c.first
			if len(tried) > 1 {
				answer = c.second
			}
			if answer != nil {
				return fmt.Errorf("mount: %w", answer)
			}
			return nil
		}, func() bool { return c.swaps })
		if maySwap != c.maySwap || !errors.Is(err, c.err) || strings.Join(tried, " ") != c.tried {
			t.Errorf("%s: %t, %v after %q; want %t, %v after %q", name, maySwap, err, tried, c.maySwap, c.err, c.tried)
		}
	}
}
