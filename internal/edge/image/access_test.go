package image

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
	"github.com/wherry-node/wherry/internal/edge/pullrecord"
)

// The images of these tests. The registry lets only users named "good" pull private, and everybody pull public.
const (
	private = "reg.example.com/team/app:1"
	public  = "reg.example.com/open/app:1"
)

// site is a node with its registry and the secrets of its cluster.
type site struct {
	*testing.T
	*store
	images  *Images
	root    string
	cfg     Config
	secrets map[string]*v1.Secret // the secrets of the cluster, by namespace/name

	counting sync.Mutex
	asked    int // how many secrets were read
	checks   map[string]int
	ensured  map[string]int
}

func (s *site) ImageVerified(result string) {
	s.counting.Lock()
	defer s.counting.Unlock()
	s.checks[result]++
}

func (s *site) ImageEnsured(policy v1.PullPolicy, present, pulled string) {
	s.counting.Lock()
	defer s.counting.Unlock()
	s.ensured[fmt.Sprintf("%s present=%s pulled=%s", policy, present, pulled)]++
}

// newSite returns a node without images. Call it in a synctest bubble.
func newSite(t *testing.T, policy kubelet.ImagePullCredentialsVerificationPolicy, allow ...string) *site {
	list, err := pullaccess.ParseAllowlist(allow)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, root: t.TempDir(), secrets: map[string]*v1.Secret{}, checks: map[string]int{}, ensured: map[string]int{}}
	s.store = &store{present: map[string]string{}, err: func(name, user string) error {
		if name == private && !strings.HasPrefix(user, "good") {
			return status.Errorf(codes.Unknown, "pull access denied for %q", user)
		}
		return nil
	}}
	s.cfg = Config{Client: s.store, Meter: s, Access: pullaccess.Policy{Verify: policy, Allowlist: list}, Secrets: func(_ context.Context, p *v1.Pod, name string) (*v1.Secret, error) {
		s.counting.Lock()
		s.asked++
		s.counting.Unlock()
		if secret := s.secrets[p.Namespace+"/"+name]; secret != nil {
			return secret, nil
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}}
	s.restart()
	return s
}

// restart replaces the agent by a new one on the same node.
func (s *site) restart() {
	s.cfg.Records = pullrecord.New(s.root, slog.New(slog.DiscardHandler))
	s.images = New(s.cfg)
}

// secret creates or replaces the secret that at names, in the form namespace/name.
func (s *site) secret(uid, at, user, password string) {
	namespace, name, _ := strings.Cut(at, "/")
	s.secrets[at] = &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(fmt.Sprintf(`{"auths":{"reg.example.com":{"username":%q,"password":%q}}}`, user, password))},
	}
}

// preload makes an image present without a pull of the agent.
func (s *site) preload(image string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.present[image], s.present["sha256:"+image] = "sha256:"+image, "sha256:"+image
}

// ensure calls Ensure for a pod and returns the result in one word: present, pulled, or the reason of the failure. pod is "namespace", or
// "namespace/secret" for a pod with an imagePullSecret.
func (s *site) ensure(pod, image string, policy v1.PullPolicy) string {
	s.Helper()
	namespace, secret, _ := strings.Cut(pod, "/")
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	if secret != "" {
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: secret}}
	}
	res, err := s.images.Ensure(s.Context(), Request{Pod: p, Image: image, Policy: policy})
	switch {
	case err != nil:
		return err.Reason
	case res.Pulled:
		return "pulled"
	}
	return "present"
}

// want calls ensure for a pod, and fails the test if the result is not outcome.
func (s *site) want(outcome, pod, image string, policy v1.PullPolicy) {
	s.Helper()
	if got := s.ensure(pod, image, policy); got != outcome {
		s.Errorf("a pod %s that asks for %s (%s): %s, want %s", pod, image, policy, got, outcome)
	}
}

func (s *site) files(dir string) int {
	entries, err := os.ReadDir(filepath.Join(s.root, "image_manager", dir))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	return len(entries)
}

