package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func root(t *testing.T, pods ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range pods {
		if err := os.MkdirAll(filepath.Join(dir, "pods", p), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T, cfg Config) *Ranges {
	t.Helper()
	r := New(cfg)
	if err := r.Load(); err != nil {
		t.Fatal(err)
	}
	return r
}

func first(t *testing.T, r *Ranges, uid types.UID) uint32 {
	t.Helper()
	f, length, err := r.Range(uid)
	if err != nil || length != r.cfg.Length {
		t.Fatalf("range of %s: %d, %v", uid, length, err)
	}
	return f
}

// "The kubelet ... ensures that no two pods on the same node use the same mapping". A pod keeps its range over restarts of the
// agent.
func TestRanges(t *testing.T) {
	t.Parallel()
	dir := root(t, "a", "b", "c")
	r := load(t, Config{RootDir: dir})
	if a, b := first(t, r, "a"), first(t, r, "b"); a != 65536 || b != 131072 {
		t.Errorf("the first ranges begin at %d and %d", a, b)
	}
	if again := first(t, r, "a"); again != 65536 {
		t.Errorf("a got another range: %d", again)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "pods", "b", "userns"))
	want := `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`
	if err != nil || string(raw) != want {
		t.Errorf("the file of b is %s, %v; want %s", raw, err, want)
	}

	r = load(t, Config{RootDir: dir}) // a new agent
	if b, c := first(t, r, "b"), first(t, r, "c"); b != 131072 || c != 3*65536 {
		t.Errorf("after a restart b has %d and c gets %d", b, c)
	}
	if err := errors.Join(r.Release("a"), r.Release("a"), r.Release("never had one")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pods", "a", "userns")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a is still there: %v", err)
	}
	if got := fmt.Sprint(r.Pods()); got != "[b c]" {
		t.Errorf("pods with a range: %s", got)
	}
}

func TestExhausted(t *testing.T) {
	t.Parallel()
	r := load(t, Config{Length: 65536, Pool: func() (Pool, error) { return Pool{First: 1 << 20, Count: 3 * 65536}, nil }})
	for _, uid := range []types.UID{"a", "b", "c"} {
		first(t, r, uid)
	}
	if _, _, err := r.Range("d"); err == nil || err.Error() != "all 3 ranges of 65536 user IDs are taken" {
		t.Errorf("a fourth pod: %v", err)
	}
	if err := r.Release("b"); err != nil {
		t.Fatal(err)
	}
	if d := first(t, r, "d"); d != 1<<20+65536 {
		t.Errorf("the released range is not used again: %d", d)
	}
}

// Concurrent calls get ranges that do not overlap, until the pool is empty.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	r := load(t, Config{})
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			f, _, err := r.Range(types.UID(fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[f] || f%65536 != 0 || f == 0 {
				t.Errorf("range %d, %v", f, err)
			}
			seen[f] = true
		})
	}
	wg.Wait()
}

// The kernel maps no range with the ID 2^32-1, so no pod gets the last range of all IDs, however many pods had ranges before.
func TestTheLastRangeIsNeverGiven(t *testing.T) {
	t.Parallel()
	r := load(t, Config{Length: 1 << 30})
	for i := range 5 {
		uid := types.UID(fmt.Sprint(i))
		if f, want := first(t, r, uid), uint32(1+i%2)<<30; f != want {
			t.Errorf("pod %d gets the range from %d, want %d", i, f, want)
		}
		if err := r.Release(uid); err != nil {
			t.Fatal(err)
		}
	}
	first(t, r, "a")
	first(t, r, "b")
	if _, _, err := r.Range("c"); err == nil || err.Error() != "all 2 ranges of 1073741824 user IDs are taken" {
		t.Errorf("a third pod: %v", err)
	}
}

