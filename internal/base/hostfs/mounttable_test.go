package hostfs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

const mountTable = `21 1 0:19 / / rw,relatime shared:1 - ext4 /dev/root rw
36 35 98:0 /mnt1 /pods/a rw,noatime master:1 - ext3 /dev/root rw,errors=continue
37 35 98:0 / /pods/a/vol\040with\011space\134and\012more rw shared:3 master:2 - tmpfs tmpfs rw,size=1k
38 35 98:0 / /pods/ab rw - tmpfs tmpfs rw
39 35 98:0 / /pods/a/gone//deleted rw - tmpfs tmpfs rw
40 35 98:0 / /pods/a/vol\040with\011space\134and\012more rw - tmpfs tmpfs rw
41 35 98:0 / /pods/a/no\escape\99 rw - tmpfs tmpfs rw
42 35 98:0 / /other rw - overlay overlay rw,lowerdir=/pods/a
`

// Mount points are found at and below a directory, in their order, also those whose names the kernel escapes, as often as something is mounted on
// them. Package mountinfo finds the same.
func TestMountPointsBelowADirectory(t *testing.T) {
	t.Parallel()
	odd := "/pods/a/vol with\tspace\\and\nmore"
	for dir, want := range map[string][]string{
		"/pods/a": {"/pods/a", odd, "/pods/a/gone//deleted", odd, `/pods/a/no\escape\99`},
		odd:       {odd, odd},
		"/pods":   {"/pods/a", odd, "/pods/ab", "/pods/a/gone//deleted", odd, `/pods/a/no\escape\99`},
		"/none":   nil,
		"/":       {"/", "/pods/a", odd, "/pods/ab", "/pods/a/gone//deleted", odd, `/pods/a/no\escape\99`, "/other"},
	} {
		got, err := selectMounts(strings.NewReader(mountTable), func(at []byte) bool { return below(at, dir) })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("below %q: %s", dir, diff)
		}
	}
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range all {
		want = append(want, m.Mountpoint)
	}
	got, err := mountPoints(func([]byte) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 || len(want) == 0 || got[0] != want[0] { // other programs mount and unmount meanwhile
		t.Errorf("of this machine %q, package mountinfo finds %q", got, want)
	}
}

// A table that is no mount table is an error, and so is a line without end.
func TestBrokenMountTables(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"1 2 3:4 / /mnt", "\n", strings.Repeat("x", longestMount+1)} {
		if got, err := selectMounts(strings.NewReader(table), func([]byte) bool { return true }); err == nil {
			t.Errorf("%.20q: %q, want an error", table, got)
		}
	}
}

// BenchmarkMountPoints reads the table of a node with 150 containers.
func BenchmarkMountPoints(b *testing.B) {
	line := "%d 35 0:98 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/rootfs rw,relatime shared:1 - overlay overlay rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs,upperdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/2/fs,workdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/2/work\n"
	table := strings.Repeat(line, 300)
	b.Run("mountinfo", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = mountinfo.GetMountsFromReader(strings.NewReader(table), mountinfo.PrefixFilter("/pods/a"))
		}
	})
	b.Run("here", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = selectMounts(strings.NewReader(table), func(at []byte) bool { return below(at, "/pods/a") })
		}
	})
}
