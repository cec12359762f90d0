package conformance

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
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
	// In open.txt, each name is followed by a tab and a reason.
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

// No file lists the tests of these suites that must pass. The tests that must pass are those that upstream's kubelet passes, except the tests
// in the suite's open.txt.
func TestWhatUpstreamPassesPassesOrIsOpen(t *testing.T) {
	t.Parallel()
	for suite, least := range map[string]int{SuiteNode: 200, SuiteKubeadm: 200, SuiteStorage: 200, SuiteExternal: 120} {
		o := Options{Suite: suite, Checkout: "../../.."}
		upstream, err := ReadReference(o.list("upstream.txt"))
		if err != nil {
			t.Fatal(err)
		}
		wherry, err := ReadReference(o.list("wherry.txt"))
		if err != nil {
			t.Fatal(err)
		}
		listed, err := o.listed(upstream)
		if err != nil {
			t.Fatal(err)
		}
		if len(listed) < least {
			t.Errorf("suite %s: only %d tests must pass", suite, len(listed))
		}
		results := wherry.Results()
		for _, name := range listed {
			if results[name].Status != "passed" {
				t.Errorf("upstream's kubelet passes %q, Wherry does not (%q), and no reason stands in %s", name, results[name].Status, o.list("open.txt"))
			}
		}
		open, err := ReadPasses(o.list("open.txt"))
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(o.list("open.txt")); err != nil || len(open) != strings.Count(string(data), "\t") {
			t.Errorf("%s: not every test has its reason after a tab (%v)", o.list("open.txt"), err)
		}
		for _, name := range open {
			if results[name].Status == "passed" {
				t.Errorf("%s: %q passes", o.list("open.txt"), name)
			}
		}
	}
}

