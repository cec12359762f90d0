package pullrecord

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// node is a root directory with a Store and its log.
type node struct {
	testing.TB
	*Store
	root string
	log  *bytes.Buffer
}

func newNode(t testing.TB) *node {
	n := &node{TB: t, root: t.TempDir()}
	n.restart()
	return n
}

// restart replaces the Store by a new one on the same directory.
func (n *node) restart() {
	n.log = &bytes.Buffer{}
	n.Store = New(n.root, slog.New(slog.NewTextHandler(n.log, nil)))
}

// place writes a file where the Store looks for it.
func (n *node) place(dir, name, content string) string {
	n.Helper()
	path := filepath.Join(n.root, "image_manager", dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		n.Fatal(err)
	}
	return path
}

// files returns the names in both directories.
func (n *node) files() []string {
	n.Helper()
	var out []string
	for _, dir := range []string{"pulling", "pulled"} {
		entries, err := os.ReadDir(filepath.Join(n.root, "image_manager", dir))
		if err != nil && !os.IsNotExist(err) {
			n.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, dir+"/"+e.Name())
		}
	}
	return out
}

func (n *node) claimed(image string, img *runtimeapi.Image) bool {
	n.Helper()
	ok, err := n.Claimed(image, img)
	if err != nil {
		n.Error(err)
	}
	return ok
}

const (
	private = "reg.example.com/team/app:1"
	id      = "sha256:aaaa"
)

// present returns the image as the runtime describes it.
func present() *runtimeapi.Image {
	return &runtimeapi.Image{Id: id, RepoTags: []string{private}, RepoDigests: []string{"reg.example.com/team/app@sha256:" + strings.Repeat("d", 64)}}
}

func bySecret(uid, hash string) kubelet.ImagePullCredentials {
	return kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{{UID: uid, Namespace: "ns", Name: "s", CredentialHash: hash}}}
}

// The files have the directories, names and content that upstream's kubelet uses. A name is the output of `printf %s NAME |
// sha256sum`.
func TestFilesAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the bubble's clock starts at 2000-01-01 00:00:00 UTC
		n := newNode(t)
		if err := n.Begin(private); err != nil {
			t.Fatal(err)
		}
		pulling := "pulling/sha256-fa8eb1f2ff0065354b3cf6b7a100edffd16df4f48f3f8aa1eb67fdc74b657670"
		if diff := cmp.Diff([]string{pulling}, n.files()); diff != "" {
			t.Fatal(diff)
		}
		check := func(path, want string) {
			t.Helper()
			raw, err := os.ReadFile(filepath.Join(n.root, "image_manager", path))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(raw)); diff != "" {
				t.Error(diff)
			}
		}
		check(pulling, `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"reg.example.com/team/app:1"}`+"\n")
		if err := n.Pulled(private, id, bySecret("u1", "h1")); err != nil {
			t.Fatal(err)
		}
		n.End(private)
		pulled := "pulled/sha256-6032ab112489c857ff2a4b58cd21bdb5df3112bedcb08855d83456178e8593ba"
		if diff := cmp.Diff([]string{pulled}, n.files()); diff != "" {
			t.Fatal(diff)
		}
		check(pulled, `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2000-01-01T00:00:00Z","imageRef":"sha256:aaaa",`+
			`"credentialMapping":{"reg.example.com/team/app":{"kubernetesSecrets":[{"uid":"u1","namespace":"ns","name":"s","credentialHash":"h1"}]}}}`+"\n")
		for _, path := range []string{"", "pulling", "pulled"} {
			if st, err := os.Stat(filepath.Join(n.root, "image_manager", path)); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("%q: %v, %v", path, st.Mode(), err)
			}
		}
		if intents, records := n.Count(); intents != 0 || records != 1 {
			t.Errorf("counted %d, %d", intents, records)
		}
	})
}

