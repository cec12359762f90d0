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
	reference, err := ReadReference(filepath.Join(lists, "upstream.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range reference {
		if r.Status == "passed" && !slices.Contains(listed, name) && !slices.ContainsFunc(open, func(s string) bool { return strings.HasPrefix(s, name+"\t") }) {
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
	table := Table(ran, Results{"[sig-node] Pods should run": {Status: "passed", Seconds: 5}})
	if !strings.Contains(table, "1 of 3 passed") || !strings.Contains(table, "ratio 0.50") {
		t.Errorf("table:\n%s", table)
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
