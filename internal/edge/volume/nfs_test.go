package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// toolHost is the real host, whose mount tools a test replaces.
type toolHost struct {
	hostfs.Host
	mount   func(source, target string) error // replaces mount(8); nil: it mounts a tmpfs
	umount  func(argv []string) (hostfs.Ran, error)
	mu      sync.Mutex
	ran     []string // the command lines
	servers []*os.File
}

func (h *toolHost) RunTool(ctx context.Context, argv []string) (hostfs.Ran, error) {
	h.mu.Lock()
	h.ran = append(h.ran, strings.Join(argv, " "))
	h.mu.Unlock()
	target := argv[len(argv)-1]
	switch {
	case argv[0] == "mount" && h.mount != nil:
		return hostfs.Ran{}, h.mount(argv[len(argv)-2], target)
	case argv[0] == "mount":
		return hostfs.Ran{}, unix.Mount("server", target, "tmpfs", 0, "size=1m")
	case h.umount != nil:
		return h.umount(argv)
	}
	return h.Host.RunTool(ctx, argv)
}

// commands returns the command lines since the last call, without the directory of the test.
func (h *toolHost) commands(root string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.ran
	h.ran = nil
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], root, "ROOT")
	}
	return all
}

// hang mounts a file system whose server never answers: every access to it waits until the server ends.
func (h *toolHost) hang(_, target string) error {
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.servers = append(h.servers, fuse)
	h.mu.Unlock()
	return unix.Mount("server:/dead", target, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd()))
}

// end ends the servers, and so every access that hangs.
func (h *toolHost) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		s.Close()
	}
}

func newTools(t *testing.T, h *toolHost) *fixture {
	t.Helper()
	needRoot(t)
	f := newFixture(t)
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims})
	return f
}

func nfsPod(uid types.UID, src *v1.NFSVolumeSource) *v1.Pod {
	p := aPod(vol("v", v1.VolumeSource{NFS: src}))
	p.UID, p.Name = uid, "p-"+string(uid)
	return p
}

func TestNFS(t *testing.T) {
	t.Parallel()
	h := &toolHost{}
	f := newTools(t, h)
	p := nfsPod("uid-1", &v1.NFSVolumeSource{Server: "fd00::1", Path: "/a b", ReadOnly: true})
	setUp(t, f, p)
	setUp(t, f, p) // the second set-up mounts nothing
	const at = "ROOT/pods/uid-1/volumes/kubernetes.io~nfs/v"
	if diff := cmp.Diff([]string{"mount -t nfs -o ro [fd00::1]:/a b " + at}, h.commands(f.root)); diff != "" {
		t.Errorf("mount (-want +got):\n%s", diff)
	}
	d := dir(t, f, p, "v")
	if got := strings.ReplaceAll(d, f.root, "ROOT"); got != at {
		t.Errorf("the container gets %s", got)
	}
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil || !mounts[0].Readonly {
		t.Errorf("the mount of a read-only volume: %v, %v", mounts, err)
	}
	if err := os.WriteFile(filepath.Join(d, "data"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(t.Context(), pod.Ref{UID: p.UID}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"umount -c " + at}, h.commands(f.root)); diff != "" {
		t.Errorf("unmount (-want +got):\n%s", diff)
	}
	if _, err := os.Lstat(filepath.Join(f.root, "pods/uid-1/volumes")); !os.IsNotExist(err) {
		t.Errorf("the volume is still there: %v", err)
	}
}

func TestNFSAsPersistentVolume(t *testing.T) {
	t.Parallel()
	h := &toolHost{}
	f := newTools(t, h)
	pv := f.claims.bind("data", v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "server", Path: "/export"}})
	p := claimPod("uid-1", "data")
	pv.Spec.MountOptions = []string{"nfsvers=4.2", "hard"}
	setUp(t, f, p)
	want := "mount -t nfs -o nfsvers=4.2,hard server:/export ROOT/pods/uid-1/volumes/kubernetes.io~nfs/" + pv.Name
	if diff := cmp.Diff([]string{want}, h.commands(f.root)); diff != "" {
		t.Errorf("mount (-want +got):\n%s", diff)
	}
	if usage, err := f.PersistentUsage(t.Context(), p); err != nil || len(usage) != 1 || usage[0].CapacityBytes != 1<<20 {
		t.Errorf("usage %+v %v", usage, err)
	}
}

func TestNFSThatCannotBeMounted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		src   v1.NFSVolumeSource
		mount error
		want  string
	}{
		"mount's own words":           {v1.NFSVolumeSource{Server: "server", Path: "/x"}, errors.New("mount: mount.nfs: access denied by server (exit status 32)"), "mount NFS volume server:/x: mount: mount.nfs: access denied by server (exit status 32)"},
		"a server that is an option":  {v1.NFSVolumeSource{Server: "-oremount", Path: "/x"}, nil, `nfs.server "-oremount" is not a host name`},
		"no server":                   {v1.NFSVolumeSource{Path: "/x"}, nil, `nfs.server "" is not`},
		"a path that is not absolute": {v1.NFSVolumeSource{Server: "server", Path: "x"}, nil, `nfs.path "x" is not an absolute path`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTools(t, &toolHost{mount: func(string, string) error { return tt.mount }})
			wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: nfsPod("uid-1", &tt.src)}), "v", tt.want)
		})
	}
}

