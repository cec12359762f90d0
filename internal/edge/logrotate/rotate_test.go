package logrotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runtime writes a log. Like a real runtime, it keeps the log file open when the file is renamed.
type runtime struct {
	t    *testing.T
	path string
	file *os.File
	err  error // the error of Reopen
	// reopened counts calls of Reopen.
	mu       sync.Mutex
	reopened int
}

func newRuntime(t *testing.T) *runtime {
	r := &runtime{t: t, path: filepath.Join(t.TempDir(), "0.log")}
	if err := r.reopen(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.file.Close() })
	return r
}

func (r *runtime) reopen(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if id != "c" {
		r.t.Errorf("reopened %q", id)
	}
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	r.file.Close()
	r.file = f
	r.reopened++
	return nil
}

func (r *runtime) write(text string) {
	r.t.Helper()
	if _, err := r.file.WriteString(text); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runtime) rotator(change ...func(*Config)) *Rotator {
	cfg := Config{
		MaxSize: 10, MaxFiles: 4, Workers: 1, Interval: 10 * time.Second,
		Running: func() []Container { return []Container{{ID: "c", Path: r.path}} }, Reopen: r.reopen,
	}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// files returns the content of the log's files, by name.
func (r *runtime) files() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(filepath.Dir(r.path))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(r.path), e.Name()))
		if err == nil && strings.HasSuffix(e.Name(), ".gz") {
			var z *gzip.Reader
			if z, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
				data, err = io.ReadAll(z)
			}
		}
		if err != nil {
			r.t.Fatalf("%s: %v", e.Name(), err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

func (r *runtime) put(files map[string]string) {
	r.t.Helper()
	for name, content := range files {
		var b bytes.Buffer
		if strings.HasSuffix(name, ".gz") {
			z := gzip.NewWriter(&b)
			_, _ = io.WriteString(z, content)
			_ = z.Close()
		} else {
			b.WriteString(content)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(r.path), name), b.Bytes(), 0o640); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *runtime) expect(want map[string]string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.files()); diff != "" {
		r.t.Fatalf("files (-want +got):\n%s", diff)
	}
}

// "containerLogMaxSize is a quantity defining the maximum size of the container log file before it is rotated.
// containerLogMaxFiles specifies the maximum number of container log files that can be present for a container."
func TestRotation(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rot := r.rotator()
	rot.now = func() time.Time { return at }
	round := func() {
		rot.Round(t.Context())
		at = at.Add(10 * time.Second)
	}
	r.write("short\n")
	round()
	r.expect(map[string]string{"0.log": "short\n"})
	r.write("long enough\n")
	round()
	r.expect(map[string]string{"0.log": "", "0.log.20260102-030415": "short\nlong enough\n"})
	r.write("the second file\n")
	round()
	r.expect(map[string]string{"0.log": "", "0.log.20260102-030425": "the second file\n", "0.log.20260102-030415.gz": "short\nlong enough\n"})
	r.write("the third file\n")
	round()
	r.write("the fourth file\n")
	round()
	r.write("x")
	round()
	r.expect(map[string]string{
		"0.log": "x", "0.log.20260102-030445": "the fourth file\n", "0.log.20260102-030435.gz": "the third file\n",
		"0.log.20260102-030425.gz": "the second file\n",
	})
	info, err := os.Stat(r.path + ".20260102-030425.gz")
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a compressed log has mode %v, %v, want that of the log", info.Mode(), err)
	}
}

