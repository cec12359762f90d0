package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// wanted is a Target that behaves like podset.Set. It also implements Objects.
type wanted struct {
	mu       sync.Mutex
	answered bool
	doubt    bool // the last argument of Doubt
	replaces int
	empties  int // calls of Replace without a pod
	pods     map[types.UID]*v1.Pod
	objects  []string
	wrongs   []string
}

func (w *wanted) Replace(_ pod.Source, pods []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered, w.pods = true, map[types.UID]*v1.Pod{}
	w.replaces++
	if len(pods) == 0 {
		w.empties++
	}
	for _, p := range pods {
		w.pods[p.UID] = p
	}
}

func (w *wanted) Upsert(_ pod.Source, p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		w.pods = map[types.UID]*v1.Pod{}
	}
	w.pods[p.UID] = p
}

func (w *wanted) Delete(pod.Source, *v1.Pod) {}

type objectsOf struct{ *wanted }

func (o objectsOf) Replace(_ pod.Source, configMaps []*v1.ConfigMap, secrets []*v1.Secret) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.objects = nil
	for _, c := range configMaps {
		o.objects = append(o.objects, "ConfigMap "+c.Name)
	}
	for _, s := range secrets {
		o.objects = append(o.objects, "Secret "+s.Name)
	}
}

func (w *wanted) wrong(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrongs = append(w.wrongs, err.Error())
}

func (w *wanted) doubts(_ pod.Source, doubt bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt = doubt
}

// state returns whether the source has answered, whether it is in doubt, and which errors it reported.
func (w *wanted) state() (answered, doubt bool, wrongs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answered, w.doubt, slices.Clone(w.wrongs)
}

func (w *wanted) emptied() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.empties
}

func (w *wanted) replaced() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replaces
}

// names returns the pods with their images and UIDs.
func (w *wanted) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []string{}
	for _, p := range w.pods {
		out = append(out, p.Name+" "+p.Spec.Containers[0].Image)
	}
	slices.Sort(out)
	return out
}

func (w *wanted) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if d := cmp.Diff(append([]string{}, want...), w.names()); d != "" {
		t.Errorf("%s (-want +got):\n%s", when, d)
	}
}

func (w *wanted) config() Config {
	return Config{NodeName: "n", Target: w, Objects: objectsOf{w}, Wrong: w.wrong, Doubt: w.doubts, Log: slog.New(slog.DiscardHandler)}
}

