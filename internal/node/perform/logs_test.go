package perform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

// If an agent was killed while it removed a pod, the next agent may know only the pod's UID. RemovePod then finds the pod's logs by the
// UID and removes them.
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
			t.Errorf("%s exists: %v, want %v", path, err == nil, want)
		}
	}
	if err := d.RemovePod(pod.Ref{UID: "unknown"}); err != nil {
		t.Error(err)
	}
}

// A killed agent may leave only the logs of a pod. Orphans finds them. A directory that a container made under /var/log, and whose name ends like
// that of a parent directory, is not the log directory of a pod.
func TestOrphanLogs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := &LogDirs{Root: root, RemoveTree: os.RemoveAll}
	for _, dir := range []string{"ns_web_u1", "ns_web_u2", "something-else", "not_a.pod_", "a_b_.", "a_b_.."} {
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

// A link is removed only when the agent removes its log. A log that is merely missing may be about to be rotated, so its link stays.
// Removing the log of container "main" leaves the link of container "mainly".
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
				t.Errorf("%s: %s exists: %v, want %v", step, filepath.Base(path), err == nil, want)
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

// A pod with long names has a link to each log, too: its name is cut to the 255 bytes that file systems allow. If the names of two attempts are
// equal then, the link leads to the newer log.
func TestLogLinksOfLongNames(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("c1", 32)
	for name, c := range map[string]struct{ pod, namespace, container int }{
		"the ID is cut": {150, 40, 40}, "the container's name is cut": {180, 36, 63},
	} {
		d := &LogDirs{Root: t.TempDir(), LinkDir: t.TempDir(), RemoveTree: os.RemoveAll}
		container := strings.Repeat("m", c.container)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", c.namespace), Name: strings.Repeat("w", c.pod), UID: "u1"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: container}}}}
		if err := errors.Join(d.Make(p), d.Link(p, container, id, 0), d.Link(p, container, id, 1)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		links, err := os.ReadDir(d.LinkDir)
		if err != nil || len(links) != 1 || len(links[0].Name()) != 255 || !strings.HasSuffix(links[0].Name(), ".log") {
			t.Fatalf("%s: links %v, %v", name, links, err)
		}
		target, err := os.Readlink(filepath.Join(d.LinkDir, links[0].Name()))
		if err != nil || !strings.HasSuffix(target, "/"+container+"/1.log") {
			t.Errorf("%s: the link leads to %q, %v", name, target, err)
		}
		if err := d.Remove(pod.RefOf(p), container, 1); err != nil {
			t.Fatal(err)
		}
		if links, err = os.ReadDir(d.LinkDir); err != nil || len(links) != 0 {
			t.Errorf("%s: after the removal of the log the links %v are left, %v", name, links, err)
		}
	}
}

// hostileLogs returns a node where pods u1 and u2 have logs, and where u1 can write to /var/log.
func hostileLogs(t *testing.T) (d *LogDirs, other string) {
	t.Helper()
	root := t.TempDir()
	other = filepath.Join(root, "ns_other_u2/main/0.log")
	for _, dir := range []string{"ns_other_u2/main", "ns_web_u1/main"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(other, []byte(plant.Secret), 0o640); err != nil {
		t.Fatal(err)
	}
	return &LogDirs{Root: root, LinkDir: t.TempDir(), RemoveTree: os.RemoveAll}, other
}

func web() pod.Ref { return pod.Ref{Namespace: "ns", Name: "web", UID: "u1"} }

// Removing a container's logs removes nothing of another pod, whichever directory of the path is a link.
func TestRemovedLogsBehindALink(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, target string }{
		{"ns_web_u1", "ns_other_u2"},
		{"ns_web_u1/main", "../ns_other_u2/main"},
	} {
		d, other := hostileLogs(t)
		link := filepath.Join(d.Root, c.at)
		if err := errors.Join(os.RemoveAll(link), os.Symlink(c.target, link)); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(web(), "main", 0); err != nil {
			t.Errorf("%s: %v", c.at, err)
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("%s: the log of another pod was removed", c.at)
		}
	}
}

// If a pod's log directory is a link, Make fails and creates no directory at the target, because the runtime would write a log there.
func TestLogDirectoriesBehindALink(t *testing.T) {
	t.Parallel()
	d, other := hostileLogs(t)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "side"}}}}
	link := filepath.Join(d.Root, "ns_web_u1")
	if err := errors.Join(os.RemoveAll(link), os.Symlink("ns_other_u2", link)); err != nil {
		t.Fatal(err)
	}
	if err := d.Make(p); !errors.Is(err, hostfs.ErrNotRegular) || !strings.Contains(err.Error(), link) {
		t.Errorf("error %v, want one that names the link", err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(other)), "side")); err == nil {
		t.Error("a directory was made behind the link")
	}
}