// If the agent crashes at any step of a rotation, the next round repairs the files.
func TestCrash(t *testing.T) {
	t.Parallel()
	const old, older = "0.log.20260102-030405", "0.log.20260102-030400"
	for _, c := range []struct {
		name       string
		gone       bool // the current log is missing
		have, want map[string]string
		reopened   int
	}{
		{"between rename and reopen", true, map[string]string{old: "o"}, map[string]string{"0.log": "", old: "o"}, 1},
		{"while compressing", false, map[string]string{old: "o", old + ".gz.tmp": "half"},
			map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n", old + ".gz": "o"}, 1},
		{"after compressing", false, map[string]string{old: "o", old + ".gz": "o"},
			map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n", old + ".gz": "o"}, 1},
		{"before the oldest were removed", false, map[string]string{"0.log.20260101-000000.gz": "1", "0.log.20260101-000001.gz": "2", older + ".gz": "3", old: "4"},
			map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n", old + ".gz": "4", older + ".gz": "3"}, 1},
		{"files of others stay", false, map[string]string{"1.log": "another attempt", "0.log.bak": "an administrator's", "0.log.20260102": "no time"},
			map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n", "1.log": "another attempt", "0.log.bak": "an administrator's", "0.log.20260102": "no time"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRuntime(t)
			r.write("full to the brim\n")
			if c.gone {
				if err := os.Remove(r.path); err != nil {
					t.Fatal(err)
				}
			}
			r.put(c.have)
			rot := r.rotator()
			rot.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }
			rot.Round(t.Context())
			r.expect(c.want)
			if r.reopened != c.reopened+1 {
				t.Errorf("reopened %d times, want %d", r.reopened-1, c.reopened)
			}
		})
	}
}

// If the runtime cannot reopen a log, the log gets its original name back, and the runtime continues to write to it. The next round rotates
// the log.
func TestReopenFails(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	r.write("full to the brim\n")
	r.err = errors.New("no")
	rot := r.rotator()
	rot.Round(t.Context())
	r.write("more\n")
	r.expect(map[string]string{"0.log": "full to the brim\nmore\n"})
	r.err = nil
	rot.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }
	rot.Round(t.Context())
	r.write("new\n")
	r.expect(map[string]string{"0.log": "new\n", "0.log.20260203-040506": "full to the brim\nmore\n"})
}

// All logs are rotated before any file is compressed.
func TestRotationComesBeforeCompression(t *testing.T) {
	t.Parallel()
	a, b := newRuntime(t), newRuntime(t)
	const old = "0.log.20260102-030405"
	a.put(map[string]string{old: "old"})
	rot, _ := two(a, b, func(c *Config) {
		reopen := c.Reopen
		c.Reopen = func(ctx context.Context, id string) error {
			if _, compressed := a.files()[old+".gz"]; compressed {
				t.Errorf("the log of container %s was rotated after the compression of a file", id)
			}
			return reopen(ctx, id)
		}
	})
	a.write("full to the brim\n")
	b.write("full to the brim\n")
	rot.Round(t.Context())
	a.expect(map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n", old + ".gz": "old"})
	b.expect(map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n"})
}

// A round that has no time left compresses one file. The next rounds compress the others, although the log is not due again.
func TestCompressionGoesOnInTheNextRound(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	r.put(map[string]string{"0.log.20260102-030401": "1", "0.log.20260102-030402": "2", "0.log.20260102-030403": "3"})
	rot := r.rotator(func(c *Config) { c.Interval, c.MaxFiles = time.Nanosecond, 10 })
	rot.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }
	r.write("full to the brim\n")
	want := map[string]string{"0.log": "", "0.log.20260203-040506": "full to the brim\n"}
	for n := range 4 { // the fourth round has nothing to do
		rot.Round(t.Context())
		for i := 1; i <= 3; i++ {
			name := fmt.Sprint("0.log.20260102-03040", i)
			delete(want, name)
			if i <= n+1 {
				name += ".gz"
			}
			want[name] = fmt.Sprint(i)
		}
		r.expect(want)
	}
	if len(rot.olds) > 0 {
		t.Errorf("still remembered: %v", rot.olds)
	}
}

// A compression that takes too long ends. The file stays as it is, and the node does not try again.
func TestCompressionThatTakesTooLong(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	r.put(map[string]string{"0.log.20260102-030405": "old"})
	var logged bytes.Buffer
	rot := r.rotator(func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&logged, nil)) })
	rot.longest = time.Nanosecond
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	rot.now = func() time.Time { return at }
	r.write("full to the brim\n")
	rot.Round(t.Context())
	want := map[string]string{"0.log": "", "0.log.20260102-030405": "old", "0.log.20260203-040506": "full to the brim\n"}
	r.expect(want)
	if !strings.Contains(logged.String(), "stays uncompressed") || !strings.Contains(logged.String(), "more than 1ns") {
		t.Errorf("the log:\n%s", logged.String())
	}
	logged.Reset()
	rot.longest, at = compressFor, at.Add(time.Second)
	r.write("full again\n")
	rot.Round(t.Context())
	delete(want, "0.log.20260203-040506")
	want["0.log.20260203-040506.gz"], want["0.log.20260203-040507"] = "full to the brim\n", "full again\n"
	r.expect(want)
	if logged.Len() > 0 {
		t.Errorf("the log:\n%s", logged.String())
	}
	// When the container has ended, nothing about its log is remembered.
	rot.cfg.Running = func() []Container { return nil }
	rot.Round(t.Context())
	if len(rot.olds) > 0 {
		t.Errorf("still remembered: %v", rot.olds)
	}
}

