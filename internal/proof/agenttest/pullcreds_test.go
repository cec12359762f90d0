package agenttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// privateImage is an image that can be pulled only with the credentials of the secret (see pullSecret).
const privateImage = "reg.example.com/team/app:1"

// registry configures a runtime whose registry requires credentials for privateImage. The images in preloaded are present from the start.
func registry(preloaded ...string) simcri.Config {
	return simcri.Config{Latency: latencies(), Images: preloaded, Pull: func(image string) simcri.Pull {
		p := simcri.Pull{Took: time.Second}
		if image == privateImage {
			p.Users = []string{"team"}
		}
		return p
	}}
}

// pullSecret creates an image pull secret with the right credentials in a namespace.
func (w *World) pullSecret(namespace, name string) {
	w.Helper()
	other := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := w.Admin.CoreV1().Namespaces().Create(w.Context(), other, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	_, err := w.Admin.CoreV1().Secrets(namespace).Create(w.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example.com":{"username":"team","password":"x"}}}`)},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// imagePod returns a pod with this image and imagePullPolicy. secret is its image pull secret; "": none.
func imagePod(namespace, name, image string, policy v1.PullPolicy, secret string) *v1.Pod {
	return Pod(name, func(p *v1.Pod) {
		p.Namespace = namespace
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, policy
		if secret != "" {
			p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: secret}}
		}
	})
}

// waiting returns the reason why the pod's container waits; "": it runs.
func (w *World) waiting(namespace, name string) string {
	p := w.Kube.Pod(namespace, name)
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return "unknown"
	}
	s := p.Status.ContainerStatuses[0].State
	switch {
	case s.Waiting != nil:
		return s.Waiting.Reason
	case s.Running != nil:
		return ""
	}
	return "ended"
}

// awaitWaiting waits until the reason why the container waits begins with one of the reasons, or until the container runs.
func (w *World) awaitWaiting(namespace, name string, reasons ...string) {
	w.Helper()
	w.Await(name+" "+strings.Join(reasons, " or "), time.Minute, func() bool {
		got := w.waiting(namespace, name)
		for _, r := range reasons {
			if got == r {
				return true
			}
		}
		return false
	})
}

// If a pod has pulled an image with its secret, a pod in another namespace without the secret may not use the image, neither with this
// agent nor with the next. A pod with the secret may use it, even if the registry is unreachable.
func TestAPrivateImageIsNotEverybodys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	Run(t, Config{Runtime: registry(), PullRecords: dir}, func(w *World) {
		w.pullSecret(Namespace, "team")
		w.Create(imagePod(Namespace, "owner", privateImage, v1.PullIfNotPresent, "team"))
		w.WaitReady("owner")
		for _, restart := range []func(){func() {}, func() { w.RestartAgent(time.Second) }, func() { w.CrashAgent(true); w.StartAgent() }} {
			restart()
			w.Create(imagePod("other", "ifnotpresent", privateImage, v1.PullIfNotPresent, ""))
			w.Create(imagePod("other", "never", privateImage, v1.PullNever, ""))
			w.awaitWaiting("other", "ifnotpresent", "ErrImagePull", "ImagePullBackOff")
			w.awaitWaiting("other", "never", "ErrImageNeverPull")
			pulls := w.Runtime.Pulls(privateImage)
			w.Create(imagePod(Namespace, "again", privateImage, v1.PullNever, "team"))
			w.WaitReady("again")
			if n := w.Runtime.Pulls(privateImage); n != pulls || n != 1 {
				t.Errorf("%d pulls, want the one", n)
			}
			for _, gone := range [][2]string{{"other", "ifnotpresent"}, {"other", "never"}, {Namespace, "again"}} {
				w.deleteNow(gone[0], gone[1])
			}
		}
	})
}

