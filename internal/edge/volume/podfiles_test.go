package volume_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

// hostsOf makes the mounts of a container and returns the path of its hosts file.
func hostsOf(t *testing.T, f *fixture, in volume.MountInput) string {
	t.Helper()
	mounts, err := f.Mounts(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if m.ContainerPath == "/etc/hosts" {
			return m.HostPath
		}
	}
	t.Fatal("the container has no hosts file")
	return ""
}

func wantHosts(t *testing.T, path, want string) {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != 0o644 || st.Size() != int64(len(want)) {
		t.Fatalf("mode %v and %d bytes, want -rw-r--r-- and %d", st.Mode(), st.Size(), len(want))
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("%q, %v", data, err)
	}
}

const hostsText = "127.0.0.1 localhost\n"

// After a container has run `truncate -s 4T /etc/hosts`, its next start uses no more memory in the agent and restores the file.
// Not parallel: it measures what the process allocates.
func TestHostsFileIsNeverRead(t *testing.T) {
	f, p := newFixture(t), aPod()
	setUp(t, f, p)
	in := volume.MountInput{Pod: p, Container: &p.Spec.Containers[0], Hosts: []byte(hostsText)}
	path := hostsOf(t, f, in)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	plant.Grow(t, path)
	plant.Allocates(t, 1<<20, func() { hostsOf(t, f, in) })
	wantHosts(t, path, hostsText)
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file that containers have mounted is another one, %v", err)
	}

	plant.Grow(t, path)
	in.Hosts = nil // nil, as for a pod on the node's network, for which the agent makes no hosts file
	plant.Allocates(t, 1<<20, func() {
		if _, err := f.Mounts(t.Context(), in); err != nil {
			t.Error(err)
		}
	})
}

// ReadFile reads the file with environment variables (fileKeyRef) that a container writes. If the container replaces the file, for
// example by a pipe, a huge sparse file or a chain of links, ReadFile must fail, without blocking and without much memory. Not
// parallel: the test measures what the process allocates.
func TestEnvFileThatIsNoFile(t *testing.T) {
	f, p := newFixture(t), aPod(emptyDir("e"))
	setUp(t, f, p)
	root := dir(t, f, p, "e")
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			thing.Plant(t, filepath.Join(root, thing.Name))
			plant.Returns(t, func() {
				if data, err := f.ReadFile(p, "e", thing.Name); err == nil {
					t.Errorf("read %q", data)
				}
			})
		})
	}
	plant.Sparse(t, filepath.Join(root, "sparse"))
	plant.LinkFarm(t, filepath.Join(root, "farm"), func(i int) string { return fmt.Sprint(i) })
	for i := range 100 { // a chain of links, each inside of the volume
		if err := os.Symlink(fmt.Sprint("chain-", i+1), filepath.Join(root, fmt.Sprint("chain-", i))); err != nil {
			t.Fatal(err)
		}
	}
	plant.Allocates(t, 1<<20, func() {
		for _, path := range []string{"sparse", "chain-0", "farm"} {
			if data, err := f.ReadFile(p, "e", path); err == nil {
				t.Errorf("%s: read %d bytes", path, len(data))
			}
		}
	})
}

// The agent replaces anything at the path of the hosts file, and does not write to what was there.
func TestHostsFileReplacesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			t.Parallel()
			f, p := newFixture(t), aPod()
			setUp(t, f, p)
			in := volume.MountInput{Pod: p, Container: &p.Spec.Containers[0], Hosts: []byte(hostsText)}
			path := hostsOf(t, f, in)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			thing.Plant(t, path)
			target, linked := os.Readlink(path)
			plant.Returns(t, func() { hostsOf(t, f, in) })
			wantHosts(t, path, hostsText)
			if linked == nil && thing.Name == "link" {
				if data, err := os.ReadFile(target); err != nil || string(data) != plant.Secret {
					t.Errorf("the link was written through: %q, %v", data, err)
				}
			}
		})
	}
}