// A container may replace its log by another kind of file, for example a pipe or a link. Remove removes the pipe or link without blocking
// on it. The target of a link stays.
func TestRemovedLogThatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			t.Parallel()
			d, _ := hostileLogs(t)
			path := filepath.Join(d.Root, "ns_web_u1/main/0.log")
			thing.Plant(t, path)
			target, linked := os.Readlink(path)
			plant.Returns(t, func() {
				if err := d.Remove(web(), "main", 0); err != nil {
					t.Error(err)
				}
			})
			if _, err := os.Lstat(path); (err == nil) != (thing.Name == "directory") { // only RemovePod removes a directory in the place of a log
				t.Errorf("afterwards: %v", err)
			}
			if linked == nil {
				if _, err := os.Lstat(target); err != nil {
					t.Errorf("the target of the link: %v", err)
				}
			}
			if err := d.RemovePod(web()); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(d.Root, "ns_web_u1")); err == nil {
				t.Error("the pod's log directory is still there")
			}
		})
	}
}

// Hundreds of links that a container planted cost no memory and give no access to files of another pod.
func TestLinkFarmAmongLogs(t *testing.T) {
	t.Parallel()
	d, other := hostileLogs(t)
	dir := filepath.Join(d.Root, "ns_web_u1/main")
	secret := plant.LinkFarm(t, dir, func(i int) string { return fmt.Sprintf("0.log.20060102-%06d", i) })
	for i := range plant.Farm { // fill the directory of log links with links to the logs of a pod that is gone
		if err := os.Symlink(filepath.Join(d.Root, "ns_gone_u9/main/0.log"), filepath.Join(d.LinkDir, fmt.Sprint("web_ns_", i, ".log"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Remove(web(), "main", 0); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("%d links are left, %v", len(left), err)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error("the target of the links was removed")
	}
	if got, err := d.Orphans(func(uid types.UID) bool { return uid != "u1" }); err != nil || !slices.Equal(got, []types.UID{"u1"}) {
		t.Errorf("orphans %v, %v", got, err)
	}
	if left, err := os.ReadDir(d.LinkDir); err != nil || len(left) != 0 {
		t.Errorf("%d links to logs that are gone, %v", len(left), err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// A call of Orphans returns a bounded number of pods, however many log directories there are. Later calls return the rest.
func TestOrphanLogsAreBounded(t *testing.T) {
	t.Parallel()
	d := &LogDirs{Root: t.TempDir(), RemoveTree: os.RemoveAll}
	for i := range maxOrphans + 10 {
		if err := os.Mkdir(filepath.Join(d.Root, fmt.Sprint("ns_web_u", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{maxOrphans, 10, 0} {
		got, err := d.Orphans(func(types.UID) bool { return false })
		if err != nil || len(got) != want {
			t.Fatalf("%d orphans, %v; want %d", len(got), err, want)
		}
		for _, uid := range got {
			if err := d.RemovePod(pod.Ref{UID: uid}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkRemoveLog removes and links a log again while LinkDir has the links of a node with many containers.
func BenchmarkRemoveLog(b *testing.B) {
	d := &LogDirs{Root: b.TempDir(), LinkDir: b.TempDir(), RemoveTree: os.RemoveAll}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	if err := d.Make(p); err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		if err := os.Symlink("/target", filepath.Join(d.LinkDir, fmt.Sprintf("other-%d_ns_main-c1.log", i))); err != nil {
			b.Fatal(err)
		}
	}
	ref := pod.Ref{Namespace: "ns", Name: "web", UID: "u1"}
	for b.Loop() {
		if err := errors.Join(d.Link(p, "main", "c1", 0), d.Remove(ref, "main", 0)); err != nil {
			b.Fatal(err)
		}
	}
	if left, err := os.ReadDir(d.LinkDir); err != nil || len(left) != 1000 {
		b.Errorf("%d links are left (%v), want 1000", len(left), err)
	}
}
