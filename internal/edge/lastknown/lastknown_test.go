package lastknown_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/edge/lastknown"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// config returns a configuration whose key file is created on first use.
func config(t *testing.T) lastknown.Config {
	t.Helper()
	dir := t.TempDir()
	return lastknown.Config{
		Dir: filepath.Join(dir, "offline"), KeyFile: filepath.Join(dir, "pki", "key"), MakeKey: true,
		Node: "node-1", Cluster: "ca", MaxBytes: 1 << 20, MaxAge: time.Hour,
	}
}

// entries returns n secrets. round is the version and also the password of each of them.
func entries(n int, round string) (out []lastknown.Entry) {
	for i := range n {
		out = append(out, lastknown.Entry{
			ID: lastknown.ID{Kind: lastknown.KindSecret, Namespace: "ns", Name: fmt.Sprint("hidden-", i)}, Version: round, Content: map[string]string{"password": round},
		})
	}
	return out
}

func write(t *testing.T, cfg lastknown.Config, in []lastknown.Entry) {
	t.Helper()
	if err := lastknown.New(cfg).Write(in, now); err != nil {
		t.Fatal(err)
	}
}

// load returns the content of each object by its ID, and the number of refused files.
func load(t *testing.T, cfg lastknown.Config) (map[string]string, int) {
	t.Helper()
	rec, err := lastknown.New(cfg).Load(now)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, k := range rec.Known {
		out[k.ID.String()] = string(k.Content)
	}
	return out, len(rec.Refused)
}

// Load returns the entries of the last Write, including an entry for an object that does not exist. Entries of an earlier Write that
// the last Write does not have are gone.
func TestWriteAndLoad(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	if _, err := lastknown.New(cfg).Load(now); !errors.Is(err, lastknown.ErrNone) {
		t.Errorf("an empty directory: %v", err)
	}
	write(t, cfg, append(entries(3, "one"), lastknown.Entry{ID: lastknown.ID{Kind: lastknown.KindConfigMap, Namespace: "ns", Name: "absent"}}))
	s := lastknown.New(cfg)
	rec, err := s.Load(now.Add(time.Minute))
	if err != nil || !rec.At.Equal(now) || len(rec.Known) != 4 {
		t.Fatalf("%+v, %v", rec, err)
	}
	next := entries(2, "two")
	next[1] = lastknown.Entry{ID: next[1].ID, Keep: true}
	if err := s.Write(next, now); err != nil {
		t.Fatal(err)
	}
	got, refused := load(t, cfg)
	want := map[string]string{"secret ns/hidden-0": `{"password":"two"}`, "secret ns/hidden-1": `{"password":"one"}`}
	if d := cmp.Diff(want, got); d != "" || refused > 0 {
		t.Errorf("%d refused, (-want +got):\n%s", refused, d)
	}
}

// Only the owner can read the files, and without the key neither the content nor the name of a file reveals anything.
func TestNothingIsReadableWithoutTheKey(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	write(t, cfg, entries(2, "swordfish"))
	files, err := os.ReadDir(cfg.Dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(cfg.Dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"swordfish", "password", "hidden", "node-1", "secret"} {
			if bytes.Contains(raw, []byte(word)) || strings.Contains(f.Name(), word) {
				t.Errorf("%s shows %q", f.Name(), word)
			}
		}
	}
	for path, want := range map[string]fs.FileMode{cfg.Dir: 0o700, cfg.KeyFile: 0o600, filepath.Join(cfg.Dir, files[0].Name()): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	if err := os.WriteFile(cfg.KeyFile, bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lastknown.New(cfg).Load(now); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("with another key: %v", err)
	}
}

// Load refuses each damaged, foreign or forged file by itself, and returns the other files.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, path, other string){
		"torn":     func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 60)) },
		"empty":    func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 0)) },
		"one bit":  func(t *testing.T, path, _ string) { flip(t, path, -1) },
		"version":  func(t *testing.T, path, _ string) { flip(t, path, 18) },
		"nonce":    func(t *testing.T, path, _ string) { flip(t, path, 22) },
		"too long": func(t *testing.T, path, _ string) { must(t, os.Truncate(path, 5<<20)) },
		"junk":     func(t *testing.T, path, _ string) { must(t, os.WriteFile(path, []byte(`{"kind":"secret"}`), 0o600)) },
		"copied":   func(t *testing.T, path, other string) { copyFile(t, other, path) },
		"link":     func(t *testing.T, path, other string) { must(t, os.Remove(path)); must(t, os.Symlink(other, path)) },
		"pipe":     func(t *testing.T, path, _ string) { must(t, os.Remove(path)); must(t, syscall.Mkfifo(path, 0o600)) },
		"directory": func(t *testing.T, path, _ string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			write(t, cfg, entries(3, "one"))
			files := recordFiles(t, cfg.Dir)
			damage(t, files[0], files[1])
			got, refused := load(t, cfg)
			if len(got) != 2 || refused != 1 {
				t.Errorf("%d used, %d refused", len(got), refused)
			}
			if name == "directory" {
				return // the agent removes no directory that it has not created
			}
			write(t, cfg, entries(3, "two")) // repairs the file
			if got, refused := load(t, cfg); len(got) != 3 || refused != 0 {
				t.Errorf("after a write: %d used, %d refused", len(got), refused)
			}
		})
	}
}