// The Store reads records that upstream's kubelet wrote, in either version, and keeps the fields that this agent does not use.
func TestRecordsOfKubernetesAreReadAndKept(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		n := newNode(t)
		path := n.place("pulled", fileName(id), `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/`+version+`","lastUpdatedTime":"2025-06-21T12:26:40Z","imageRef":"`+id+
			`","credentialMapping":{"docker.io/open":{"nodePodsAccessible":true},"reg.example.com/team/app":{"kubernetesServiceAccounts":[{"uid":"sa","namespace":"ns","name":"robot"}]}}}`)
		r, pulled := n.Record(id)
		if !pulled || !r.CredentialMapping["docker.io/open"].NodePodsAccessible {
			t.Fatalf("%s: read %+v, %t: %s", version, r, pulled, n.log)
		}
		if err := n.Matched(private, id, bySecret("u1", "h1")); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`/v1beta1"`, `"docker.io/open":{"nodePodsAccessible":true}`, `"name":"robot"`, `"credentialHash":"h1"`} {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s: %s is not in %s", version, want, raw)
			}
		}
		n.place("pulling", fileName(private), `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/`+version+`","image":"`+private+`"}`)
		n.restart()
		if !n.claimed("other", present()) {
			t.Errorf("%s: the intent is not read: %s", version, n.log)
		}
	}
}

// An image that this agent pulled counts as pulled after a crash between any two steps, under any of its names.
func TestAKillAtAnyStepLeavesTheImageClosed(t *testing.T) {
	t.Parallel()
	byDigest := present().RepoDigests[0]
	steps := []func(*node){
		func(n *node) {
			if err := n.Begin(private); err != nil {
				n.Fatal(err)
			}
		},
		func(n *node) { // the runtime has pulled the image
		},
		func(n *node) {
			if err := n.Pulled(private, id, bySecret("u1", "h1")); err != nil {
				n.Fatal(err)
			}
		},
		func(n *node) { n.End(private) },
	}
	for kill := 1; kill <= len(steps); kill++ {
		n := newNode(t)
		for _, step := range steps[:kill] {
			step(n)
		}
		n.restart()
		for _, name := range []string{private, byDigest, "app"} {
			_, pulled := n.Record(id)
			if !pulled && !n.claimed(name, present()) {
				t.Errorf("killed after step %d: %s passes for preloaded", kill, name)
			}
		}
		if err := n.Settle(time.Now(), []*runtimeapi.Image{present()}); err != nil {
			t.Fatal(err)
		}
		r, pulled := n.Record(id)
		if knows := len(r.CredentialMapping) > 0; !pulled || knows != (kill >= 3) {
			t.Errorf("killed after step %d: settled as %+v, %t", kill, r, pulled)
		}
		if intents, _ := n.Count(); intents != 0 || n.claimed(private, present()) {
			t.Errorf("killed after step %d: the intent stays", kill)
		}
	}
}

// The intent is removed when the last pull of its image has ended, and not before.
func TestIntentsAreCounted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for range 2 {
		if err := n.Begin(private); err != nil {
			t.Fatal(err)
		}
	}
	n.End(private)
	if err := n.Settle(time.Now().Add(time.Hour), []*runtimeapi.Image{{Id: "other"}}); err != nil {
		t.Fatal(err)
	}
	if intents, _ := n.Count(); intents != 1 || !n.claimed(private, present()) {
		t.Error("the intent was removed after the first of two pulls")
	}
	n.End(private)
	if intents, _ := n.Count(); intents != 0 || n.claimed(private, present()) || len(n.open) != 0 {
		t.Error("the intent stays after the last pull")
	}
	n.End("never begun")
}