// A second rotation within a second, or after the clock was set back, must not replace an existing file.
func TestSameName(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	rot := r.rotator()
	rot.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }
	r.write("first, long enough\n")
	rot.Round(t.Context())
	r.write("second, long enough\n")
	rot.Round(t.Context())
	r.expect(map[string]string{"0.log": "second, long enough\n", "0.log.20260203-040506.gz": "first, long enough\n"})
}

// After the clock was set back, as it is on a node with local time when summer time ends, the newest lines stay and the oldest go.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	at := time.Date(2026, 10, 25, 2, 50, 0, 0, time.UTC)
	rot := r.rotator()
	rot.now = func() time.Time { return at }
	for i := range 8 {
		if i == 4 {
			at = at.Add(-time.Hour)
		}
		at = at.Add(time.Minute)
		r.write(fmt.Sprintf("lines of file %d\n", i))
		rot.Round(t.Context())
	}
	r.expect(map[string]string{
		"0.log": "", "0.log.20261025-025404": "lines of file 7\n", "0.log.20261025-025403.gz": "lines of file 6\n", "0.log.20261025-025402.gz": "lines of file 5\n",
	})
}

// A file with a name that no clock has given decides no other names.
func TestNameOfAFarFuture(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	r.put(map[string]string{"0.log.99991231-235959.gz": "planted"})
	rot := r.rotator()
	rot.now = func() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }
	r.write("long enough\n")
	rot.Round(t.Context())
	if _, ok := r.files()["0.log.20260203-040506"]; !ok {
		t.Errorf("files %v", r.files())
	}
}

// The log of a pod that is being removed is not created again.
func TestDirectoryGone(t *testing.T) {
	t.Parallel()
	r := newRuntime(t)
	if err := os.RemoveAll(filepath.Dir(r.path)); err != nil {
		t.Fatal(err)
	}
	r.rotator().Round(t.Context())
	if r.reopened != 1 {
		t.Error("the log was reopened")
	}
}

// "containerLogMonitorInterval specifies the duration at which the container logs are monitored for performing the log
// rotate operation", and "containerLogMaxWorkers specifies the maximum number of concurrent workers".
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all []Container
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		path := filepath.Join(dir, id, "0.log")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o640); err != nil {
			t.Fatal(err)
		}
		all = append(all, Container{ID: id, Path: path})
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked, now, most, done := 0, 0, 0, 0
		rot := New(Config{
			MaxSize: 10, MaxFiles: 2, Workers: 2, Interval: 10 * time.Second,
			Running: func() []Container { asked++; return all },
			Reopen: func(_ context.Context, id string) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				now--
				done++
				mu.Unlock()
				return os.WriteFile(filepath.Join(dir, id, "0.log"), nil, 0o640)
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- rot.Run(ctx) }()
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if asked != 4 || done != 5 || most != 2 {
			t.Errorf("%d looks, %d reopened, %d at once; want 4, 5, 2", asked, done, most)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
