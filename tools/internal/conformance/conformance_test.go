package conformance

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/images"
)

const lists = "../../../conformance"

func TestWhatUpstreamPassesIsListedOrExplained(t *testing.T) {
	t.Parallel()
	listed, err := ReadPasses(filepath.Join(lists, "passes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
		t.Error("passes.txt is not sorted, or names a test twice")
	}
	open, err := ReadPasses(filepath.Join(lists, "open.txt"))
	if err != nil {
		t.Fatal(err)
	}
	// The reasons stand beside the names.
	if data, err := os.ReadFile(filepath.Join(lists, "open.txt")); err != nil || len(open) != strings.Count(string(data), "\t") {
		t.Errorf("open.txt: not every test has its reason after a tab (%v)", err)
	}
	reference, err := ReadReference(filepath.Join(lists, "upstream.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range reference.Results() {
		if r.Status == "passed" && !slices.Contains(listed, name) && !slices.Contains(open, name) {
			t.Errorf("upstream's kubelet passes %q: it is neither in passes.txt nor, with the reason, in open.txt", name)
		}
	}
}

func TestJUnit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(path, []byte(`<testsuites><testsuite>
<testcase name="[BeforeSuite]" time="0.1"></testcase>
<testcase name="[It] [sig-node] Pods should run" time="2.5"></testcase>
<testcase name="[It] [sig-node] Pods should end" time="3"><failure message="it did not"></failure></testcase>
<testcase name="[It] [sig-node] Pods on Windows" time="0.2"><skipped message="no"></skipped></testcase>
<testcase name="[It] [sig-apps] other" time="0"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`), 0o644); err != nil {
		t.Fatal(err)
	}
	ran, err := ReadJUnit(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ran.Names(), []string{"[sig-node] Pods on Windows", "[sig-node] Pods should end", "[sig-node] Pods should run"}; !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q", got, want)
	}
	listed := []string{"[sig-node] Pods should end", "[sig-node] Pods should run", "[sig-node] not asked for"}
	if got := Broken(listed, ran); !slices.Equal(got, listed[:1]) {
		t.Errorf("broken are %q, want %q", got, listed[:1])
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	ran := Results{"[sig-node] Pods should run": {Status: "passed", Seconds: 2.5}, "[sig-node] Pods should end": {Status: "failed", Seconds: 3}, "[sig-node] alone": {Status: "passed", Seconds: 1}}
	reference := Reference{{
		Title: "upstream's kubelet: v1, 3 tests, wall time 10 s",
		Tests: Results{"[sig-node] Pods should run": {Status: "passed", Seconds: 5}, "[sig-node] Pods should end": {Status: "passed", Seconds: 2}, "[sig-node] alone": {Status: "skipped"}},
	}}
	table := Table("Wherry", ran, reference, 8)
	for _, want := range []string{
		"2 of 3 passed, 6 s in all, wall time 8 s\n", "those that both pass: Wherry 2 s, upstream's kubelet 5 s, ratio 0.50\n",
		"wall time of the same tests: Wherry 8 s, upstream's kubelet 10 s, ratio 0.80\n", "2 differ",
		"failed, upstream's kubelet passed: [sig-node] Pods should end\n" +
			`    make conformance NODE=wherry FOCUS='\[sig-node\] Pods should end$$'` + "\n" +
			`    make conformance NODE=kubelet FOCUS='\[sig-node\] Pods should end$$'` + "\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in the table:\n%s", want, table)
		}
	}
	if table := Table("Wherry", Results{"[sig-node] alone": {Status: "passed", Seconds: 1}}, reference, 8); strings.Contains(table, "wall time of the same tests") {
		t.Errorf("a part is compared with the whole:\n%s", table)
	}
}

func TestReferenceKeepsWhatALaterRunLeftOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "upstream.txt")
	const before = "# upstream's kubelet: v1, 2 tests, wall time 9 s\n# Remark.\npassed\t2.0\ta\nfailed\t7.0\tb\n"
	if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	reference, err := ReadReference(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := reference.String(); got != before {
		t.Errorf("written again:\n%s\nwant:\n%s", got, before)
	}
	got := reference.With(ReferenceRun{Title: "upstream's kubelet: v2, 1 tests, wall time 3 s", Tests: Results{"b": {Status: "passed", Seconds: 3}}}).String()
	const want = "# upstream's kubelet: v2, 1 tests, wall time 3 s\npassed\t3.0\tb\n\n# upstream's kubelet: v1, 2 tests\n# Remark.\npassed\t2.0\ta\n"
	if got != want {
		t.Errorf("with a later run:\n%s\nwant:\n%s", got, want)
	}
	for _, bad := range []string{"passed\t1\ta\n", "# upstream's kubelet: v1\npassed a\n", "# upstream's kubelet: v1\npassed\tsoon\ta\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReference(path); err == nil || !strings.Contains(err.Error(), "line") {
			t.Errorf("%q: error %v does not name the line", bad, err)
		}
	}
}

func TestRegistryServesUnderTheNameThatWasMeant(t *testing.T) {
	t.Parallel()
	image := images.Image{Reference: "registry.k8s.io/pause:1", Files: []images.File{{Path: "pause", Mode: 0o755, Data: []byte("x")}}}
	registry, err := NewRegistry([]images.Image{image})
	if err != nil {
		t.Fatal(err)
	}
	_, manifest, err := image.Blobs()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/v2/": 200, "/v2/pause/manifests/1?ns=registry.k8s.io": 200, "/v2/pause/manifests/1?ns=docker.io": 404,
		"/v2/pause/manifests/2?ns=registry.k8s.io": 404, "/v2/pause/manifests/" + manifest: 200, "/v2/pause/blobs/sha256:0": 404, "/": 404,
	} {
		w := httptest.NewRecorder()
		registry.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("GET %s: %d, want %d", path, w.Code, want)
		}
		if strings.Contains(path, "manifests") && w.Code == 200 && w.Header().Get("Docker-Content-Digest") != manifest {
			t.Errorf("GET %s: digest %q, want %q", path, w.Header().Get("Docker-Content-Digest"), manifest)
		}
	}
	w := httptest.NewRecorder()
	registry.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/v2/pause/manifests/1", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d", w.Code)
	}
}