// deleteNow deletes a pod and waits until it is gone.
func (w *World) deleteNow(namespace, name string) {
	w.Helper()
	w.Witness.deleting(w.Kube.Pod(namespace, name), nil)
	if err := w.Admin.CoreV1().Pods(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Await(name+" is gone", time.Minute, func() bool { return w.Kube.Pod(namespace, name) == nil })
}

// An agent is killed when it has recorded that a pull begins (an intent) and the image is not there yet. After that only pods that pull the
// image themselves may use it. The next agent removes the intent.
func TestAKillDuringAPullLeavesTheImageClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	Run(t, Config{Runtime: registry(), PullRecords: dir}, func(w *World) {
		intents := func() int {
			entries, err := os.ReadDir(filepath.Join(dir, "image_manager", "pulling"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return len(entries)
		}
		w.pullSecret(Namespace, "team")
		w.Create(imagePod(Namespace, "owner", privateImage, v1.PullAlways, "team"))
		w.Await("the pull is noted", time.Minute, func() bool { return intents() == 1 })
		w.CrashAgent(true) // the runtime completes the pull
		w.Await("the image is there", time.Minute, func() bool { return w.Runtime.Pulls(privateImage) == 1 })
		w.deleteForced(Namespace, "owner")
		if intents() != 1 {
			t.Error("the note is gone")
		}
		w.Create(imagePod("other", "thief", privateImage, v1.PullNever, ""))
		w.StartAgent()
		w.awaitWaiting("other", "thief", "ErrImageNeverPull")
		w.Await("the note is settled", 5*time.Minute, func() bool { return intents() == 0 })
		time.Sleep(time.Minute)
		w.awaitWaiting("other", "thief", "ErrImageNeverPull")
		w.Create(imagePod(Namespace, "again", privateImage, v1.PullIfNotPresent, "team"))
		w.WaitReady("again")
		if n := w.Runtime.Pulls(privateImage); n != 2 {
			t.Errorf("%d pulls, want 2, because the credentials of the first pull are unknown", n)
		}
		w.deleteNow("other", "thief")
	})
}

func (w *World) deleteForced(namespace, name string) {
	w.Helper()
	w.Witness.force(w.Kube.Pod(namespace, name).UID)
	if err := w.Admin.CoreV1().Pods(namespace).Delete(w.Context(), name, deleteNow()); err != nil {
		w.Fatal(err)
	}
}

// The table covers each value of imagePullCredentialsVerificationPolicy, the field preloadedImagesVerificationAllowlist, and the gate
// KubeletEnsureSecretPulledImages turned off. For each case, the test checks whether a pod without a secret may use an image that was
// preloaded, and an image that another pod pulled.
func TestPullCredentialsPolicies(t *testing.T) {
	t.Parallel()
	const listed, other = "reg.example.com/listed/app:1", "reg.example.com/other/app:1"
	const never = "ErrImageNeverPull"
	cases := []struct {
		name    string
		change  func(*kubelet.KubeletConfiguration)
		listed  string
		other   string
		private string
	}{
		{"default", func(*kubelet.KubeletConfiguration) {}, "", "", never},
		{"NeverVerify", func(k *kubelet.KubeletConfiguration) { k.ImagePullCredentialsVerificationPolicy = kubelet.NeverVerify }, "", "", ""},
		{"NeverVerifyPreloadedImages", func(k *kubelet.KubeletConfiguration) {
			k.ImagePullCredentialsVerificationPolicy = kubelet.NeverVerifyPreloadedImages
		}, "", "", never},
		{"NeverVerifyAllowlistedImages", func(k *kubelet.KubeletConfiguration) {
			k.ImagePullCredentialsVerificationPolicy = kubelet.NeverVerifyAllowlistedImages
			k.PreloadedImagesVerificationAllowlist = []string{"reg.example.com/listed/*"}
		}, "", never, never},
		{"AlwaysVerify", func(k *kubelet.KubeletConfiguration) { k.ImagePullCredentialsVerificationPolicy = kubelet.AlwaysVerify }, never, never, never},
		{"gate off", func(k *kubelet.KubeletConfiguration) {
			k.FeatureGates = map[string]bool{"KubeletEnsureSecretPulledImages": false}
		}, "", "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Runtime: registry(listed, other), PullRecords: t.TempDir(), Agent: func(a *agent.Config) { c.change(&a.Kubelet) }}
			Run(t, cfg, func(w *World) {
				w.pullSecret(Namespace, "team")
				w.Create(imagePod(Namespace, "owner", privateImage, v1.PullIfNotPresent, "team"))
				w.WaitReady("owner")
				for name, image := range map[string]string{"listed": listed, "other": other, "private": privateImage} {
					w.Create(imagePod("other", name, image, v1.PullNever, ""))
				}
				w.awaitWaiting("other", "listed", c.listed)
				w.awaitWaiting("other", "other", c.other)
				w.awaitWaiting("other", "private", c.private)
				for _, name := range []string{"listed", "other", "private"} {
					w.deleteNow("other", name)
				}
			})
		})
	}
}
