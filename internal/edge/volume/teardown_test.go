package volume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

func TestTearDown(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.api.secrets["s"] = &v1.Secret{Data: map[string][]byte{"k": []byte("v")}}
	p := aPod(emptyDir("e"), vol("s", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}))
	p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "e", MountPath: "/sub", SubPath: "sub"})
	setUp(t, f, p)
	message := dir(t, f, p, "dev/termination-log")
	// Mount another directory below the volume, as a container with Bidirectional propagation can. TearDown must not delete its files. Also
	// keep a file of a volume open, so that the volume is busy.
	precious := t.TempDir()
	inside := filepath.Join(dir(t, f, p, "e"), "left-mounted")
	if err := errors.Join(os.WriteFile(filepath.Join(precious, "file"), nil, 0o644), os.Mkdir(inside, 0o755), unix.Mount(precious, inside, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(filepath.Join(dir(t, f, p, "s"), "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()

	other := volume.New(volume.Config{RootDir: f.root, Host: hostfs.Host{}}) // a new agent that has no state of the pod
	orphans, err := other.Orphans(func(types.UID) bool { return false })
	if diff := cmp.Diff([]types.UID{"uid-1"}, orphans); err != nil || diff != "" {
		t.Fatalf("orphans: %v %s", err, diff)
	}
	ref := pod.Ref{UID: "uid-1"}
	for range 2 {
		if err := other.TearDown(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("deleted through a mount: %v", err)
	}
	if _, err := os.Stat(message); err != nil {
		t.Errorf("the termination message is gone before anyone could report it: %v", err)
	}
	left, _ := os.ReadDir(filepath.Join(f.root, "pods/uid-1"))
	names := fmt.Sprint(left)
	if strings.Contains(names, "volume") {
		t.Errorf("left after TearDown: %s", names)
	}
	for range 2 {
		if err := other.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(f.root, "pods")); len(left) != 0 {
		t.Errorf("left after Remove: %v", left)
	}
	if err := other.TearDown(t.Context(), pod.Ref{UID: ".."}); err == nil {
		t.Error("tore down a UID that is a path")
	}
}

// deafHost is a host whose mount table looks empty, so that the deletion itself must notice mounts.
type deafHost struct{ hostfs.Host }

func (deafHost) MountPoints(string) ([]string, error) { return nil, nil }

func TestRemoveTrustsNoMountTable(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	p := aPod(emptyDir("e"))
	setUp(t, f, p)
	precious := t.TempDir()
	inside := filepath.Join(dir(t, f, p, "e"), "mounted")
	if err := errors.Join(os.WriteFile(filepath.Join(precious, "file"), nil, 0o644), os.Mkdir(inside, 0o755), unix.Mount(precious, inside, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	v := volume.New(volume.Config{RootDir: f.root, Host: deafHost{}})
	if err := v.Remove(t.Context(), pod.RefOf(p)); !errors.Is(err, hostfs.ErrMounted) {
		t.Errorf("error %v, want ErrMounted", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("deleted through a mount: %v", err)
	}
}