// A server that does not answer is the cause of a mount that does not end, whether the tool gives up, is killed, or cannot be killed. Any
// other failure of a mount is none of these.
func TestNFSMountThatHangs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mount error
		want  pod.Lack
	}{
		"the tool gives up":            {errors.New("mount: mount.nfs: Connection timed out (exit status 32)"), pod.LackMount},
		"the tool is killed":           {fmt.Errorf("mount: did not end in time and was killed: %w", context.DeadlineExceeded), pod.LackMount},
		"the server refuses the mount": {errors.New("mount: mount.nfs: access denied by server (exit status 32)"), pod.LackNone},
	} {
		f := newTools(t, &toolHost{mount: func(string, string) error { return tt.mount }})
		err := f.SetUp(t.Context(), volume.Pod{Pod: nfsPod("uid-1", &v1.NFSVolumeSource{Server: "server", Path: "/x"})})
		var e *volume.Error
		if !errors.As(err, &e) || e.Lack != tt.want {
			t.Errorf("%s: %+v, want lack %d", name, e, tt.want)
		}
	}
}

// If a tool hangs and cannot be killed, the error names it, and no second tool is started for the same directory until it has ended.
func TestNFSToolThatHangs(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	h := &toolHost{umount: func([]string) (hostfs.Ran, error) {
		return hostfs.Ran{Code: -1, Ended: ended}, errors.New("umount: did not end in time, and cannot be killed")
	}}
	f := newTools(t, h)
	p := nfsPod("uid-1", &v1.NFSVolumeSource{Server: "server", Path: "/x"})
	setUp(t, f, p)
	h.commands(f.root)
	for range 3 {
		err := f.TearDown(t.Context(), pod.Ref{UID: p.UID})
		if err == nil || !strings.Contains(err.Error(), "umount has hung in the kernel since") {
			t.Fatal(err)
		}
		if lack := pod.LackOf(err); lack != pod.LackMount {
			t.Errorf("lack %d, want LackMount", lack)
		}
	}
	if n := len(h.commands(f.root)); n != 1 {
		t.Errorf("%d tools were started while one hangs", n)
	}
	close(ended)
	h.umount = nil
	if err := f.TearDown(t.Context(), pod.Ref{UID: p.UID}); err != nil {
		t.Fatal(err)
	}
}

// 20 pods have NFS volumes of a server that does not answer any more. The volumes are set up again, measured and taken down while other
// pods start and stop. No call waits for the server.
func TestADeadServerHurtsItsOwnPods(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("needs /dev/fuse")
	}
	h := &toolHost{}
	h.mount = h.hang
	f := newTools(t, h)
	t.Cleanup(h.end)
	var dead []*v1.Pod
	for i := range 20 {
		claim := fmt.Sprintf("data-%d", i)
		f.claims.bind(claim, v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "server", Path: "/x"}})
		dead = append(dead, claimPod(types.UID(fmt.Sprintf("dead-%d", i)), claim))
	}
	must := func(what string, do func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- do(ctx) }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-ctx.Done():
			h.end()
			t.Fatalf("%s waits for the server", what)
		}
	}
	for _, p := range dead {
		must("set-up of a dead volume", func(ctx context.Context) error { return f.SetUp(ctx, volume.Pod{Pod: p}) })
		must("set-up once more", func(ctx context.Context) error { return f.SetUp(ctx, volume.Pod{Pod: p}) })
	}
	must("measurement", func(ctx context.Context) error {
		for _, p := range dead[:2] { // only two pods, because the first measurement of each volume waits for a second
			if usage, _ := f.PersistentUsage(ctx, p); len(usage) > 0 {
				return fmt.Errorf("a dead volume was measured: %v", usage)
			}
		}
		return nil
	})
	other := aPod(vol("v", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
	must("another pod", func(ctx context.Context) error {
		_, err := f.Mounts(ctx, volume.MountInput{Pod: other, Container: &other.Spec.Containers[0]})
		return errors.Join(f.SetUp(ctx, volume.Pod{Pod: other}), err, f.TearDown(ctx, pod.Ref{UID: other.UID}))
	})
	must("search for orphans", func(context.Context) error {
		uids, err := f.Orphans(func(types.UID) bool { return false })
		if len(uids) != 21 {
			err = errors.Join(err, fmt.Errorf("found %v", uids))
		}
		return err
	})
	for _, p := range dead {
		must("tear-down of a dead volume", func(ctx context.Context) error { return f.TearDown(ctx, pod.Ref{UID: p.UID}) })
	}
	if left, err := (hostfs.Host{}).MountPoints(f.root); err != nil || len(left) > 0 {
		t.Errorf("mounts are left: %v %v", left, err)
	}
	if !slices.ContainsFunc(h.commands(f.root), func(c string) bool { return strings.HasPrefix(c, "umount -c ") }) {
		t.Error("nothing was unmounted with umount")
	}
}

func claimPod(uid types.UID, name string) *v1.Pod {
	p := aPod(claim("v", name, false))
	p.UID, p.Name = uid, "p-"+string(uid)
	return p
}
