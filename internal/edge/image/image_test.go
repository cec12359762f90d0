package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// store is an image service with images by name. A pull takes a second.
type store struct {
	runtimeapi.ImageServiceClient
	mu       sync.Mutex
	present  map[string]string   // ID of each present image, by name and by ID
	tags     map[string][]string // the other names of an image, by name
	pulls    []string            // each as "name user"
	now      int
	most     int
	canceled int
	hang     bool // ImageStatus does not return until its context ends
	err      func(name, user string) error
}

func (s *store) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	if s.hang {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.present[r.Image.Image]
	if id == "" {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: id, Size: 42, Username: "web", RepoTags: s.tags[r.Image.Image]}}, nil
}

func (s *store) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	name, user := r.Image.Image, r.Auth.GetUsername()
	s.mu.Lock()
	s.pulls = append(s.pulls, strings.TrimSpace(name+" "+user))
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		s.mu.Lock()
		s.canceled++
		s.mu.Unlock()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if s.err != nil {
		if err := s.err(name, user); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "sha256:" + name
	s.present[name], s.present[id] = id, id
	return &runtimeapi.PullImageResponse{ImageRef: id}, nil
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	cases := []struct {
		image   string
		policy  v1.PullPolicy
		present bool
		pulls   int
		reason  string
		message string
	}{
		{image: "app:1", policy: v1.PullIfNotPresent, present: true},
		{image: "app:1", policy: v1.PullIfNotPresent, pulls: 1},
		{image: "app:1", policy: v1.PullAlways, present: true, pulls: 1},
		{image: "app:1", policy: v1.PullNever, present: true},
		{image: "app:1", policy: v1.PullNever, reason: ReasonNeverPull, message: `Container image "app:1" is not present with pull policy of Never`},
		{image: "app:1", present: true},
		{image: "app:latest", present: true, pulls: 1},
		{image: "app", present: true, pulls: 1},
		{image: "app@sha256:" + strings.Repeat("a", 64), present: true},
		{image: "team/UPPER", reason: ReasonInvalidName, message: "Failed to apply default image tag"},
		{image: "", reason: ReasonInvalidName, message: "Failed to apply default image tag"},
		{image: "a b", reason: ReasonInvalidName, message: "Failed to apply default image tag"},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %s present=%t", c.image, c.policy, c.present), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &store{present: map[string]string{}}
				if c.present {
					name, _ := WithTag(c.image)
					s.present[name], s.present["sha256:"+name] = "sha256:"+name, "sha256:"+name
				}
				pulling := 0
				res, err := New(Config{Client: s}).Ensure(t.Context(), Request{Image: c.image, Policy: c.policy, Pulling: func() { pulling++ }})
				if c.reason != "" {
					if err == nil || err.Reason != c.reason || !strings.HasPrefix(err.Message, c.message) {
						t.Fatalf("got %v, want %s: %s", err, c.reason, c.message)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if len(s.pulls) != c.pulls || pulling != c.pulls || res.Pulled != (c.pulls > 0) {
					t.Errorf("pulled %q, announced %d, reported as pulled: %t; want %d pulls", s.pulls, pulling, res.Pulled, c.pulls)
				}
				if res.Ref != res.Image.Id || res.Image.Username != "web" || res.Image.Size != 42 {
					t.Errorf("result %+v", res)
				}
				if c.pulls > 0 && res.Took != time.Second {
					t.Errorf("took %s", res.Took)
				}
			})
		})
	}
}

// If the runtime does not answer the question whether an image is present, Ensure returns the reason ImageInspectError after Timeout.
func TestSilentRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := New(Config{Client: &store{hang: true}, Timeout: time.Minute}).Ensure(t.Context(), Request{Image: "app:1"})
		if took := time.Since(began); err == nil || err.Reason != ReasonInspect || err.Canceled || took != time.Minute {
			t.Errorf("after %s: %+v, want %s after a minute", took, err, ReasonInspect)
		}
	})
}

func TestOnePullForAllWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{present: map[string]string{}}
		m := New(Config{Client: s})
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx := t.Context()
				if i == 0 { // the waiter that began the pull gives up
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
					defer cancel()
				}
				_, err := m.Ensure(ctx, Request{Image: "app:1"})
				if (err != nil) != (i == 0) || err != nil && !err.Canceled {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if diff := cmp.Diff([]string{"app:1"}, s.pulls); diff != "" || s.canceled != 0 {
			t.Errorf("pulls (canceled %d): %s", s.canceled, diff)
		}
	})
}

func TestLastWaiterCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{present: map[string]string{}}
		m := New(Config{Client: s})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := m.Ensure(ctx, Request{Image: "app:1"})
		if err == nil || !err.Canceled || s.canceled != 1 {
			t.Fatalf("error %v, canceled pulls %d", err, s.canceled)
		}
		if _, err := m.Ensure(t.Context(), Request{Image: "app:1"}); err != nil {
			t.Errorf("a pull after a cancelled one: %v", err)
		}
	})
}

func TestCapOnParallelPulls(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{present: map[string]string{}}
			m := New(Config{Client: s, MaxParallel: most})
			var wg sync.WaitGroup
			var longest time.Duration
			var mu sync.Mutex
			for i := range 9 {
				wg.Go(func() {
					res, err := m.Ensure(t.Context(), Request{Image: fmt.Sprintf("app:%d", i)})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					longest = max(longest, res.Waited)
					mu.Unlock()
					if res.Took != time.Second {
						t.Errorf("took %s without the wait", res.Took)
					}
				})
			}
			wg.Wait()
			want := most
			if want == 0 {
				want = 9
			}
			if s.most != want || longest != time.Duration(9/want)*time.Second {
				t.Errorf("cap %d: %d at once, the last waited %s", most, s.most, longest)
			}
		})
	}
}

func secret(name string, typ v1.SecretType, key, data string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Type: typ, Data: map[string][]byte{key: []byte(data)}}
}

func TestCredentialsAreTriedInOrder(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString([]byte("good:p:w"))
	secrets := map[string]*v1.Secret{
		"bad":    secret("bad", v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths":{"reg.example.com:5000":{"username":"bad","password":"x"}}}`),
		"good":   secret("good", v1.SecretTypeDockercfg, v1.DockerConfigKey, `{"https://reg.example.com:5000":{"auth":"`+b64+`"}}`),
		"broken": secret("broken", v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths": s3cret`),
	}
	node := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(node, []byte(`{"auths":{"reg.example.com:5000":{"username":"node"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &store{present: map[string]string{}, err: func(_, user string) error {
			if user == "node" {
				return nil
			}
			return status.Errorf(codes.Unknown, "pull access denied for %s", user)
		}}
		m := New(Config{Client: s, NodeCredentials: []string{"/absent", node}, Secrets: func(_ context.Context, p *v1.Pod, name string) (*v1.Secret, error) {
			if s := secrets[name]; s != nil && p.Namespace == "ns" {
				return s, nil
			}
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
		}})
		pod := func(names ...string) *v1.Pod {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			for _, n := range names {
				p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: n})
			}
			return p
		}
		res, err := m.Ensure(t.Context(), Request{Pod: pod("missing", "bad", "good"), Image: "reg.example.com:5000/team/app:1"})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"reg.example.com:5000/team/app:1 bad", "reg.example.com:5000/team/app:1 good", "reg.example.com:5000/team/app:1 node"}
		if diff := cmp.Diff(want, s.pulls); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"missing"}, res.Warnings); diff != "" {
			t.Error(diff)
		}
		_, err = m.Ensure(t.Context(), Request{Pod: pod("broken"), Image: "other.example.com/app:1"})
		if err == nil || err.Reason != ReasonPull || !strings.Contains(err.Message, "secret ns/broken") || strings.Contains(err.Message, "s3cret") {
			t.Errorf("a broken secret gave %v", err)
		}
		s.err = func(string, string) error { return status.Error(codes.Unavailable, "RegistryUnavailable: timeout") }
		_, err = m.Ensure(t.Context(), Request{Image: "other.example.com/app:1"})
		if err == nil || err.Reason != ReasonRegistryUnavailable ||
			err.Message != "image pull failed for other.example.com/app:1 because the registry is unavailable: timeout" {
			t.Errorf("got %v", err)
		}
		s.err = func(string, string) error { return status.Error(codes.NotFound, "not found") }
		_, err = m.Ensure(t.Context(), Request{Image: "nosuch"})
		if err == nil || err.Reason != ReasonPull || err.Message != "rpc error: code = NotFound desc = not found" || !errors.Is(err, err.Err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLookup(t *testing.T) {
	t.Parallel()
	cases := []struct {
		registries string // the registries in the docker configuration; each name is also the user for this registry
		image      string
		want       []string
	}{
		{"quay.io", "quay.io/a/b", []string{"quay.io"}},
		{"quay.io quay.io/a quay.io/a/b", "quay.io/a/b:1", []string{"quay.io/a/b", "quay.io/a", "quay.io"}},
		{"quay.io/x", "quay.io/a/b", nil},
		{"https://quay.io/v2/", "quay.io/a/b", []string{"https://quay.io/v2/"}},
		{"*.example.com", "reg.example.com/a", []string{"*.example.com"}},
		{"*.example.com", "example.com/a", nil},
		{"*.example.com", "a.reg.example.com/a", nil},
		{"reg.example.com", "reg.example.com:5000/a", nil},
		{"reg.example.com:5000", "reg.example.com:5000/a", []string{"reg.example.com:5000"}},
		{"https://index.docker.io/v1/", "nginx", []string{"https://index.docker.io/v1/"}},
		{"https://index.docker.io/v1/ docker.io", "docker.io/library/nginx", []string{"docker.io"}},
		{"https://index.docker.io/v1/", "quay.io/nginx", nil},
		{"localhost:5000", "localhost:5000/a@sha256:" + strings.Repeat("b", 64), []string{"localhost:5000"}},
	}
	for _, c := range cases {
		t.Run(c.registries+" "+c.image, func(t *testing.T) {
			t.Parallel()
			var k keyring
			for p := range strings.FieldsSeq(c.registries) {
				if bad := k.addConfig([]byte(fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":"x"}}}`, p, p)), nil); len(bad) > 0 {
					t.Fatal(bad)
				}
			}
			repo, err := repository(c.image)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range k.lookup(repo) {
				got = append(got, a.auth.Username)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("credentials (-want +got):\n%s", diff)
			}
		})
	}
}

