package perform

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/pod"
)

// "Nothing of a deleted pod stays on disk": also where an agent that was killed left nothing but a UID to know it by.
func TestLogsOfAPodKnownByItsUID(t *testing.T) {
	t.Parallel()
	root, links := t.TempDir(), t.TempDir()
	d := &LogDirs{Root: root, LinkDir: links, RemoveTree: os.RemoveAll}
	for _, dir := range []string{"ns_web_u1", "ns_web_u10", "ns_u1_other"} {
		if err := os.MkdirAll(filepath.Join(root, dir, "main"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "ns_web_u1/main/0.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(links, "web_ns_main-c1.log")
	if err := os.Symlink(filepath.Join(root, "ns_web_u1/main/0.log"), link); err != nil {
		t.Fatal(err)
	}
	if err := d.RemovePod(pod.Ref{UID: "u1"}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		filepath.Join(root, "ns_web_u1"): false, filepath.Join(root, "ns_web_u10"): true, filepath.Join(root, "ns_u1_other"): true, link: false,
	} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: there = %v, want %v", path, err == nil, want)
		}
	}
	if err := d.RemovePod(pod.Ref{UID: "unknown"}); err != nil {
		t.Error(err)
	}
}

// An agent that is killed while it forgets a pod, or before it has made the pod's other directories, leaves logs alone.
func TestOrphanLogs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := &LogDirs{Root: root, RemoveTree: os.RemoveAll}
	for _, dir := range []string{"ns_web_u1", "ns_web_u2", "something-else", "not_a.pod_"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.Orphans(func(uid types.UID) bool { return uid == "u2" })
	if err != nil || !slices.Equal(got, []types.UID{"u1"}) {
		t.Errorf("%v %v", got, err)
	}
	d.Root = filepath.Join(root, "none")
	if got, err := d.Orphans(func(types.UID) bool { return false }); err != nil || got != nil {
		t.Errorf("without a directory: %v %v", got, err)
	}
}

// A link goes with the log that it leads to, and only then: that a log is missing may be a rotation, and "main" is not "mainly".
func TestLogLinks(t *testing.T) {
	t.Parallel()
	root, links := t.TempDir(), t.TempDir()
	d := &LogDirs{Root: root, LinkDir: links, RemoveTree: os.RemoveAll}
	link := func(name, target string) string {
		t.Helper()
		path := filepath.Join(links, name)
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, dir := range []string{"ns_web_u1/main", "ns_web_u1/mainly"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := link("web_ns_main-c0.log", filepath.Join(root, "ns_web_u1/main/0.log"))
	rotating := link("web_ns_main-c1.log", filepath.Join(root, "ns_web_u1/main/1.log"))
	other := link("web_ns_mainly-c2.log", filepath.Join(root, "ns_web_u1/mainly/0.log"))
	lost := link("db_ns_main-c3.log", filepath.Join(root, "ns_db_u2/main/0.log"))
	foreign := link("foreign.log", "/nowhere/at/all/0.log")
	there := func(step string, want map[string]bool) {
		t.Helper()
		for path, want := range want {
			if _, err := os.Lstat(path); (err == nil) != want {
				t.Errorf("%s: %s is there = %v, want %v", step, filepath.Base(path), err == nil, want)
			}
		}
	}
	if err := d.Remove(pod.Ref{Namespace: "ns", Name: "web", UID: "u1"}, "main", 0); err != nil {
		t.Fatal(err)
	}
	there("one attempt removed", map[string]bool{old: false, rotating: true, other: true, lost: true, foreign: true})
	if _, err := d.Orphans(func(types.UID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	there("swept", map[string]bool{rotating: true, other: true, lost: false, foreign: true})
	if err := d.RemovePod(pod.Ref{Namespace: "ns", Name: "web", UID: "u1"}); err != nil {
		t.Fatal(err)
	}
	there("the pod removed", map[string]bool{rotating: false, other: false, foreign: true})
}
