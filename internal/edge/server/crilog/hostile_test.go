package crilog_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/edge/server/crilog"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

// If the log is not a regular file, Read returns an error at once, also if it follows.
func TestLogThatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "0.log")
			thing.Plant(t, path)
			for _, o := range []crilog.Options{{}, {Tail: n(1)}, {Running: func() bool { return true }}} {
				var out strings.Builder
				plant.Returns(t, func() {
					err := crilog.Read(t.Context(), path, o, &out)
					if what, _, _ := strings.Cut(thing.Name, " "); !errors.Is(err, hostfs.ErrNotRegular) || !strings.Contains(err.Error(), what) {
						t.Errorf("error %v, want one that says it is a %s", err, what)
					}
				})
				if out.Len() != 0 {
					t.Errorf("read %q", out.String())
				}
			}
		})
	}
}

// A pod that mounts /var/log cannot make Read return another pod's log, whichever directory it replaces by a link.
func TestLogBehindALinkOfADirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "ns_other_u2/main"), 0o755))
	add(t, filepath.Join(root, "ns_other_u2/main/0.log"), plant.Secret)
	must(t, os.Symlink("ns_other_u2", filepath.Join(root, "ns_web_u1")))
	must(t, os.Mkdir(filepath.Join(root, "ns_web_u3"), 0o755))
	must(t, os.Symlink("../ns_other_u2/main", filepath.Join(root, "ns_web_u3/main")))
	for _, path := range []string{"ns_web_u1/main/0.log", "ns_web_u3/main/0.log"} {
		var out strings.Builder
		err := crilog.Read(t.Context(), filepath.Join(root, path), crilog.Options{}, &out)
		if !errors.Is(err, hostfs.ErrNotRegular) || out.Len() != 0 {
			t.Errorf("%s: read %q, error %v", path, out.String(), err)
		}
	}
}

// Read returns an error if a link replaces the log that it follows.
func TestFollowedLogBecomesALink(t *testing.T) {
	t.Parallel()
	path := write(t, line("mine\n"))
	secret := filepath.Join(t.TempDir(), "0.log")
	add(t, secret, plant.Secret)
	var out strings.Builder
	planted := false
	running := func() bool {
		if !planted {
			planted = true
			must(t, os.Remove(path))
			must(t, os.Symlink(secret, path))
		}
		return true
	}
	plant.Returns(t, func() {
		if err := crilog.Read(t.Context(), path, crilog.Options{Running: running}, &out); !errors.Is(err, hostfs.ErrNotRegular) {
			t.Errorf("error %v, want ErrNotRegular", err)
		}
	})
	if out.String() != "mine\n" {
		t.Errorf("read %q", out.String())
	}
}

// Reading a sparse file of 4 TiB ends as soon as the context ends.
func TestSparseLogEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	plant.Sparse(t, path)
	for name, o := range map[string]crilog.Options{"all": {}, "tail": {Tail: n(10)}} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		plant.Returns(t, func() {
			if err := crilog.Read(ctx, path, o, &strings.Builder{}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v, want context.Canceled", name, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