// idsPerPod may change while pods run. Their ranges stay, and new ranges do not overlap them.
func TestLengthChanges(t *testing.T) {
	t.Parallel()
	dir := root(t, "a", "b", "c")
	first(t, load(t, Config{RootDir: dir}), "a") // gets the range 65536 to 131071
	r := load(t, Config{RootDir: dir, Length: 131072})
	if f, length, err := r.Range("a"); err != nil || f != 65536 || length != 65536 {
		t.Errorf("a: %d %d %v", f, length, err)
	}
	if b := first(t, r, "b"); b != 131072 {
		t.Errorf("b: %d", b)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"cut short": `{"uidMappings":[{"hos`, "empty": "",
		"two ranges":   `{"uidMappings":[{"hostId":65536,"length":1},{"hostId":1,"length":1}],"gidMappings":[]}`,
		"other groups": `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`,
		"root":         `{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := root(t, "a", "b")
			path := filepath.Join(dir, "pods", "a", "userns")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			r := New(Config{RootDir: dir})
			if err := r.Load(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("load: %v", err)
			}
			if _, _, err := r.Range("b"); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("a range was given while another is unknown: %v", err)
			}
			if err := r.Release("a"); err != nil { // the pod is gone
				t.Fatal(err)
			}
			first(t, r, "b")
		})
	}
}

func TestPool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pool Pool
		want string
	}{
		{Pool{}, ""}, {Pool{First: 131072, Count: 65536 * 10}, ""},
		{Pool{First: 100000, Count: 65536}, "do not divide into ranges of 65536"},
		{Pool{First: 131072, Count: 1000}, "do not divide into ranges of 65536"},
		{Pool{First: 0, Count: 65536 * 2}, "must not get IDs below 65536"},
		{Pool{First: 1 << 31, Count: 1 << 32}, "beyond 2^32"},
	} {
		err := New(Config{Pool: func() (Pool, error) { return c.pool, nil }}).Load()
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.pool, err, c.want)
		}
	}
	if _, _, err := New(Config{}).Range("a"); err == nil {
		t.Error("a range was given before the ranges of pods on disk were known")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	p, err := parse("0: kubelet 65536 7208960\n", "0: kubelet 65536 7208960\n")
	if err != nil || p != (Pool{65536, 7208960}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, c := range [][2]string{
		{"0: kubelet 65536 65536\n", "0: kubelet 131072 65536\n"}, {"", ""}, {"0: kubelet 65536\n", "0: kubelet 65536\n"},
		{"0: kubelet 1 1\n1: kubelet 2 2\n", "0: kubelet 1 1\n1: kubelet 2 2\n"}, {"0: kubelet -1 5\n", "0: kubelet -1 5\n"},
		{"0: kubelet 65536 x\n", "0: kubelet 65536 x\n"}, {"0: kubelet 5000000000 1\n", "0: kubelet 5000000000 1\n"},
	} {
		if p, err := parse(c[0], c[1]); err == nil {
			t.Errorf("%q, %q: %+v", c[0], c[1], p)
		}
	}
}

// While a file cannot be read, pods get no range, and Failing returns the reason. When the file can be read again, they get
// ranges without a restart of the agent.
func TestAnUnreadableFileIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := root(t, "a", "b")
	path := filepath.Join(dir, "pods", "a", "userns")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // an empty file, as a power cut can leave it
		t.Fatal(err)
	}
	r := New(Config{RootDir: dir})
	if err := r.Load(); err == nil || r.Failing() == nil {
		t.Fatalf("loaded an empty file: %v, failing: %v", err, r.Failing())
	}
	if _, _, err := r.Range("b"); err == nil {
		t.Error("a range was given while another is unknown")
	}
	if err := write(path, span{65536, 131072}); err != nil {
		t.Fatal(err)
	}
	if b := first(t, r, "b"); b != 131072 {
		t.Errorf("b got the range from %d", b)
	}
	if err := r.Failing(); err != nil {
		t.Errorf("the file is repaired, but Failing returns %v", err)
	}
}

// While the disk takes its time for the range of one pod, other pods get theirs, and no two are the same. A second call for the same pod waits, so that
// the pod does not start with a range that a crash would lose. If the write fails, the range is free again.
func TestRangesAreWrittenBesideEachOther(t *testing.T) {
	t.Parallel()
	dir := root(t, "slow", "quick")
	began, goOn := make(chan struct{}), make(chan error)
	r := load(t, Config{RootDir: dir, write: func(path string, s span) error {
		if strings.Contains(path, "slow") {
			began <- struct{}{}
			if err := <-goOn; err != nil {
				return err
			}
		}
		return write(path, s)
	}})
	type answer struct {
		first uint32
		err   error
	}
	answers := make(chan answer, 2)
	ask := func() {
		f, _, err := r.Range("slow")
		answers <- answer{f, err}
	}
	go ask()
	<-began
	if f := first(t, r, "quick"); f != 2*65536 {
		t.Errorf("the quick pod has the range from %d", f)
	}
	if err := r.Load(); err != nil { // must not forget the range that is being written
		t.Error(err)
	}
	go ask()
	goOn <- errors.New("disk full")
	if a := <-answers; a.err == nil || !strings.Contains(a.err.Error(), "disk full") {
		t.Errorf("the first call: %v", a)
	}
	<-began // the second call tries again
	if f := first(t, r, "quick"); f != 2*65536 {
		t.Errorf("the quick pod has another range, from %d", f)
	}
	goOn <- nil
	if a := <-answers; a.err != nil || a.first == 2*65536 {
		t.Errorf("the second call: %v", a)
	}
}

// While the ranges are read again after an error, and the disk takes its time, only pods that need a new range wait. What happened meanwhile to the
// range of another pod counts, not what was read of it before.
func TestTheDiskIsReadBesideOtherPods(t *testing.T) {
	t.Parallel()
	dir := root(t, "a", "b", "c", "new", "other")
	path := func(uid string) string { return filepath.Join(dir, "pods", uid, fileName) }
	for uid, from := range map[string]uint64{"a": 65536, "b": 2 * 65536, "c": 3 * 65536} {
		if err := write(path(uid), span{from, from + 65536}); err != nil {
			t.Fatal(err)
		}
	}
	began, goOn := make(chan struct{}), make(chan error)
	calls := 0
	r := New(Config{RootDir: dir, Pool: func() (Pool, error) {
		if calls++; calls > 1 {
			began <- struct{}{}
			return Pool{}, <-goOn
		}
		return Pool{}, errors.New("getsubids does not answer")
	}})
	if err := r.Load(); err == nil {
		t.Fatal("loaded without a pool")
	}
	given := make(chan uint32, 2)
	for _, uid := range []types.UID{"new", "other"} {
		go func() {
			f, _, err := r.Range(uid)
			if err != nil {
				t.Error(err)
			}
			given <- f
		}()
	}
	<-began // the files have been read
	beside := make(chan struct{})
	go func() {
		defer close(beside)
		if f, _, err := r.Range("a"); err != nil || f != 65536 {
			t.Errorf("the range of a pod that has one: from %d, %v", f, err)
		}
		if err := r.Release("b"); err != nil {
			t.Error(err)
		}
		if err := r.Release("none"); err != nil {
			t.Error(err)
		}
		if got := r.Pods(); len(got) != 2 {
			t.Errorf("pods with a range: %q, want a and c", got)
		}
	}()
	select {
	case <-beside:
	case <-time.After(20 * time.Second):
		t.Error("pods that have a range wait for the disk")
	}
	goOn <- nil
	<-beside
	got := []uint32{<-given, <-given}
	slices.Sort(got)
	if !slices.Equal(got, []uint32{2 * 65536, 4 * 65536}) {
		t.Errorf("new ranges from %d, want the one that was released and the first free one", got)
	}
	if _, err := os.Stat(path("b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a range that was released: %v", err)
	}
	if got := r.Pods(); len(got) != 4 || slices.Contains(got, "b") {
		t.Errorf("pods with a range: %q, want all but b", got)
	}
}