// After one pod has pulled an image with a secret, a pod without this secret cannot use the image, whatever its pull policy is, and also
// after a restart of the agent.
func TestAPrivateImageIsNotEverybodys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		s.secret("u1", "a/s", "good", "x")
		s.want("pulled", "a/s", private, v1.PullIfNotPresent)
		for range 2 {
			s.want("present", "a/s", private, v1.PullIfNotPresent)
			s.want("present", "a/s", private, v1.PullNever)
			s.want(ReasonPull, "b", private, v1.PullIfNotPresent)
			s.want(ReasonPull, "b/missing", private, v1.PullIfNotPresent)
			s.want(ReasonNeverPull, "b", private, v1.PullNever)
			s.restart()
		}
		_, err := s.images.Ensure(t.Context(), Request{Pod: &v1.Pod{}, Image: private, Policy: v1.PullNever})
		if want := fmt.Sprintf("Container image %q is not present with pull policy of Never", private); err == nil || err.Message != want {
			t.Errorf("the error tells the pod more than that it cannot have the image: %v", err)
		}
		if s.files("pulling") != 0 || s.files("pulled") != 1 {
			t.Errorf("%d intents, %d records", s.files("pulling"), s.files("pulled"))
		}
	})
}

// After a pod has pulled an image with a secret, these secrets give another pod access to the image without a pull: the same secret,
// another secret with the same credential, and the same secret with a new password. A new secret with the same name does not.
func TestWhichSecretsGiveAccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		s.secret("u1", "a/s", "good", "x")
		s.want("pulled", "a/s", private, v1.PullIfNotPresent)
		s.secret("u2", "b/copy", "good", "x")
		s.want("present", "b/copy", private, v1.PullNever)
		s.secret("u2", "b/copy", "changed", "y") // if the copy was not recorded, this change would end its access
		s.want("present", "b/copy", private, v1.PullNever)
		s.secret("u1", "a/s", "changed", "z")
		s.want("present", "a/s", private, v1.PullNever)
		s.secret("u9", "a/s", "made again", "z2")
		s.want(ReasonNeverPull, "a/s", private, v1.PullNever)
		s.secret("u3", "c/bad", "bad", "x")
		s.want(ReasonPull, "c/bad", private, v1.PullIfNotPresent)
		s.secret("u3", "c/bad", "good2", "x") // another valid credential, which the registry accepts
		s.want("pulled", "c/bad", private, v1.PullIfNotPresent)
		s.want("present", "c/bad", private, v1.PullNever)
	})
}

