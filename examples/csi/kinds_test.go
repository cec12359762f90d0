package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

const driverName = "files.example.com"

// on returns the requirement that a volume is for a node.
func on(node string) *csi.TopologyRequirement {
	return &csi.TopologyRequirement{Requisite: []*csi.Topology{topology(driverName, "a"), topology(driverName, "b")}, Preferred: []*csi.Topology{topology(driverName, node)}}
}

func mountOf(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}, AccessMode: xfsVolume.AccessMode}
}

// A list has the volumes in pages, each with the node that it is attached to. A token of somebody else is refused.
func TestVolumesAreListedInPages(t *testing.T) {
	t.Parallel()
	c := &controller{store: store{dir: t.TempDir(), kind: disk}}
	for _, name := range []string{"c", "a", "b"} {
		ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{xfsVolume}}))
	}
	ok[*csi.ControllerPublishVolumeResponse](t)(c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: "b", NodeId: "one"}))
	var got []string
	for token, more := "", true; more; more = token != "" {
		page := ok[*csi.ListVolumesResponse](t)(c.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token}))
		for _, entry := range page.Entries {
			got = append(got, entry.Volume.VolumeId+" "+strings.Join(entry.Status.PublishedNodeIds, ","))
		}
		got, token = append(got, "end of page"), page.NextToken
	}
	if want := "a ; b one; end of page; c ; end of page"; strings.Join(got, "; ") != want {
		t.Errorf("listed %q, want %q", strings.Join(got, "; "), want)
	}
	for _, token := range []string{"x", "-1", "4"} {
		_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token})
		wantCode(t, err, codes.Aborted)
	}
}

