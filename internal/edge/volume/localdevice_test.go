package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// emptyDisk returns a block device of 32 MiB without content.
func emptyDisk(t *testing.T) string {
	t.Helper()
	return emptyDiskOf(t, 32)
}

// emptyDiskOf returns a block device of a size in MiB without content.
func emptyDiskOf(t *testing.T, mib int64) string {
	t.Helper()
	needRoot(t)
	for _, tool := range []string{"losetup", "blkid", "mkfs.ext4", "fsck", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, mib<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).Output()
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("losetup -d: %v %s", err, out)
		}
	})
	return device
}

func onDevice(device string, mode v1.PersistentVolumeMode, f *fixture) *v1.PersistentVolume {
	pv := f.claims.bind("c", local(device))
	pv.Spec.VolumeMode = &mode
	return pv
}

// A device without content is formatted. The pods of the node share its file system, which is unmounted after the last pod has ended.
// The data stays.
func TestLocalVolumeOnADevice(t *testing.T) {
	t.Parallel()
	f, device := newFixture(t), emptyDisk(t)
	link := filepath.Join(t.TempDir(), "disk-by-id")
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	pv := onDevice(link, v1.PersistentVolumeFilesystem, f)
	pv.Spec.MountOptions = []string{"noatime"}
	one, two := claimPod("uid-1", "c"), claimPod("uid-2", "c")
	one.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(4242))}
	setUp(t, f, one)
	setUp(t, f, one)
	setUp(t, f, two)
	at := dir(t, f, one, "v")
	var st unix.Statfs_t
	if err := errors.Join(os.WriteFile(filepath.Join(at, "file"), []byte("x"), 0o644), unix.Statfs(at, &st)); err != nil {
		t.Fatal(err)
	}
	if st.Type != unix.EXT4_SUPER_MAGIC || st.Flags&unix.ST_NOATIME == 0 {
		t.Errorf("type %#x, flags %#x", st.Type, st.Flags)
	}
	if got := ownerOf(t, at); got.GID != 4242 {
		t.Errorf("owner %+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir(t, f, two, "v"), "file")); err != nil {
		t.Errorf("the second pod: %v", err)
	}
	global := filepath.Join(f.root, "plugins/kubernetes.io/local-volume/mounts/pv-c")
	down := func(uid types.UID) {
		t.Helper()
		if err := f.TearDown(t.Context(), pod.Ref{UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	down("uid-1")
	if mounted, err := host(t).Mounted(global); !mounted || err != nil {
		t.Errorf("the file system that a pod uses is not mounted at %s: %v", global, err)
	}
	down("uid-2")
	if left, err := host(t).MountPoints(f.root); len(left) > 0 || err != nil {
		t.Errorf("mounts are left: %v %v", left, err)
	}
	if _, err := os.Lstat(global); !os.IsNotExist(err) {
		t.Errorf("the directory of the device is left: %v", err)
	}

	// The next pod finds the data. Its volume is read-only.
	three := aPod(claim("v", "c", true))
	three.UID = "uid-3"
	setUp(t, f, three)
	at = dir(t, f, three, "v")
	if _, err := os.Stat(filepath.Join(at, "file")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	if err := os.WriteFile(filepath.Join(at, "more"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("written to a read-only volume: %v", err)
	}
	down("uid-3")
}

func TestBlockVolumeOnALocalDevice(t *testing.T) {
	t.Parallel()
	f, device := newFixture(t), emptyDisk(t)
	onDevice(device, v1.PersistentVolumeBlock, f)
	p := raw(claimPod("uid-1", "c"), "v")
	setUp(t, f, p)
	setUp(t, f, p)
	devices, err := f.Devices(p, &p.Spec.Containers[0])
	if err != nil || len(devices) != 1 {
		t.Fatalf("%v %v", devices, err)
	}
	if want := filepath.Join(f.root, "pods/uid-1/volumeDevices/kubernetes.io~local-volume/pv-c"); devices[0].HostPath != want || devices[0].Permissions != "mrw" {
		t.Errorf("device %v, want %s", devices[0], want)
	}
	if real, err := filepath.EvalSymlinks(devices[0].HostPath); err != nil || real != device {
		t.Errorf("the link leads to %s: %v", real, err)
	}
	held := filepath.Join(f.root, "plugins/kubernetes.io~local-volume/volumeDevices/pv-c/uid-1")
	if n := heldBy(t, held); n != 1 {
		t.Errorf("held by %d loop devices", n)
	}
	if err := f.TearDown(t.Context(), pod.Ref{UID: "uid-1"}); err != nil {
		t.Fatal(err)
	}
	if n := heldBy(t, held); n != 0 {
		t.Errorf("still held by %d loop devices", n)
	}
	if _, err := os.Lstat(filepath.Dir(held)); !os.IsNotExist(err) {
		t.Errorf("the directory of the device is left: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(f.root, "pods/uid-1")); len(left) != 0 {
		t.Errorf("left on the node: %v", left)
	}
}

// diskTools is a host whose mount tools return the outputs and errors that a test sets.
type diskTools struct {
	hostfs.Host
	answer map[string]hostfs.Ran // by the name of the tool
	fail   map[string]error
	ran    []string
}

func (d *diskTools) RunTool(_ context.Context, argv []string) (hostfs.Ran, error) {
	d.ran = append(d.ran, strings.Join(argv[:len(argv)-1], " "))
	return d.answer[argv[0]], d.fail[argv[0]]
}

func TestContentOfADevice(t *testing.T) {
	t.Parallel()
	exit := func(code int) error { return fmt.Errorf("exit status %d", code) }
	nothing := map[string]hostfs.Ran{"blkid": {Code: 2}}
	xfs := map[string]hostfs.Ran{"blkid": {Output: "DEVNAME=/dev/x\nTYPE=xfs\n"}}
	for name, tt := range map[string]struct {
		fsType   string
		readOnly bool
		answer   map[string]hostfs.Ran
		fail     map[string]error
		err      string   // the set-up fails with this text
		tools    []string // the commands that must follow blkid, each without its last argument
	}{
		"nothing is formatted":                   {"", false, nothing, map[string]error{"blkid": exit(2)}, "", []string{"mkfs.ext4 -F -m0", "mount -t ext4 DEV"}},
		"nothing is formatted as asked":          {"xfs", false, nothing, map[string]error{"blkid": exit(2)}, "", []string{"mkfs.xfs -f", "mount -t xfs DEV"}},
		"nothing and read-only":                  {"", true, nothing, map[string]error{"blkid": exit(2)}, "has no file system, and the volume is read-only", nil},
		"a file system is checked and kept":      {"", false, xfs, nil, "", []string{"fsck -a", "mount -t xfs DEV"}},
		"a file system that is only read":        {"", true, xfs, nil, "", []string{"mount -t xfs -o ro DEV"}},
		"a partition table":                      {"", false, map[string]hostfs.Ran{"blkid": {Output: "PTTYPE=gpt\n"}}, nil, "has a partition table (gpt)", nil},
		"other content":                          {"", false, map[string]hostfs.Ran{"blkid": {Output: "USAGE=raid\n"}}, nil, "content that is no file system", nil},
		"blkid cannot decide":                    {"", false, map[string]hostfs.Ran{"blkid": {Code: 8}}, map[string]error{"blkid": exit(8)}, "find the content of device", nil},
		"blkid fails with output and code 2":     {"", false, map[string]hostfs.Ran{"blkid": {Code: 2, Output: "cannot open"}}, map[string]error{"blkid": exit(2)}, "find the content of device", nil},
		"a name of a file system with a path":    {"../../bin/sh", false, nothing, nil, "is not the name of a file system", nil},
		"damage that fsck repairs":               {"", false, map[string]hostfs.Ran{"blkid": xfs["blkid"], "fsck": {Code: 1}}, map[string]error{"fsck": exit(1)}, "", []string{"fsck -a", "mount -t xfs DEV"}},
		"damage that fsck cannot repair":         {"", false, map[string]hostfs.Ran{"blkid": xfs["blkid"], "fsck": {Code: 4}}, map[string]error{"fsck": exit(4)}, "is damaged, repair it by hand: exit status 4", []string{"fsck -a"}},
		"no fsck":                                {"", false, map[string]hostfs.Ran{"blkid": xfs["blkid"], "fsck": {Code: -1}}, map[string]error{"fsck": errors.New("no program")}, "", []string{"fsck -a", "mount -t xfs DEV"}},
		"another file system than the one asked": {"ext4", false, xfs, map[string]error{"mount": exit(32)}, "which has a file system of the type xfs, as ext4: exit status 32", []string{"fsck -a", "mount -t ext4 DEV"}},
		"mkfs fails":                             {"", false, nothing, map[string]error{"blkid": exit(2), "mkfs.ext4": errors.New("too small")}, "too small", []string{"mkfs.ext4 -F -m0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, device := newFixture(t), emptyDisk(t)
			h := &diskTools{answer: tt.answer, fail: tt.fail}
			f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Claims: f.claims})
			pv := onDevice(device, v1.PersistentVolumeFilesystem, f)
			pv.Spec.Local.FSType = &tt.fsType
			p := aPod(claim("v", "c", tt.readOnly))
			err := f.SetUp(t.Context(), volume.Pod{Pod: p})
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			var got []string
			for i, line := range h.ran {
				if i > 0 {
					got = append(got, strings.ReplaceAll(line, device, "DEV"))
				}
			}
			if strings.Join(got, "\n") != strings.Join(tt.tools, "\n") {
				t.Errorf("tools %q, want %q", got, tt.tools)
			}
		})
	}
}

// sizeOf returns the size of a volume's file system in MiB.
func sizeOf(t *testing.T, at string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * uint64(st.Bsize) >> 20
}

// enlarge makes the device of emptyDiskOf 400 MiB large.
func enlarge(t *testing.T, device string) {
	t.Helper()
	file, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
	if err == nil {
		err = os.Truncate(strings.TrimSpace(string(file)), 400<<20)
	}
	if err == nil {
		err = exec.Command("losetup", "-c", device).Run()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The node grows the file system of a local device that its administrator has made larger, while a pod uses it, and writes the size into the
// claim's status. Of a directory, or a device that the pod has itself, it writes only the size. The file system is XFS, because ext4 grows only for
// a process with CAP_SYS_RESOURCE, which machines for tests do not always give.
func TestLocalVolumeGrows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode   v1.PersistentVolumeMode
		dir    bool
		before bool // the device grows before the pod starts
	}{
		"a device while a pod uses it":    {mode: v1.PersistentVolumeFilesystem},
		"a device before the pod":         {mode: v1.PersistentVolumeFilesystem, before: true},
		"a device that the pod has":       {mode: v1.PersistentVolumeBlock},
		"a directory while a pod uses it": {mode: v1.PersistentVolumeFilesystem, dir: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: host(t), Objects: f.api, Claims: f.claims, ClaimStatus: f.claims})
			if _, err := exec.LookPath("xfs_growfs"); err != nil {
				t.Skip("needs xfs_growfs (xfsprogs)")
			}
			device := emptyDiskOf(t, 320)
			path := device
			if tt.dir {
				path = t.TempDir()
			}
			onDevice(path, tt.mode, f).Spec.Local.FSType = ptr("xfs")
			grow := func() {
				if !tt.dir {
					enlarge(t, device)
				}
				f.claims.grown("c", true)
			}
			p := claimPod("uid-1", "c")
			if tt.mode == v1.PersistentVolumeBlock {
				p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[0].VolumeDevices = nil, []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
			}
			if tt.before {
				first := claimPod("uid-0", "c") // the device has a file system of its old size
				setUp(t, f, first)
				f.down(t, "uid-0")
				grow()
			}
			setUp(t, f, p)
			if !tt.before {
				f.VisitAll(t.Context())
				if said := f.claims.said("c"); strings.HasPrefix(said, "2Gi") {
					t.Errorf("the claim before it grew: %s", said)
				}
				grow()
				f.VisitAll(t.Context())
			}
			if said := f.claims.said("c"); said != "2Gi " {
				t.Errorf("the claim: %q", said)
			}
			if tt.mode == v1.PersistentVolumeFilesystem && !tt.dir {
				if mib := sizeOf(t, dir(t, f, p, "v")); mib < 320 {
					t.Errorf("the file system has %d MiB of 400", mib)
				}
			}
			patches := len(f.claims.patches)
			f.VisitAll(t.Context())
			if len(f.claims.patches) != patches {
				t.Error("the claim is written again")
			}
			f.down(t, "uid-1")
		})
	}
}