func podText(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: " + image + "}]}\n"
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inDir runs, in a synctest bubble, a directory source that reads its files every 20 s, and calls f.
func inDir(t *testing.T, dir string, f func(w *wanted)) {
	synctest.Test(t, func(t *testing.T) {
		w := &wanted{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Dir{Config: w.config(), Path: dir, Period: 20 * time.Second}).Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		f(w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func nextLook() { time.Sleep(25 * time.Second); synctest.Wait() }

func TestDirFollowsItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "i:1")+"---\n"+podText("b", "i:1"))
	write(t, filepath.Join(dir, ".hidden.yaml"), podText("hidden", "i"))
	write(t, filepath.Join(dir, "a.yaml.bak"), podText("backup", "i"))
	if err := os.MkdirAll(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "sub.yaml", "c.yaml"), podText("deep", "i"))
	inDir(t, dir, func(w *wanted) {
		w.expect(t, "at first", "a-n i:1", "b-n i:1")
		if !w.answered {
			t.Error("no answer")
		}
		before := w.replaces
		nextLook()
		if w.replaces != before {
			t.Error("reported again though nothing has changed")
		}
		write(t, filepath.Join(dir, "a.yaml"), podText("a", "i:2"))
		write(t, filepath.Join(dir, "c.json"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`)
		nextLook()
		w.expect(t, "one edited, one made", "a-n i:2", "c-n i:1")
		if err := os.Rename(filepath.Join(dir, "c.json"), filepath.Join(dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		nextLook()
		w.expect(t, "one replaced by another", "c-n i:1")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		nextLook()
		w.expect(t, "directory removed")
	})
}

// A file that becomes empty, half written or invalid does not delete its pods: they stay until a valid file does not contain them.
func TestDirKeepsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	whole := podText("a", "i:1") + "---\n" + podText("b", "i:1") + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\n"
	write(t, a, whole)
	write(t, b, podText("c", "i:1"))
	inDir(t, dir, func(w *wanted) {
		all := []string{"a-n i:1", "b-n i:1", "c-n i:1"}
		w.expect(t, "at first", all...)
		for _, text := range []string{"", whole[:len(whole)/2], "\x00\x01", "a: [", "apiVersion: apps/v1\nkind: Deployment\n"} {
			write(t, a, text)
			nextLook()
			w.expect(t, fmt.Sprintf("written %q", text), all...)
			if d := cmp.Diff([]string{"ConfigMap conf"}, w.objects); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
		}
		reported := len(w.wrongs)
		nextLook()
		if len(w.wrongs) != reported || reported != 5 {
			t.Errorf("reported %q", w.wrongs)
		}
		if last := w.wrongs[reported-1]; !strings.HasPrefix(last, a+":2: document 1: kind: apps/v1 Deployment") {
			t.Errorf("reported %q", last)
		}
		write(t, a, podText("a", "i:2")+"---\nkind: Pod\n")
		nextLook()
		w.expect(t, "one document is right", "a-n i:2", "b-n i:1", "c-n i:1")
		write(t, a, podText("a", "i:2"))
		nextLook()
		w.expect(t, "and the other removed", "a-n i:2", "c-n i:1")
		write(t, a, "# nothing any more\n")
		nextLook()
		w.expect(t, "all removed from the file", "c-n i:1")
	})
}

// Dir uses a file only after its content has stayed the same for the time settle.
func TestDirWaitsForAFileToSettle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	inDir(t, dir, func(w *wanted) {
		if !w.answered {
			t.Error("an empty directory is no answer")
		}
		write(t, a, podText("a", "i:1"))
		time.Sleep(19*time.Second + 50*time.Millisecond) // until just before the next reading of the files
		w.expect(t, "seen once")
		write(t, a, podText("a", "i:2"))
		time.Sleep(200 * time.Millisecond)
		w.expect(t, "another text")
		time.Sleep(200 * time.Millisecond)
		w.expect(t, "settled", "a-n i:2")
	})
}

// A kubelet updates a mounted ConfigMap by replacing the link ..data. Dir must then read the new files.
func TestDirFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, v := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, "..v"+v), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "..v"+v, "a.yaml"), podText("a", "i:"+v))
	}
	link := func(v string) {
		tmp := filepath.Join(dir, "..tmp")
		if err := errors.Join(os.Symlink("..v"+v, tmp), os.Rename(tmp, filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	link("1")
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	inDir(t, dir, func(w *wanted) {
		w.expect(t, "at first", "a-n i:1")
		link("2")
		nextLook()
		w.expect(t, "exchanged", "a-n i:2")
	})
}

func TestTwoFilesWithOnePod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, podText("a", "i:1"))
	write(t, b, podText("a", "i:2"))
	inDir(t, dir, func(w *wanted) {
		w.expect(t, "the first counts", "a-n i:1")
		if len(w.wrongs) != 1 || !strings.Contains(w.wrongs[0], b) || !strings.Contains(w.wrongs[0], a) {
			t.Errorf("reported %q", w.wrongs)
		}
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
		nextLook()
		w.expect(t, "it is gone", "a-n i:2")
	})
}

// If the kernel reports events, the source notices without delay that a file changes, that a directory is created later, and that a
// directory is replaced.
func TestDirNoticesChanges(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "later", "manifests")
	w := &wanted{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Dir{Config: w.config(), Path: dir, Period: time.Hour, Watch: true}).Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	await := func(when string, want ...string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !slices.Equal(want, w.names()); {
			if time.Now().After(end) {
				w.expect(t, when, want...)
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "i:1"))
	await("made", "a-n i:1")
	write(t, filepath.Join(dir, "a.yaml"), podText("a", "i:2"))
	await("written", "a-n i:2")
	next := filepath.Join(top, "later", "next")
	if err := os.Mkdir(next, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(next, "b.yaml"), podText("b", "i:1"))
	if err := errors.Join(os.Rename(dir, filepath.Join(top, "old")), os.Rename(next, dir)); err != nil {
		t.Fatal(err)
	}
	await("exchanged", "b-n i:1")
	write(t, filepath.Join(dir, "c.yaml"), podText("c", "i:1"))
	await("in the new one", "b-n i:1", "c-n i:1")
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	await("removed", "c-n i:1")
	// If a file is removed and comes back at once with the same content, its pod ends and starts anew.
	c := filepath.Join(dir, "c.yaml")
	for what, back := range map[string]func() error{
		"removed and written": func() error { return errors.Join(os.Remove(c), os.WriteFile(c, []byte(podText("c", "i:1")), 0o600)) },
		"moved and moved back": func() error {
			return errors.Join(os.Rename(c, filepath.Join(top, "aside")), os.Rename(filepath.Join(top, "aside"), c))
		},
	} {
		before := w.emptied()
		if err := back(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(2 * time.Minute); w.emptied() == before && time.Now().Before(end); {
			<-time.After(10 * time.Millisecond)
		}
		await(what, "c-n i:1")
		if n := w.emptied() - before; n != 1 {
			t.Errorf("%s: its pod was taken away %d times, want once", what, n)
		}
	}
	// A file that is replaced by a rename, or written in place, does not count as removed.
	before, replaces := w.emptied(), w.replaced()
	write(t, c, podText("c", "i:1"))
	write(t, filepath.Join(top, "draft"), podText("c", "i:1"))
	if err := os.Rename(filepath.Join(top, "draft"), c); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "d.yaml"), podText("d", "i:1"))
	await("beside another", "c-n i:1", "d-n i:1")
	if w.emptied() != before || w.replaced() != replaces+1 {
		t.Errorf("a file that says the same took its pod away: %d times, %d answers", w.emptied()-before, w.replaced()-replaces)
	}
}

// server is a web server whose answers come from a function.
type server func(r *http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }

func TestURL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			mu      sync.Mutex // guards the fields below
			code    = http.StatusServiceUnavailable
			body    = ""
			reader  io.Reader
			refused error
			asked   []string
		)
		next := func(change func()) {
			mu.Lock()
			change()
			mu.Unlock()
			nextLook()
		}
		answer := server(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, strings.TrimSpace(r.Header.Get("X-Key")+" "+r.Header.Get("If-None-Match")))
			if refused != nil {
				return nil, refused
			}
			tag := fmt.Sprintf("%q", fmt.Sprint(len(body)))
			h := http.Header{"Etag": {tag}}
			if r.Header.Get("If-None-Match") == tag && code == http.StatusOK {
				return &http.Response{StatusCode: http.StatusNotModified, Body: http.NoBody, Header: h, Request: r}, nil
			}
			from := io.Reader(strings.NewReader(body))
			if reader != nil {
				from = reader
			}
			return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Body: io.NopCloser(from), Header: h, Request: r}, nil
		})
		w := &wanted{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		u := &URL{Config: w.config(), URL: "http://user:secret@host/pods?token=secret", Header: map[string][]string{"X-Key": {"k"}}, Period: 20 * time.Second, Transport: answer}
		go func() { ended <- u.Run(ctx) }()
		defer func() {
			cancel()
			<-ended
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if w.answered {
			t.Error("an error is an answer")
		}
		next(func() { code, body = http.StatusOK, podText("a", "i:1") })
		w.expect(t, "answered", "a-n i:1")
		for _, bad := range []func(){
			func() { code = http.StatusInternalServerError },
			func() { code = http.StatusNotFound },
			func() { code, body = http.StatusOK, "" },
			func() { refused = errors.New("connection refused") },
			func() { refused, body = nil, "apiVersion: v1\nkind: PodList\nitems: {}\n" },
			func() { reader = io.MultiReader(strings.NewReader("apiVersion: v1\nkind: PodList\n"), brokenReader{}) },
		} {
			next(bad)
			w.expect(t, "it cannot tell", "a-n i:1")
		}
		next(func() {
			reader, body = nil, "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: b}\n  spec: {containers: [{name: c, image: i:1}]}\n"
		})
		w.expect(t, "another answer", "b-n i:1")
		n := w.replaces
		nextLook()
		if last := asked[len(asked)-1]; w.replaces != n || last != fmt.Sprintf("k %q", fmt.Sprint(len(body))) {
			t.Errorf("reported again, or not asked by its tag: %q", last)
		}
		next(func() { body = "apiVersion: v1\nkind: PodList\nitems: []\n" })
		w.expect(t, "no pods")
		for _, e := range w.wrongs {
			if strings.Contains(e, "secret") {
				t.Errorf("an error shows a secret: %s", e)
			}
		}
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