// A copy is at least as large as its source, has its content and its holes, and cannot be a copy of something else the second time.
func TestACopyHasTheContentOfItsSource(t *testing.T) {
	t.Parallel()
	s := store{dir: t.TempDir(), kind: disk}
	c := &controller{store: s}
	create := func(name, source string, bytes int64, capability *csi.VolumeCapability) (*csi.CreateVolumeResponse, error) {
		r := &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapabilities: []*csi.VolumeCapability{capability}}
		if source != "" {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source}}}
		}
		return c.CreateVolume(t.Context(), r)
	}
	ok[*csi.CreateVolumeResponse](t)(create("source", "", 400*mebi, xfsVolume))
	const at = 200 * mebi
	source, err := os.OpenFile(s.image("source"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.WriteAt([]byte("kept"), at); err != nil {
		t.Fatal(err)
	}
	_ = source.Close()
	for range 2 {
		v := ok[*csi.CreateVolumeResponse](t)(create("copy", "source", 300*mebi, xfsVolume)).Volume
		if v.CapacityBytes != 400*mebi || v.ContentSource.GetVolume().GetVolumeId() != "source" {
			t.Errorf("the copy: %v", v)
		}
	}
	image, err := os.Open(s.image("copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	text := make([]byte, 5)
	if _, err := image.ReadAt(text, at); err != nil || string(text) != "kept\x00" {
		t.Errorf("the copy has %q, %v", text, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(s.image("copy"), &st); err != nil || st.Size != 400*mebi || st.Blocks*512 > 10*mebi {
		t.Errorf("the copy has %d bytes, of which %d are on disk (%v)", st.Size, st.Blocks*512, err)
	}
	_, err = create("copy", "", 300*mebi, xfsVolume)
	wantCode(t, err, codes.AlreadyExists)
	_, err = create("other", "nothing", 300*mebi, xfsVolume)
	wantCode(t, err, codes.NotFound)
	_, err = create("other", "source", 300*mebi, blockDevice)
	wantCode(t, err, codes.InvalidArgument)
}

// A copy is there and the answer was lost: the call is repeated after the source was deleted, and succeeds. Nothing of an attempt that was interrupted is left
// in a volume that is no copy.
func TestCopyOutlivesItsSource(t *testing.T) {
	t.Parallel()
	s := store{dir: t.TempDir(), kind: disk}
	c := &controller{store: s}
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "source"}}}
	create := func(name string, from *csi.VolumeContentSource) (*csi.CreateVolumeResponse, error) {
		return c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeContentSource: from, VolumeCapabilities: []*csi.VolumeCapability{xfsVolume}})
	}
	ok[*csi.CreateVolumeResponse](t)(create("source", nil))
	ok[*csi.CreateVolumeResponse](t)(create("copy", source))
	ok[*csi.DeleteVolumeResponse](t)(c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "source"}))
	if v := ok[*csi.CreateVolumeResponse](t)(create("copy", source)).Volume; v.VolumeId != "copy" || v.ContentSource.GetVolume().GetVolumeId() != "source" {
		t.Errorf("the copy: %v", v)
	}
	_, err := create("late", source)
	wantCode(t, err, codes.NotFound)
	_, err = create("copy", &csi.VolumeContentSource{})
	wantCode(t, err, codes.InvalidArgument)

	if err := os.WriteFile(s.image("fresh"), []byte("of an attempt that was interrupted"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok[*csi.CreateVolumeResponse](t)(create("fresh", nil))
	image, err := os.Open(s.image("fresh"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	begin := make([]byte, 8)
	if _, err := image.ReadAt(begin, 0); err != nil || string(begin) != strings.Repeat("\x00", 8) {
		t.Errorf("a new volume begins with %q, %v", begin, err)
	}
}

// A program that makes a file system is killed in the middle, so that the device has a superblock and not the rest. The next call makes the file system from
// the beginning, also of a copy of the volume. A file system that is complete is never made again.
func TestHalfAFileSystemIsMadeAgain(t *testing.T) {
	needLoopDevices(t)
	for fsType, superblock := range map[string]string{xfs: `printf XFSB`, ext4: `head -c 1080 /dev/zero; printf '\123\357'`} {
		s := store{dir: t.TempDir(), kind: disk}
		c, d, dir := &controller{store: s}, &nodeService{store: s, node: "a"}, t.TempDir()
		ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountOf(fsType)}}))
		path := map[string]string{"v": filepath.Join(dir, "v"), "copy": filepath.Join(dir, "copy")}
		t.Cleanup(func() {
			for id, at := range path {
				_, _ = unmount(at), d.detach(context.Background(), id)
			}
		})
		programs, search := t.TempDir(), os.Getenv("PATH")
		script := "#!/bin/sh\nfor device; do :; done\n(" + superblock + ") | dd of=\"$device\" conv=notrunc,fsync 2>/dev/null\nkill -9 $$\n"
		if err := os.WriteFile(filepath.Join(programs, "mkfs."+fsType), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", programs+":"+search)
		if _, err := d.stage(t.Context(), "v", path["v"], mountOf(fsType)); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s: staged although the program was killed: %v", fsType, err)
		}
		if has, err := fileSystem(s.image("v")); has != fsType || err != nil {
			t.Fatalf("%s: the device has %q, %v: this test tests nothing", fsType, has, err)
		}
		t.Setenv("PATH", search)
		ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "copy", VolumeCapabilities: []*csi.VolumeCapability{mountOf(fsType)},
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "v"}}}}))
		for id, at := range path {
			for i := range 2 {
				if _, err := d.stage(t.Context(), id, at, mountOf(fsType)); err != nil {
					t.Fatalf("%s: %s: %v", fsType, id, err)
				}
				file := filepath.Join(at, "file")
				if i == 0 {
					if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
						t.Error(err)
					}
				} else if text, err := os.ReadFile(file); string(text) != "kept" {
					t.Errorf("%s: %s: after the next staging the file has %q, %v", fsType, id, text, err)
				}
				if err := d.unstage(t.Context(), id, at); err != nil {
					t.Error(err)
				}
			}
		}
		for _, id := range []string{"v", "copy"} {
			ok[*csi.DeleteVolumeResponse](t)(c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}))
		}
		if left, _ := os.ReadDir(s.dir); len(left) > 0 {
			t.Errorf("%s: left: %v", fsType, left)
		}
	}
}

// Without CAP_SYS_RESOURCE an ext4 cannot grow while it is mounted: the driver says that the volume must not be in use for that. When the volume is staged
// the next time, its file system grows before it is mounted, with its data.
func TestExt4GrowsWithoutTheCapability(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	s := store{dir: t.TempDir(), kind: disk}
	c, d, path := &controller{store: s}, &nodeService{store: s, node: "a"}, filepath.Join(t.TempDir(), "staging")
	ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountOf(ext4)}}))
	t.Cleanup(func() { _ = unmount(path); _ = d.detach(context.Background(), "v") })
	size := func() int64 {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			t.Error(err)
		}
		return int64(st.Blocks) * st.Bsize
	}
	done := make(chan struct{})
	go func() { // in a goroutine of its own, whose thread ends with it: the programs that it runs do not have the capability
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil {
			t.Error(err)
			return
		}
		if _, err := d.stage(t.Context(), "v", path, mountOf(ext4)); err != nil {
			t.Error(err)
			return
		}
		if err := os.WriteFile(filepath.Join(path, "file"), []byte("kept"), 0o600); err != nil {
			t.Error(err)
		}
		if _, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 640 * mebi}}); err != nil {
			t.Error(err)
		}
		expand := &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: path}
		_, err := d.NodeExpandVolume(t.Context(), expand)
		wantCode(t, err, codes.FailedPrecondition)
		if n := size(); n > 320*mebi {
			t.Errorf("the mounted file system has %d bytes", n)
		}
		if err := d.unstage(t.Context(), "v", path); err != nil {
			t.Error(err)
		}
		if _, err := d.stage(t.Context(), "v", path, mountOf(ext4)); err != nil {
			t.Error(err)
			return
		}
		if n := size(); n < 500*mebi {
			t.Errorf("the file system has %d bytes after the next staging", n)
		}
		if _, err := d.NodeExpandVolume(t.Context(), expand); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(filepath.Join(path, "file")); string(text) != "kept" {
			t.Errorf("the file has %q, %v", text, err)
		}
	}()
	<-done
}