// Every pod may use an image that was pulled without a secret or with the node's own credential. No secret is read for it.
func TestAPublicImageIsEverybodys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.AlwaysVerify)
		s.want("pulled", "a", public, v1.PullIfNotPresent)
		s.want("present", "b/any", public, v1.PullNever)
		node := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(node, []byte(`{"auths":{"reg.example.com":{"username":"good"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cfg.NodeCredentials = []string{node}
		s.restart()
		s.want("pulled", "a", private, v1.PullIfNotPresent)
		s.cfg.NodeCredentials = nil
		s.restart()
		s.want("present", "b/any", private, v1.PullNever)
		if s.asked != 0 {
			t.Errorf("%d secrets were read", s.asked)
		}
	})
}

// For each policy, the result is as documented for three images: one on the allowlist and one not on it, which were both present
// before the agent, and one that another pod pulled.
func TestVerificationPolicies(t *testing.T) {
	t.Parallel()
	const listed, other = "reg.example.com/listed/app:1", "reg.example.com/other/app:1"
	for policy, want := range map[kubelet.ImagePullCredentialsVerificationPolicy]string{
		kubelet.NeverVerify:                  "present present present",
		kubelet.NeverVerifyPreloadedImages:   "present present " + ReasonNeverPull,
		kubelet.NeverVerifyAllowlistedImages: "present " + ReasonNeverPull + " " + ReasonNeverPull,
		kubelet.AlwaysVerify:                 ReasonNeverPull + " " + ReasonNeverPull + " " + ReasonNeverPull,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, policy, "reg.example.com/listed/*")
				s.secret("u1", "a/s", "good", "x")
				s.preload(listed)
				s.preload(other)
				s.want("pulled", "a/s", private, v1.PullIfNotPresent)
				var got []string
				for _, image := range []string{listed, other, private} {
					got = append(got, s.ensure("b", image, v1.PullNever))
				}
				if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
					t.Error(diff)
				}
				s.want("present", "a/s", private, v1.PullNever)
			})
		})
	}
}

// Without records (the feature gate is off) every pod may use every present image. Nothing is verified or written.
func TestWithoutRecordsNothingIsVerified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.AlwaysVerify)
		s.cfg.Records = nil
		s.images = New(s.cfg)
		s.secret("u1", "a/s", "good", "x")
		s.want("pulled", "a/s", private, v1.PullIfNotPresent)
		s.want("present", "b", private, v1.PullNever)
		if len(s.checks) != 0 || s.files("pulled") != 0 {
			t.Errorf("checks %v, %d records", s.checks, s.files("pulled"))
		}
	})
}

// While an image is being pulled and the credentials of the pull are not recorded yet, no other pod may use the image, not even by its
// digest.
func TestAnImageIsClosedWhileItComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		s.secret("u1", "a/s", "good", "x")
		var wg sync.WaitGroup
		wg.Go(func() { s.want("pulled", "a/s", private, v1.PullIfNotPresent) })
		time.Sleep(500 * time.Millisecond)
		s.preload(private) // the runtime has the image, but has not answered the pull
		s.want(ReasonNeverPull, "b", private, v1.PullNever)
		byDigest := "reg.example.com/team/app@sha256:" + strings.Repeat("a", 64)
		s.tags = map[string][]string{byDigest: {private}}
		s.preload(byDigest)
		s.want(ReasonNeverPull, "b", byDigest, v1.PullNever)
		s.preload("other:1")
		s.want("present", "b", "other:1", v1.PullNever)
		wg.Wait()
	})
}

// A pull that is canceled, or during which the runtime goes away, may have added the image. If the image was not present before that pull,
// a pod without credentials may not use it; if it was, every pod may. After a pull that the registry refuses, every pod may use an image
// that is preloaded later.
func TestAPullOfUnknownEnd(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		err    error // the error of the pull; nil: the pull is canceled
		listed bool  // the image was present before
		want   string
	}{
		{"cancelled", nil, false, ReasonNeverPull},
		{"cancelled, there before", nil, true, "present"},
		{"the runtime went away", status.Error(codes.Unavailable, "error reading from server: EOF"), false, ReasonNeverPull},
		{"the runtime went away, there before", status.Error(codes.Unavailable, "error reading from server: EOF"), true, "present"},
		{"refused", status.Error(codes.Unknown, "denied"), false, "present"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, kubelet.NeverVerifyPreloadedImages)
				s.cfg.Listed = func() []*runtimeapi.Image {
					if c.listed {
						return []*runtimeapi.Image{{Id: "sha256:" + private, RepoTags: []string{private}}}
					}
					return nil
				}
				s.restart()
				if c.err != nil {
					s.err = func(string, string) error { return c.err }
					s.want(ReasonPull, "a", private, v1.PullAlways)
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					if _, err := s.images.Ensure(ctx, Request{Image: private, Policy: v1.PullAlways}); err == nil || !err.Canceled {
						t.Errorf("got %v", err)
					}
				}
				s.preload(private)
				s.want(c.want, "b", private, v1.PullNever)
				s.restart()
				s.want(c.want, "b", private, v1.PullNever)
			})
		})
	}
}

// Two pods whose own secrets hold the same credential share one pull, and each secret gives access from then on. Pods with
// other credentials pull on their own.
func TestParallelPullsAreRecordedForEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		for _, name := range []string{"a", "b", "c"} {
			s.secret("u"+name, name+"/s", "good", "x")
		}
		s.secret("ud", "d/s", "good2", "x")
		s.secret("ue", "e/s", "bad", "x")
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			wg.Go(func() { s.want("pulled", name+"/s", private, v1.PullIfNotPresent) })
		}
		wg.Go(func() { s.want(ReasonPull, "e/s", private, v1.PullIfNotPresent) })
		wg.Wait()
		if len(s.pulls) != 3 {
			t.Errorf("pulls: %q", s.pulls)
		}
		for _, name := range []string{"a", "b", "c", "d"} { // access is recorded by the secret's name too, not only by the credential's hash
			s.secret("u"+name, name+"/s", "changed", name)
			s.want("present", name+"/s", private, v1.PullNever)
		}
		s.want(ReasonNeverPull, "e/s", private, v1.PullNever)
		if s.files("pulling") != 0 {
			t.Error("an intent is left")
		}
	})
}

// If the note that a pull has begun cannot be written, a policy with verification refuses to pull, because the image would then look
// preloaded. Other policies pull, and the pod pulls again next time.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	for policy, want := range map[kubelet.ImagePullCredentialsVerificationPolicy]string{
		kubelet.NeverVerify: "pulled", kubelet.NeverVerifyPreloadedImages: ReasonPull, kubelet.AlwaysVerify: "pulled",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, policy)
			if err := os.WriteFile(filepath.Join(s.root, "image_manager"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.want(want, "a", public, v1.PullIfNotPresent)
			if policy == kubelet.AlwaysVerify {
				s.want("pulled", "a", public, v1.PullIfNotPresent)
			}
			if err := os.Remove(filepath.Join(s.root, "image_manager")); err != nil {
				t.Fatal(err)
			}
			if policy == kubelet.NeverVerifyPreloadedImages {
				s.want("pulled", "a", public, v1.PullIfNotPresent)
				s.want("present", "a", public, v1.PullIfNotPresent)
			}
		})
	}
}

func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, kubelet.NeverVerifyPreloadedImages)
		s.secret("u1", "a/s", "good", "x")
		s.preload("preloaded:1")
		s.want("pulled", "a/s", private, v1.PullAlways)
		s.want("present", "a/s", private, v1.PullIfNotPresent)
		s.want(ReasonPull, "b", private, v1.PullIfNotPresent)
		s.want("present", "b", "preloaded:1", v1.PullIfNotPresent)
		s.want(ReasonNeverPull, "b", "absent:1", v1.PullNever)
		s.want(ReasonNeverPull, "b", private, v1.PullNever)
		if diff := cmp.Diff(map[string]int{"credentialRecordFound": 1, "mustAuthenticate": 2, "credentialPolicyAllowed": 1}, s.checks); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]int{
			"Always present=unknown pulled=true": 1, "IfNotPresent present=true pulled=false": 2, "IfNotPresent present=true pulled=true": 1,
			"Never present=false pulled=unknown": 1, "Never present=true pulled=true": 1,
		}, s.ensured); diff != "" {
			t.Error(diff)
		}
	})
}

// BenchmarkPresentImage measures how much time the verification adds to the start of a container whose image is present.
func BenchmarkPresentImage(b *testing.B) {
	for _, record := range []bool{false, true} {
		b.Run(fmt.Sprintf("record=%t", record), func(b *testing.B) {
			records := pullrecord.New(b.TempDir(), slog.New(slog.DiscardHandler))
			if record {
				if err := records.Pulled(public, "sha256:"+public, kubelet.ImagePullCredentials{NodePodsAccessible: true}); err != nil {
					b.Fatal(err)
				}
			}
			m := New(Config{Client: &store{present: map[string]string{public: "sha256:" + public}}, Records: records,
				Access: pullaccess.Policy{Verify: kubelet.NeverVerifyPreloadedImages}})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Ensure(b.Context(), Request{Image: public, Policy: v1.PullIfNotPresent}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