// PullMessage returns the same messages for failed pulls as upstream's kubelet, because people and tools know these messages.
func TestPullMessage(t *testing.T) {
	t.Parallel()
	gone, odd, own := status.Error(codes.NotFound, "no such image"), status.Error(codes.Unknown, "failed to resolve"), errors.New("secret s is broken")
	for _, c := range []struct {
		err  error
		want string
	}{
		{gone, "rpc error: code = NotFound desc = no such image"},
		{odd, "failed to resolve"},
		{own, "secret s is broken"},
		{errors.Join(gone, odd, gone), "[rpc error: code = NotFound desc = no such image, failed to resolve]"},
		{errors.Join(odd, odd), "failed to resolve"},
	} {
		if got := PullMessage(c.err); got != c.want {
			t.Errorf("%v:\n got %q\nwant %q", c.err, got, c.want)
		}
	}
}

// A pod that names very many secrets, or secrets with very many credentials, costs the node and the registry a bounded number of requests.
func TestPullSecretsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, name func(i int) string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		for i := range n {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name(i)})
		}
		return p
	}
	crowded := func(pad int) string { // 1,000 credentials for one registry
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, `%q: {"username": "u%d"},`, fmt.Sprintf("reg.example.com/p%d", i), i)
			fmt.Fprintf(&b, `%q: {"username": "u%d"},`, fmt.Sprintf("https://reg.example.com/team%s", strings.Repeat("/", i%3)), i)
		}
		return `{"auths": {` + b.String() + `"x": {"email": "` + strings.Repeat("e", pad) + `"}}}`
	}
	for _, c := range []struct {
		name   string
		pod    *v1.Pod
		secret string
		reads  int
		pulls  int
		err    string
	}{
		{"one secret often", many(5000, func(int) string { return "a" }), `{}`, 1, 1, ""},
		{"many names", many(5000, func(i int) string { return fmt.Sprint("s", i) }), `{}`, 256, 0, "more than 256 imagePullSecrets"},
		{"many bytes", many(9, func(i int) string { return fmt.Sprint("s", i) }), crowded(900 << 10), 5, 0, "more than 4194304 bytes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{present: map[string]string{}}
			reads := 0
			m := New(Config{Client: s, Secrets: func(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
				reads++
				return secret(name, v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, c.secret), nil
			}})
			_, err := m.Ensure(t.Context(), Request{Pod: c.pod, Image: "reg.example.com/team/app:1"})
			switch {
			case c.err == "" && err != nil, c.err != "" && (err == nil || err.Reason != ReasonPull || !strings.Contains(err.Message, c.err)):
				t.Errorf("%s: %v", c.name, err)
			case reads != c.reads || len(s.pulls) != c.pulls:
				t.Errorf("%s: %d secrets read and %d pulls, want %d and %d", c.name, reads, len(s.pulls), c.reads, c.pulls)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := &store{present: map[string]string{}, err: func(string, string) error { return status.Error(codes.Unknown, "denied") }}
		m := New(Config{Client: s, Secrets: func(_ context.Context, _ *v1.Pod, name string) (*v1.Secret, error) {
			return secret(name, v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths": {"reg.example.com": {"username": "`+name+`"}}}`), nil
		}})
		_, err := m.Ensure(t.Context(), Request{Pod: many(100, func(i int) string { return fmt.Sprint("s", i) }), Image: "reg.example.com/team/app:1"})
		if err == nil || len(s.pulls) != 64 || !strings.Contains(err.Message, "only 64 of 100 credentials were tried") {
			t.Errorf("%d pulls: %v", len(s.pulls), err)
		}
	})
}