// The intent of a pull with an unknown result stays until a list of the runtime's images shows the result.
func TestAPullThatWasLeftIsSettled(t *testing.T) {
	t.Parallel()
	others := []*runtimeapi.Image{{Id: "other"}}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		if err := n.Begin(private); err != nil {
			t.Fatal(err)
		}
		n.Leave(private)
		for range 3 { // the first list does not contain the image yet; the empty list gives no information
			time.Sleep(3 * time.Minute)
			for _, images := range [][]*runtimeapi.Image{others, nil} {
				if err := n.Settle(time.Now(), images); err != nil {
					t.Fatal(err)
				}
			}
			if !n.claimed(private, present()) {
				t.Fatal("the intent was removed while the image may still come")
			}
		}
		time.Sleep(3 * time.Minute)
		if err := n.Settle(time.Now(), nil); err != nil || !n.claimed(private, present()) {
			t.Error("an empty list was trusted")
		}
		if err := n.Settle(time.Now(), others); err != nil || n.claimed(private, present()) || len(n.files()) > 0 {
			t.Errorf("the intent stays: %v, %q", err, n.files())
		}
	})
}

// The number of remembered pulls is bounded.
func TestLeftPullsAreBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i := range maxOpen + 50 {
		image := fmt.Sprintf("reg.example.com/%d", i)
		if err := n.Begin(image); err != nil {
			t.Fatal(err)
		}
		n.Leave(image)
	}
	if intents, _ := n.Count(); intents > maxOpen || len(n.open) != intents {
		t.Errorf("%d files, %d remembered", intents, len(n.open))
	}
}

// A record, even a damaged one, is removed with its image. A record that is newer than the list of images stays.
func TestRecordsGoWithTheirImages(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, of := range []string{id, "sha256:gone"} {
		if err := n.Pulled(private, of, bySecret("u1", "h1")); err != nil {
			t.Fatal(err)
		}
	}
	n.place("pulled", fileName("sha256:damaged"), "{")
	n.place("pulled", "README", "not ours")
	images := []*runtimeapi.Image{present()}
	if err := n.Settle(time.Now(), images); err != nil {
		t.Fatal(err)
	}
	if _, records := n.Count(); records != 3 {
		t.Errorf("%d records: some were removed that are not older than the list", records)
	}
	if err := n.Settle(time.Now().Add(2*time.Second), images); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pulled/README", "pulled/" + fileName(id)}, n.files()); diff != "" {
		t.Error(diff)
	}
	// A pull renews an existing record, so that an older list does not remove it.
	began := time.Now().Add(time.Hour)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(began))
		if err := n.Pulled(private, id, bySecret("u1", "h1")); err != nil {
			t.Fatal(err)
		}
		if err := n.Settle(began, []*runtimeapi.Image{{Id: "other"}}); err != nil {
			t.Fatal(err)
		}
		if _, pulled := n.Record(id); !pulled {
			t.Error("an older list removed the record of a pull")
		}
	})
}

// Many pods pull one image at the same time with their own credentials. The record has all of them, and no intent is left.
func TestParallelPullsOfOneImage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if err := n.Begin(private); err != nil {
				t.Error(err)
			}
			if err := n.Pulled(private, id, bySecret(fmt.Sprint("u", i), fmt.Sprint("h", i))); err != nil {
				t.Error(err)
			}
			n.End(private)
		})
	}
	wg.Wait()
	r, _ := n.Record(id)
	if got := len(r.CredentialMapping["reg.example.com/team/app"].KubernetesSecrets); got != 16 {
		t.Errorf("%d secrets recorded", got)
	}
	if intents, _ := n.Count(); intents != 0 || len(n.open) != 0 || len(n.Store.files.held) != 0 {
		t.Errorf("%d intents, %d remembered", intents, len(n.open))
	}
}

// No name of an image leads to a file outside the directories.
func TestNamesOnDiskAreHashes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, image := range []string{"../../etc/passwd", "a/b:c@d", strings.Repeat("x", 4000)} {
		if err := n.Begin(image); err != nil {
			t.Fatal(err)
		}
	}
	if files := n.files(); slices.ContainsFunc(files, func(f string) bool { return !strings.HasPrefix(f, "pulling/sha256-") || len(f) != 79 }) {
		t.Errorf("%q", files)
	}
}