// The tests of the node suite that CI runs passed in the recorded runs.
func TestTheNodeSuiteInCIPasses(t *testing.T) {
	t.Parallel()
	o := Options{Suite: SuiteNode, Checkout: "../../.."}
	wherry, err := ReadReference(o.list("wherry.txt"))
	if err != nil {
		t.Fatal(err)
	}
	results := wherry.Results()
	ci, err := ReadPasses(o.list("ci.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ci {
		if results[name].Status != "passed" {
			t.Errorf("node-ci.txt: %q did not pass in node-wherry.txt", name)
		}
	}
}

func TestFocusAndSkipsAreOfTheSuite(t *testing.T) {
	t.Parallel()
	o := Options{Checkout: "../../..", Focus: FocusDefault}
	if got, want := o.focusOn("[sig-node] Pods (a)"), `^Kubernetes e2e suite (\[sig-node\] Pods \(a\))$`; got != want {
		t.Errorf("focus %q, want %q", got, want)
	}
	if skip, err := o.skips(); skip != "" || err != nil {
		t.Errorf("the cluster suite leaves out %q, %v", skip, err)
	}
	o.Suite = SuiteNode
	if got, want := o.focusOn("a"), `^E2eNode Suite (a)$`; got != want {
		t.Errorf("focus %q, want %q", got, want)
	}
	skip, err := o.skips()
	if err != nil {
		t.Fatal(err)
	}
	leftOut, err := regexp.Compile(skip)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"E2eNode Suite [sig-node] MirrorPod [Serial] x":                                                                                           true,
		"E2eNode Suite [sig-node] PrivilegedPod [NodeConformance] should enable privileged commands [LinuxOnly]":                                  true,
		"E2eNode Suite [sig-node] MirrorPod when create a mirror pod without changes should be updated when static pod updated [NodeConformance]": false,
	} {
		if leftOut.MatchString(name) != want {
			t.Errorf("%q is left out: %v, want %v", name, !want, want)
		}
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Focus = "MirrorPod" }, func(o *Options) { o.List = "list" }, func(o *Options) { o.Skip = "Slow" },
	} {
		asked := o
		change(&asked)
		if skip, err := asked.skips(); skip != asked.Skip || err != nil {
			t.Errorf("where others are asked for, %q is left out, %v", skip, err)
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
<testcase name="[It] [sig-node] Pods should stay" time="3"><failure type="failed">[FAILED] Timed out.
It is gone.
In [It] at: pods.go:1</failure></testcase>
<testcase name="[It] [sig-node] Pods on Windows" time="0.2"><skipped message="no"></skipped></testcase>
<testcase name="[It] [sig-node] Pods should last" status="interrupted" time="9"><error message="interrupted by user" type="interrupted"></error></testcase>
<testcase name="[It] [sig-apps] other" time="0"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`), 0o644); err != nil {
		t.Fatal(err)
	}
	ran, err := ReadJUnit(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ran.Names(), []string{"[sig-node] Pods on Windows", "[sig-node] Pods should end", "[sig-node] Pods should run", "[sig-node] Pods should stay"}; !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q", got, want)
	}
	if got, want := ran["[sig-node] Pods should end"].Message, "it did not"; got != want {
		t.Errorf("the reason as an attribute is %q, want %q", got, want)
	}
	if got, want := ran["[sig-node] Pods should stay"].Message, "[FAILED] Timed out.\nIt is gone.\nIn [It] at: pods.go:1"; got != want {
		t.Errorf("the reason as a text is %q, want %q", got, want)
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
	table := Table("conformance", "Wherry", ran, reference, 8)
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
	if table := Table("conformance", "Wherry", Results{"[sig-node] alone": {Status: "passed", Seconds: 1}}, reference, 8); strings.Contains(table, "wall time of the same tests") {
		t.Errorf("a part is compared with the whole:\n%s", table)
	}
}

func TestSummaryEndsWithWhatFailed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("and so on\n", 30) + "the end"
	ran := Results{
		"good":    {Status: "passed", Seconds: 5},
		"noise":   {Status: "failed", Seconds: 7, Message: "too slow"},
		"bad":     {Status: "failed", Seconds: 2, Message: "first\n" + long},
		"skipped": {Status: "skipped", Seconds: 0.1},
	}
	if got, want := ran.failed(), []string{"bad", "noise"}; !slices.Equal(got, want) {
		t.Errorf("failed are %q, want %q", got, want)
	}
	ran.Again(Results{
		"noise": {Status: "passed", Seconds: 1}, "bad": {Status: "failed", Seconds: 1, Message: "again\n" + long}, "good": {Status: "failed"},
	})
	if got, want := ran.failed(), []string{"bad"}; !slices.Equal(got, want) {
		t.Errorf("after a second run failed are %q, want %q", got, want)
	}
	const want = `longest:
    5.0 s  good
    1.0 s  bad
    1.0 s  noise
FAILED ONCE, passed when it was run again alone: noise
    too slow
2 of 5 passed, 1 failed, 1 skipped themselves; 7 s in all, wall time 20 s
DID NOT RUN: gone
FAILED, and again when it was run alone: bad
    again
    and so on
    and so on
    and so on
    ... (20 lines)
    and so on
    and so on
    and so on
    and so on
    and so on
    and so on
    and so on
    the end
`
	if got := Summary(ran, ran.Missing([]string{"good", "gone"}), 20); got != want {
		t.Errorf("summary:\n%s\nwant:\n%s", got, want)
	}
}

func TestFailedHereOnly(t *testing.T) {
	t.Parallel()
	ran := Results{"both": {Status: "failed"}, "ours": {Status: "failed"}, "new": {Status: "failed"}, "fine": {Status: "passed"}}
	upstream := Results{"both": {Status: "failed"}, "ours": {Status: "passed"}, "fine": {Status: "failed"}}
	if got, want := ran.FailedHereOnly(upstream), []string{"new", "ours"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
	const want = "# upstream's kubelet: v2, 1 tests, wall time 3 s\npassed\t3.0\tb\n\n" + before
	if got != want {
		t.Errorf("with a later run:\n%s\nwant:\n%s", got, want)
	}
	both := reference.With(ReferenceRun{Title: "upstream's kubelet: v2, 1 tests, wall time 3 s", Tests: Results{"b": {Status: "passed", Seconds: 3}}})
	if results := both.Results(); results["b"].Status != "passed" || results["a"].Seconds != 2 {
		t.Errorf("the later result of b does not count: %v", results)
	}
	if wall, ok := both.Wall(Results{"a": {}, "b": {}}); !ok || wall != 9 {
		t.Errorf("the wall time of the first run is %v, %v, want 9 as before", wall, ok)
	}
	whole := both.With(ReferenceRun{Title: "upstream's kubelet: v3, 2 tests, wall time 8 s", Tests: Results{"a": {Status: "passed"}, "b": {Status: "passed"}}})
	if wall, ok := whole.Wall(Results{"a": {}, "b": {}}); len(whole) != 1 || !ok || wall != 8 {
		t.Errorf("a run of all leaves %d runs, wall time %v, %v", len(whole), wall, ok)
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

// The default of the storage suite leaves out what no kubelet can pass on this kind of machine, and nothing else.
func TestStorageSkip(t *testing.T) {
	t.Parallel()
	o := Options{Suite: SuiteStorage, Focus: FocusDefault}.Focused()
	skips, err := o.skips()
	if err != nil || o.Focus != `\[sig-storage\]` {
		t.Fatalf("focus %s, %v", o.Focus, err)
	}
	skip := regexp.MustCompile(skips)
	for name, want := range map[string]bool{
		"[sig-storage] In-tree Volumes [Driver: hostPath] [Testpattern: Inline-volume (default fs)] subPath should support existing directory":       false,
		"[sig-storage] In-tree Volumes [Driver: local] [LocalVolumeType: block] [Testpattern: Pre-provisioned PV (default fs)] volumes should store": false,
		"[sig-storage] CSI Mock volume attach CSI attach test using mock driver should require VolumeAttach for drivers with attachment [Slow]":      false,
		"[sig-storage] In-tree Volumes [Driver: nfs3] [Testpattern: Inline-volume (default fs)] subPath should support existing directory":           true,
		"[sig-storage] CSI Volumes [Driver: csi-hostpath] [Testpattern: Dynamic PV (default fs)] subPath should support existing directory":          true,
		"[sig-storage] CSI Mock selinux on mount SELinuxMount [LinuxOnly] [Feature:SELinux] should pass SELinux mount option for RWOP volume":        true,
		"[sig-storage] PersistentVolumes NFS when invoking the Recycle reclaim policy should test that a PV becomes Available":                       true,
	} {
		if got := skip.MatchString(name); got != want {
			t.Errorf("%s: left out: %v, want %v", name, got, want)
		}
	}
}