// If the file system of a larger copy cannot grow, the volume is not mounted, so that the next call tries again.
func TestAFileSystemThatCannotGrowIsNotMounted(t *testing.T) {
	needLoopDevices(t)
	s := store{dir: t.TempDir(), kind: local}
	d, path := &nodeService{store: s, node: "a"}, filepath.Join(t.TempDir(), "staging")
	if err := s.write("v", record{Bytes: smallest, Home: "a"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unmount(path); _ = d.detach(context.Background(), "v") })
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "xfs_growfs"), []byte("#!/bin/sh\necho no space >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	search := os.Getenv("PATH")
	t.Setenv("PATH", programs+":"+search)
	if _, err := d.stage(t.Context(), "v", path, mountOf(xfs)); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("staged although the file system could not grow: %v", err)
	}
	if on, err := mounted(path); on || err != nil {
		t.Errorf("the file system is mounted: %t, %v", on, err)
	}
	t.Setenv("PATH", search)
	if _, err := d.stage(t.Context(), "v", path, mountOf(xfs)); err != nil {
		t.Error(err)
	}
}

// A local disk is on the node that the scheduler prefers. Its node mounts it for the first pod and lets it go after the last one, while no
// call stages it. A copy that is larger than its source has a larger file system.
func TestLocalDisk(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	ctx, s := t.Context(), store{dir: t.TempDir(), kind: local}
	c, d, other := &controller{store: s, name: driverName}, &nodeService{store: s, name: driverName, node: "b"}, &nodeService{store: s, name: driverName, node: "a"}
	for _, fsType := range []string{xfs, ext4} {
		create := &csi.CreateVolumeRequest{Name: fsType, VolumeCapabilities: []*csi.VolumeCapability{mountOf(fsType)}}
		_, err := c.CreateVolume(ctx, create)
		wantCode(t, err, codes.InvalidArgument) // no topology
		create.AccessibilityRequirements = on("b")
		v := ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(ctx, create)).Volume
		if len(v.AccessibleTopology) != 1 || v.AccessibleTopology[0].Segments[topologyKey(driverName)] != "b" {
			t.Errorf("the volume is on %v", v.AccessibleTopology)
		}
		first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
		publish := &csi.NodePublishVolumeRequest{VolumeId: fsType, TargetPath: first, VolumeCapability: mountOf(fsType)}
		_, err = other.NodePublishVolume(ctx, publish)
		wantCode(t, err, codes.FailedPrecondition)
		t.Cleanup(func() { _, _ = unmount(first), unmount(second) })
		for range 2 {
			ok[*csi.NodePublishVolumeResponse](t)(d.NodePublishVolume(ctx, publish))
		}
		if err := os.WriteFile(filepath.Join(first, "file"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		publish.TargetPath = second
		ok[*csi.NodePublishVolumeResponse](t)(d.NodePublishVolume(ctx, publish))
		for _, target := range []string{first, second, second} {
			if text, err := os.ReadFile(filepath.Join(second, "file")); target == first && (err != nil || string(text) != "kept") {
				t.Errorf("the second pod reads %q, %v", text, err)
			}
			ok[*csi.NodeUnpublishVolumeResponse](t)(d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: fsType, TargetPath: target}))
			loop, err := d.loop(ctx, fsType)
			if err != nil || (loop != "") != (target == first) {
				t.Errorf("after the end of %s the loop device is %q, %v", filepath.Base(target), loop, err)
			}
		}
	}

	const larger = 640 * mebi
	ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "copy", CapacityRange: &csi.CapacityRange{RequiredBytes: larger}, VolumeCapabilities: []*csi.VolumeCapability{mountOf("")}, AccessibilityRequirements: on("b"),
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: xfs}}},
	}))
	target, source := filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "source")
	t.Cleanup(func() { _, _ = unmount(target), unmount(source) })
	// The source is mounted at the same time, although its file system has the same UUID.
	ok[*csi.NodePublishVolumeResponse](t)(d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: xfs, TargetPath: source, VolumeCapability: mountOf("")}))
	ok[*csi.NodePublishVolumeResponse](t)(d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "copy", TargetPath: target, VolumeCapability: mountOf("")}))
	stats := ok[*csi.NodeGetVolumeStatsResponse](t)(d.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "copy", VolumePath: target}))
	if total := stats.Usage[0].Total; total < larger*3/4 || stats.VolumeCondition.Abnormal {
		t.Errorf("the copy has a file system of %d bytes, condition %v", total, stats.VolumeCondition)
	}
	if text, err := os.ReadFile(filepath.Join(target, "file")); err != nil || string(text) != "kept" {
		t.Errorf("the copy has %q, %v", text, err)
	}
	for id, path := range map[string]string{"copy": target, xfs: source} {
		ok[*csi.NodeUnpublishVolumeResponse](t)(d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: path}))
	}
}

