package pullrecord

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// A record that cannot be read denies access to its image, is logged, affects no other image, and is replaced by the next pull.
func TestDamageClosesAnImage(t *testing.T) {
	t.Parallel()
	good := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":null,"imageRef":"` + id +
		`","credentialMapping":{"reg.example.com/team/app":{"nodePodsAccessible":true}}}`
	for name, content := range map[string]string{
		"empty": "", "half": good[:len(good)/2], "binary": "\x00\xff", "of another image": strings.Replace(good, id, "sha256:bbbb", 1),
		"another kind": strings.Replace(good, "ImagePulledRecord", "ImagePullIntent", 1), "a version to come": strings.Replace(good, "v1beta1", "v2", 1),
		"a field to come": strings.Replace(good, `"imageRef"`, `"onlyOnTuesdays":true,"imageRef"`, 1), "two at once": good + good,
		"twice the same field": strings.Replace(good, `"imageRef"`, `"imageRef":"x","imageRef"`, 1),
		"too large":            good + strings.Repeat(" ", maxFile),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.place("pulled", fileName(id), content)
			r, pulled := n.Record(id)
			if !pulled || len(r.CredentialMapping) > 0 || !strings.Contains(n.log.String(), "not readable") {
				t.Errorf("read as %+v, %t; log %q", r, pulled, n.log)
			}
			if err := n.Pulled(private, id, bySecret("u1", "h1")); err != nil {
				t.Fatal(err)
			}
			n.restart()
			if r, pulled := n.Record(id); !pulled || len(r.CredentialMapping["reg.example.com/team/app"].KubernetesSecrets) != 1 || n.log.Len() > 0 {
				t.Errorf("after a pull: %+v, %t; log %q", r, pulled, n.log)
			}
			n.place("pulling", fileName(private), content)
			n.restart()
			if !n.claimed(private, &runtimeapi.Image{Id: id}) || !n.claimed("app", present()) {
				t.Error("an intent that cannot be read does not close the image of its name")
			}
			if err := n.Settle(time.Now().Add(time.Hour), []*runtimeapi.Image{{Id: "other"}}); err != nil || !n.claimed(private, present()) {
				t.Errorf("the intent was removed because of its age alone: %v", err)
			}
			if err := n.Begin(private); err != nil {
				t.Fatal(err)
			}
			n.End(private)
			if n.claimed(private, present()) {
				t.Error("the intent stays after a pull")
			}
		})
	}
}

// The Store does not follow a link that replaces a file and does not block on a FIFO.
func TestNoLinkIsFollowedAndNoFIFOWaitedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	open := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":null,"imageRef":"` + id +
		`","credentialMapping":{"reg.example.com/team/app":{"nodePodsAccessible":true}}}`
	elsewhere := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(elsewhere, []byte(open), 0o600); err != nil {
		t.Fatal(err)
	}
	path := n.place("pulled", fileName(id), "")
	for _, make := range []func() error{
		func() error { return os.Symlink(elsewhere, path) },
		func() error { return syscall.Mkfifo(path, 0o600) },
		func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if r, pulled := n.Record(id); !pulled || len(r.CredentialMapping) > 0 {
			t.Errorf("read %+v, %t", r, pulled)
		}
	}
}

// A record does not grow beyond the size that can be read. A pod whose credentials do not fit into the record must pull the image
// again.
func TestARecordIsBounded(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var many kubelet.ImagePullCredentials
	for i := range 3000 {
		many.KubernetesSecrets = append(many.KubernetesSecrets, kubelet.ImagePullSecret{UID: fmt.Sprint(i), Name: strings.Repeat("n", 253), Namespace: strings.Repeat("m", 63), CredentialHash: strings.Repeat("h", 64)})
	}
	if err := n.Pulled(private, id, bySecret("u1", "h1")); err != nil {
		t.Fatal(err)
	}
	if err := n.Pulled(private, id, many); err == nil || !strings.Contains(err.Error(), "would grow beyond") {
		t.Errorf("got %v", err)
	}
	if r, pulled := n.Record(id); !pulled || len(r.CredentialMapping["reg.example.com/team/app"].KubernetesSecrets) != 1 {
		t.Error("the old record is lost")
	}
}

// Temporary files that a crashed agent left do not count as records and are removed.
func TestTornFilesGo(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.place("pulling", fileName(private)+".tmp", `{"kind":`)
	n.place("pulled", fileName(id)+".tmp", `{"kind":`)
	n.place("pulled", fileName(id)+hostfs.Unfinished, `{"kind":`)
	if n.claimed(private, present()) {
		t.Error("a torn file counts")
	}
	if files := n.files(); len(files) > 0 {
		t.Errorf("left: %q", files)
	}
}

// If a directory cannot be read or written, the pull fails, and access to images without a readable record is denied.
func TestAFailingDiskIsAnError(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if err := os.WriteFile(filepath.Join(n.root, "image_manager"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Begin(private); err == nil {
		t.Error("Begin succeeded without writing an intent")
	}
	if claimed, err := n.Claimed(private, present()); !claimed || err == nil {
		t.Errorf("claimed %t, %v", claimed, err)
	}
	if err := n.Pulled(private, id, bySecret("u1", "h1")); err == nil {
		t.Error("Pulled succeeded without writing a record")
	}
	if err := os.Remove(filepath.Join(n.root, "image_manager")); err != nil {
		t.Fatal(err)
	}
	if err := n.Begin(private); err != nil {
		t.Errorf("the disk is back: %v", err)
	}
	n.End(private)
}

// No input crashes the decoder, and a decoded file is encoded to an equal one.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"x","credentialMapping":{"a":{"kubernetesSecrets":[{"uid":"u","namespace":"n","name":"s","credentialHash":""}]},"b":{"nodePodsAccessible":true}}}`))
	f.Add([]byte(`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"app"}`))
	f.Add([]byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","credentialMapping":null,"imageRef":"\ud800"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if intent, err := decodeIntent(raw); err == nil && intent.Image == "" {
			t.Error("an intent names no image")
		}
		record, err := decodeRecord(raw)
		if err != nil {
			return
		}
		back, err := encode(record)
		if err != nil {
			return // a year beyond 9999 cannot be encoded
		}
		again, err := decodeRecord(back)
		if err != nil {
			t.Fatalf("%s: %v", back, err)
		}
		if diff := cmp.Diff(record.CredentialMapping, again.CredentialMapping, cmpopts.EquateEmpty()); diff != "" || record.ImageRef != again.ImageRef {
			t.Errorf("%s", diff)
		}
	})
}
