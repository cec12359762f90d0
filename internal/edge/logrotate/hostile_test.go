package logrotate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/proof/plant"
)

// A log that is not a regular file is never rotated or opened, and never blocks a round. The same holds for rotated files.
func TestRotateWhatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			t.Parallel()
			r := newRuntime(t)
			old := r.path + ".20060102-150405"
			thing.Plant(t, old)
			r.write(strings.Repeat("x", 20))
			plant.Returns(t, func() { r.rotator().Round(t.Context()) })
			if r.reopened != 2 {
				t.Errorf("the log beside it was started %d times, want 2", r.reopened)
			}
			before, err := os.Lstat(old)
			if err != nil || before.Mode().IsRegular() {
				t.Errorf("it was changed: %v, %v", before, err)
			}

			if err := os.Remove(r.path); err != nil {
				t.Fatal(err)
			}
			thing.Plant(t, r.path) // replaces the log itself
			plant.Returns(t, func() { r.rotator().Round(t.Context()) })
			if r.reopened != 2 {
				t.Error("it was rotated")
			}
		})
	}
}

// A link that replaces a log directory gives no access to other pods' logs.
func TestRotateBehindALink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, target string }{
		{"ns_web_u1", "ns_other_u2"},
		{"ns_web_u1/main", "../ns_other_u2/main"},
	} {
		root := t.TempDir()
		other := filepath.Join(root, "ns_other_u2/main/0.log")
		link := filepath.Join(root, c.at)
		if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o755), os.MkdirAll(filepath.Dir(link), 0o755),
			os.WriteFile(other, []byte(strings.Repeat("x", 100)), 0o640), os.Symlink(c.target, link)); err != nil {
			t.Fatal(err)
		}
		r := &runtime{t: t, path: filepath.Join(root, "ns_web_u1/main/0.log"), err: errors.New("must not be asked")}
		var logged bytes.Buffer
		r.rotator(func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) }).Round(t.Context())
		if entries, err := os.ReadDir(filepath.Dir(other)); err != nil || len(entries) != 1 || entries[0].Name() != "0.log" {
			t.Errorf("%s: another pod's logs are now %v, %v", c.at, entries, err)
		}
		if !strings.Contains(logged.String(), "symbolic link") {
			t.Errorf("%s: the log lacks the reason: %s", c.at, logged.String())
		}
	}
}

// two returns a rotator of the logs of two runtimes, one after the other, and a function that ends a second of its clock.
func two(a, b *runtime, change ...func(*Config)) (rot *Rotator, tick func()) {
	change = append([]func(*Config){func(c *Config) {
		c.Running = func() []Container { return []Container{{ID: "a", Path: a.path}, {ID: "b", Path: b.path}} }
		c.Reopen = func(ctx context.Context, id string) error {
			return map[string]*runtime{"a": a, "b": b}[id].reopen(ctx, "c")
		}
	}}, change...)
	rot = a.rotator(change...)
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	rot.now = func() time.Time { return at }
	return rot, func() { at = at.Add(time.Second) }
}

// A container made a sparse file of 4 TiB that looks like a rotated file. Its compression would take hours. The file stays as it is, the node
// logs this once, all logs are rotated, and the file is removed when enough newer ones exist.
func TestSparseRotatedFileDelaysNoRotation(t *testing.T) {
	t.Parallel()
	a, b := newRuntime(t), newRuntime(t)
	sparse := a.path + ".20260101-000000"
	plant.Sparse(t, sparse)
	var logged bytes.Buffer
	rot, tick := two(a, b, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	for i := range 4 {
		a.write(strings.Repeat("x", 20))
		b.write(strings.Repeat("x", 20))
		plant.Returns(t, func() { rot.Round(t.Context()) })
		tick()
		if a.reopened != i+2 || b.reopened != i+2 {
			t.Fatalf("round %d: the logs were started %d and %d times, want %d", i, a.reopened, b.reopened, i+2)
		}
		info, err := os.Lstat(sparse)
		if stays := i < 2; stays != (err == nil) || stays && info.Size() != 4<<40 {
			t.Errorf("round %d: the sparse file: %v, %v", i, info, err)
		}
	}
	if n := strings.Count(logged.String(), "stays uncompressed"); n != 1 || strings.Count(logged.String(), "\n") != 1 {
		t.Errorf("the log:\n%s", logged.String())
	}
	b.expect(map[string]string{"0.log": "", "0.log.20260203-040509": strings.Repeat("x", 20), "0.log.20260203-040508.gz": strings.Repeat("x", 20), "0.log.20260203-040507.gz": strings.Repeat("x", 20)})
}

// Files that are a little larger than MaxSize are compressed, files that are much larger are not.
func TestCostly(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		size, maxSize int64
		want          bool
	}{
		{0, 1, false}, {20 * mib, 10 * mib, false}, {100 * mib, 10 * mib, false}, {105 * mib, 10 * mib, true}, {64 * mib, 1, false}, {65 * mib, 1, true},
		{math.MaxInt64, math.MaxInt64, false}, {math.MaxInt64, 10 * mib, true},
	} {
		if got := costly(c.size, c.maxSize); got != c.want {
			t.Errorf("%d bytes with a limit of %d: %t", c.size, c.maxSize, got)
		}
	}
}

func TestRotateBesideALinkFarm(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	secret := plant.LinkFarm(t, filepath.Dir(r.path), func(i int) string { return fmt.Sprintf("0.log.20060102-1%05d", i) })
	r.write(strings.Repeat("x", 20))
	r.rotator().Round(t.Context())
	if r.reopened != 2 {
		t.Errorf("the log was started %d times, want 2", r.reopened)
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != plant.Secret {
		t.Errorf("the target of the links: %q, %v", data, err)
	}
}

// Compression keeps the modification time of a file, by which a log collector knows which files it has read.
func TestCompressionKeepsTheTime(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	old := r.path + ".20060102-150405"
	at := time.Unix(1_000_000_000, 0)
	if err := errors.Join(os.WriteFile(old, []byte("old"), 0o640), os.Chtimes(old, at, at)); err != nil {
		t.Fatal(err)
	}
	r.write(strings.Repeat("x", 20))
	r.rotator().Round(t.Context())
	if st, err := os.Stat(old + compressed); err != nil || !st.ModTime().Equal(at) || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
}