// A record of another node or cluster is refused even with the same key, as on a copied disk.
func TestForeignRecord(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	write(t, cfg, entries(1, "one"))
	for want, foreign := range map[string]func(c *lastknown.Config){
		`it is of the node "node-1", and this node is "node-2"`: func(c *lastknown.Config) { c.Node = "node-2" },
		"it is of another cluster":                              func(c *lastknown.Config) { c.Cluster = "other ca" },
	} {
		c := cfg
		foreign(&c)
		if _, err := lastknown.New(c).Load(now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A single file of another node that was copied into the record is refused too.
	other := cfg
	other.Node, other.Dir = "node-2", t.TempDir()
	write(t, other, entries(1, "two"))
	copyFile(t, recordFiles(t, other.Dir)[0], recordFiles(t, cfg.Dir)[0])
	if got, refused := load(t, cfg); len(got) != 0 || refused != 1 {
		t.Errorf("%v used, %d refused", got, refused)
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	write(t, cfg, entries(1, "one"))
	for age, refused := range map[time.Duration]bool{
		time.Hour: false, time.Hour + time.Second: true, 87600 * time.Hour: true,
		-87600 * time.Hour: false, // the clock is before the record's time, as on a machine that boots without a clock battery
	} {
		rec, err := lastknown.New(cfg).Load(now.Add(age))
		if got := errors.Is(err, lastknown.ErrTooOld); got != refused || !got && len(rec.Known) != 1 {
			t.Errorf("age %v: %v", age, err)
		}
		if refused && !strings.Contains(err.Error(), "If the clock is wrong, set it") {
			t.Errorf("age %v: the error does not say what helps: %v", age, err)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	big := entries(3, strings.Repeat("x", 1000))
	write(t, cfg, big)
	small := cfg
	small.MaxBytes = 3000
	if _, err := lastknown.New(small).Load(now); !errors.Is(err, lastknown.ErrTooLarge) || !strings.Contains(err.Error(), "offlineStart.maxSize") {
		t.Errorf("load: %v", err)
	}
	s := lastknown.New(small)
	for range 2 { // the second call of Write finds the files of the first
		if err := s.Write(big, now); !errors.Is(err, lastknown.ErrTooLarge) || !strings.Contains(err.Error(), "1 of 3") {
			t.Errorf("write: %v", err)
		}
		if got, _ := load(t, small); len(got) != 2 || got["secret ns/hidden-2"] != "" {
			t.Errorf("the last is not the one that is left out: %d", len(got))
		}
	}
	one := []lastknown.Entry{{ID: big[0].ID, Version: "huge", Content: strings.Repeat("x", 5<<20)}}
	cfg.MaxBytes = 1 << 30
	if err := lastknown.New(cfg).Write(one, now); !errors.Is(err, lastknown.ErrTooLarge) {
		t.Errorf("a huge object: %v", err)
	}
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	cfg := config(t)
	cfg.KeyFile, cfg.MakeKey = key, false
	try := func() error { return lastknown.New(cfg).Write(entries(1, "one"), now) }
	if err := try(); err == nil || !strings.Contains(err.Error(), "offlineStart.keyFile") {
		t.Errorf("no file: %v", err)
	}
	must(t, os.WriteFile(key, bytes.Repeat([]byte{1}, 15), 0o600))
	if err := try(); err == nil || !strings.Contains(err.Error(), "has 15 bytes") {
		t.Errorf("a short key: %v", err)
	}
	must(t, os.WriteFile(key, bytes.Repeat([]byte{1}, 5000), 0o600))
	if err := try(); err == nil {
		t.Error("a key of 5000 bytes is accepted")
	}
	must(t, os.WriteFile(key, bytes.Repeat([]byte{1}, 32), 0o600))
	must(t, os.Chmod(key, 0o640))
	if err := try(); err == nil || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("a key that others can read: %v", err)
	}
	must(t, os.Chmod(key, 0o400))
	must(t, try())
	if _, err := os.Stat(filepath.Join(filepath.Dir(cfg.Dir), "pki")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another key file was made: %v", err)
	}
}

// disk counts operations. Operation number failAt and all later ones fail. If torn is set, a write that fails leaves half of the new
// content in the temporary file, as a power cut does.
type disk struct {
	lastknown.OS
	n, failAt int
	torn      bool
	written   []string
}

var errDisk = errors.New("no space left on device")

func (d *disk) fails() bool { d.n++; return d.failAt > 0 && d.n >= d.failAt }

func (d *disk) WriteFile(path string, data []byte, mode fs.FileMode) error {
	if d.fails() {
		if d.torn {
			_ = os.WriteFile(path+".new", data[:len(data)/2], mode)
		}
		return errDisk
	}
	d.written = append(d.written, filepath.Base(path))
	return d.OS.WriteFile(path, data, mode)
}

func (d *disk) Remove(path string) error {
	if d.fails() {
		return errDisk
	}
	return d.OS.Remove(path)
}

func (d *disk) SyncDir(dir string) error {
	if d.fails() {
		return errDisk
	}
	return d.OS.SyncDir(dir)
}

// The disk fails, or the machine loses power, at each operation of a write in turn. Each object then has its old or its new state,
// and the next write, by the same agent or by another agent, completes the record.
func TestFaultAtEachOperation(t *testing.T) {
	t.Parallel()
	before, after := entries(5, "old"), entries(3, "new")
	after = append(after, lastknown.Entry{ID: lastknown.ID{Kind: lastknown.KindPod, Namespace: "ns", Name: "uid"}, Version: "1", Content: "pod"})
	for n := 1; ; n++ {
		cfg := config(t)
		write(t, cfg, before)
		d := &disk{failAt: n, torn: n%2 == 0}
		faulty := cfg
		faulty.Disk = d
		s := lastknown.New(faulty)
		err := s.Write(after, now.Add(time.Minute))
		if err == nil {
			if n < 6 {
				t.Errorf("the write has only %d operations", n)
			}
			return
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("operation %d: %v", n, err)
		}
		got, refused := load(t, cfg)
		if refused > 0 {
			t.Errorf("operation %d: %d refused", n, refused)
		}
		for id, text := range got {
			if text != `{"password":"old"}` && text != `{"password":"new"}` && text != `"pod"` {
				t.Errorf("operation %d: %s is %s", n, id, text)
			}
		}
		for i := range 3 {
			if id := after[i].ID.String(); got[id] == "" {
				t.Errorf("operation %d: %s is lost", n, id)
			}
		}
		if d.failAt = 0; n%3 == 0 {
			s = lastknown.New(cfg)
		}
		must(t, s.Write(after, now))
		if got, refused := load(t, cfg); len(got) != 4 || refused > 0 || got["secret ns/hidden-0"] != `{"password":"new"}` {
			t.Errorf("operation %d: after the next write: %v", n, got)
		}
	}
}

// Write writes only the head and the entries that have changed since the last Write, even if an earlier agent made the last Write.
func TestOnlyChangesAreWritten(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	d := &disk{}
	cfg.Disk = d
	s := lastknown.New(cfg)
	all := entries(50, "one")
	must(t, s.Write(all, now))
	d.written = nil
	must(t, s.Write(all, now))
	must(t, lastknown.New(cfg).Write(all, now))
	if len(d.written) != 2 {
		t.Errorf("two writes without a change wrote %d files, want the head twice", len(d.written))
	}
	d.written = nil
	all[7].Version, all[7].Content = "two", map[string]string{"password": "two"}
	all[8].Version = "two" // a new version with unchanged content: the file is not written
	must(t, s.Write(all, now))
	if len(d.written) != 2 {
		t.Errorf("one change wrote %d files, want it and the head", len(d.written))
	}
}

// FuzzFile reads arbitrary bytes in place of a file of the record.
func FuzzFile(f *testing.F) {
	f.Add([]byte("wherry last known 1\n0123456789abcdef0123456789abcdef0123456789abcdef"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg := config(t)
		write(t, cfg, entries(2, "one"))
		files := recordFiles(t, cfg.Dir)
		if old, err := os.ReadFile(files[0]); err == nil && bytes.Equal(old, raw) {
			t.Skip()
		}
		must(t, os.WriteFile(files[0], raw, 0o600))
		if got, refused := load(t, cfg); len(got) != 1 || refused != 1 {
			t.Errorf("%v, %d refused", got, refused)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit of a file; a negative index counts from the end.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	raw, err := os.ReadFile(path)
	must(t, err)
	raw[(at+len(raw))%len(raw)] ^= 1
	must(t, os.WriteFile(path, raw, 0o600))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, raw, 0o600))
}

// recordFiles returns the files of a record without the head.
func recordFiles(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.known"))
	must(t, err)
	for _, f := range all {
		if filepath.Base(f) != "head.known" {
			out = append(out, f)
		}
	}
	return out
}