// A block device without a file system is shown to one pod at a time if its access mode says so, and is let go only after the last pod.
func TestLocalBlockDevice(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	ctx, s := t.Context(), store{dir: t.TempDir(), kind: local}
	c, d := &controller{store: s, name: driverName}, &nodeService{store: s, name: driverName, node: "a"}
	ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: []*csi.VolumeCapability{blockDevice}, AccessibilityRequirements: on("a"),
	}))
	single := &csi.VolumeCapability{AccessType: blockDevice.AccessType, AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER}}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	t.Cleanup(func() { _, _ = unmount(first), unmount(second) })
	publish := func(target string, capability *csi.VolumeCapability) error {
		_, err := d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: target, VolumeCapability: capability})
		return err
	}
	for range 2 {
		wantCode(t, publish(first, single), codes.OK)
	}
	wantCode(t, publish(second, single), codes.FailedPrecondition)
	wantCode(t, publish(second, blockDevice), codes.OK)
	var st unix.Stat_t
	if err := unix.Stat(second, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		t.Errorf("the pod sees a file of mode %o, %v", st.Mode, err)
	}
	for _, target := range []string{first, second} {
		ok[*csi.NodeUnpublishVolumeResponse](t)(d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}))
		if loop, err := d.loop(ctx, "v"); err != nil || (loop != "") != (target == first) {
			t.Errorf("after the end of %s the loop device is %q, %v", filepath.Base(target), loop, err)
		}
	}
}

// A shared directory is used on two nodes at once, for the group that the node agent names. It grows without the nodes, and cannot be a block
// device.
func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	ctx, s := t.Context(), store{dir: t.TempDir(), kind: share}
	c := &controller{store: s, name: driverName}
	_, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{blockDevice}})
	wantCode(t, err, codes.InvalidArgument)
	all := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	}
	ok[*csi.CreateVolumeResponse](t)(c.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{all}}))
	if r := ok[*csi.ControllerExpandVolumeResponse](t)(c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 400 * mebi}})); r.NodeExpansionRequired || r.CapacityBytes != 400*mebi {
		t.Errorf("expanded: %v", r)
	}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	t.Cleanup(func() { _, _ = unmount(first), unmount(second) })
	ok[*csi.NodePublishVolumeResponse](t)((&nodeService{store: s, node: "a"}).NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: first, VolumeCapability: all}))
	if err := os.WriteFile(filepath.Join(first, "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	all.GetMount().VolumeMountGroup = "4321"
	d := &nodeService{store: s, node: "b"}
	ok[*csi.NodePublishVolumeResponse](t)(d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: second, VolumeCapability: all, Readonly: true}))
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(second, "file"), &st); err != nil || st.Gid != 4321 || st.Mode&0o777 != 0o660 {
		t.Errorf("on the other node the file has group %d and mode %o, %v", st.Gid, st.Mode, err)
	}
	if err := os.WriteFile(filepath.Join(second, "more"), nil, 0o600); err == nil {
		t.Error("the second pod writes into its volume, which is read-only")
	}
	if err := os.RemoveAll(s.shared("v")); err != nil {
		t.Fatal(err)
	}
	if r := ok[*csi.NodeGetVolumeStatsResponse](t)(d.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: second})); !r.VolumeCondition.Abnormal {
		t.Errorf("somebody has deleted the volume, but its condition is %v", r.VolumeCondition)
	}
	for _, target := range []string{first, second} {
		ok[*csi.NodeUnpublishVolumeResponse](t)(d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}))
	}
	ok[*csi.DeleteVolumeResponse](t)(c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}))
	if left, _ := filepath.Glob(filepath.Join(s.dir, "v*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
