package pullaccess

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

func TestRepositoryIsTheNameAsTheSpecHasIt(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]string{
		"app": "app", "app:1": "app", "app:1" + digest: "app", "team/app" + digest: "team/app",
		"docker.io/library/app:1": "docker.io/library/app", "localhost:5000/app": "localhost:5000/app", "localhost:5000/a/b:2": "localhost:5000/a/b",
		"a b": "", "": "", "team/UPPER": "", digest[1:]: "sha256",
	} {
		got, err := Repository(image)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", image, got, err, want)
		}
	}
}

func TestAllowlistPatterns(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", " ", " app", "app ", "*", "/*", "app*", "reg.example.com/*/app", "reg.example.com/**", "reg.example.com/a*", "*.example.com/app",
		"app:1", "app@sha256:" + strings.Repeat("a", 64), "team/UPPER",
	} {
		if _, err := ParseAllowlist([]string{"good", bad}); err == nil {
			t.Errorf("pattern %q was taken", bad)
		}
	}
	list, err := ParseAllowlist([]string{"app", "reg.example.com/team/app", "mirror.example.com/*", "reg.example.com/open/*"})
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]bool{
		"app": true, "app:1": true, "app@sha256:" + strings.Repeat("a", 64): true, "apps": false, "docker.io/library/app": false,
		"reg.example.com/team/app:2": true, "reg.example.com/team/other": false,
		"mirror.example.com/x": true, "mirror.example.com/x/y:1": true, "mirror.example.com.evil.example/x": false,
		"reg.example.com/open/x": true, "reg.example.com/opener": false, "reg.example.com/open": false,
	} {
		if got := list.Has(image); got != want {
			t.Errorf("%q: got %t", image, got)
		}
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	list, err := ParseAllowlist([]string{"listed"})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		verify            kubelet.ImagePullCredentialsVerificationPolicy
		preloaded, pulled bool
		listed            bool
		needsIntents      bool
	}{
		{verify: "", preloaded: true, pulled: true, listed: true},
		{verify: kubelet.NeverVerify, preloaded: true, pulled: true, listed: true},
		{verify: kubelet.NeverVerifyPreloadedImages, preloaded: true, needsIntents: true},
		{verify: kubelet.NeverVerifyAllowlistedImages, listed: true},
		{verify: kubelet.AlwaysVerify},
		{verify: "SomethingNew"},
	}
	for _, c := range cases {
		p := Policy{Verify: c.verify, Allowlist: list}
		is := func(v bool) func() bool { return func() bool { return v } }
		if got := p.Exempts("app:1", is(false)); got != c.preloaded {
			t.Errorf("%q: a preloaded image is exempt: %t", c.verify, got)
		}
		if got := p.Exempts("app:1", is(true)); got != c.pulled {
			t.Errorf("%q: a pulled image is exempt: %t", c.verify, got)
		}
		if got := p.Exempts("listed:1", is(true)); got != c.listed {
			t.Errorf("%q: a listed image is exempt: %t", c.verify, got)
		}
		if p.NeedsIntents() != c.needsIntents {
			t.Errorf("%q: NeedsIntents %t", c.verify, p.NeedsIntents())
		}
	}
}

// TestFingerprintIsThatOfKubernetes checks that Fingerprint returns the same hash as upstream's kubelet: the SHA-256 of the credential as a
// JSON object without empty fields. The expected hashes come from `printf %s '{"username":...}' | sha256sum`.
func TestFingerprintIsThatOfKubernetes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ user, password, email, want string }{
		{"user", "password", "", "a55436fc140d516560d072c5fe8700385ce9f41629abf65c1edcbcb39fac691d"},
		{"user", "p<&>\"é", "a@example.com", "2d98bcf6a2d8c753e9701524ae19664d9e463211aa0d2b99872e1d8ddf15018f"},
		{"", "", "", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
	} {
		if got := Fingerprint(c.user, c.password, c.email); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func secretAt(uid, namespace, name, hash string) kubelet.ImagePullSecret {
	return kubelet.ImagePullSecret{UID: uid, Namespace: namespace, Name: name, CredentialHash: hash}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	a := secretAt("u1", "ns", "a", "h1")
	full := kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{a}}
	for i := range maxNotedByMatch - 1 {
		full.KubernetesSecrets = append(full.KubernetesSecrets, secretAt(fmt.Sprint(i), "x", "y", "z"))
	}
	one := kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{a}}
	cases := []struct {
		name     string
		recorded kubelet.ImagePullCredentials
		have     kubelet.ImagePullSecret
		ok, note bool
	}{
		{"the same", one, a, true, false},
		{"the same credential in another secret", one, secretAt("u2", "other", "b", "h1"), true, true},
		{"the same secret with another content", one, secretAt("u1", "ns", "a", "h2"), true, true},
		{"a secret made again under the name", one, secretAt("u2", "ns", "a", "h2"), false, false},
		{"another namespace", one, secretAt("u1", "other", "a", "h2"), false, false},
		{"another secret", one, secretAt("u2", "other", "b", "h2"), false, false},
		{"no hash on either side", kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{secretAt("u1", "ns", "a", "")}}, secretAt("u2", "other", "b", ""), false, false},
		{"no UID on either side", kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{secretAt("", "ns", "a", "h1")}}, secretAt("", "ns", "a", "h2"), false, false},
		{"full: the same credential", full, secretAt("u2", "other", "b", "h1"), true, false},
		{"full: the same secret with another content", full, secretAt("u1", "ns", "a", "h2"), false, false},
		{"full: the same", full, a, true, false},
		{"nothing recorded", kubelet.ImagePullCredentials{}, a, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			note, ok := Match(c.recorded, []kubelet.ImagePullSecret{secretAt("u9", "ns", "unrelated", "h9"), c.have})
			if ok != c.ok || (note != nil) != c.note || note != nil && *note != c.have {
				t.Errorf("got %v, %t", note, ok)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	secrets := func(s ...kubelet.ImagePullSecret) kubelet.ImagePullCredentials {
		return kubelet.ImagePullCredentials{KubernetesSecrets: s}
	}
	everybody := kubelet.ImagePullCredentials{NodePodsAccessible: true}
	var r kubelet.ImagePulledRecord
	steps := []struct {
		add     kubelet.ImagePullCredentials
		changed bool
		want    kubelet.ImagePullCredentials
	}{
		{kubelet.ImagePullCredentials{}, false, kubelet.ImagePullCredentials{}},
		{secrets(secretAt("2", "b", "x", "h")), true, secrets(secretAt("2", "b", "x", "h"))},
		{secrets(secretAt("1", "a", "z", "h")), true, secrets(secretAt("1", "a", "z", "h"), secretAt("2", "b", "x", "h"))},
		{secrets(secretAt("1", "a", "z", "h")), false, secrets(secretAt("1", "a", "z", "h"), secretAt("2", "b", "x", "h"))},
		{secrets(secretAt("2", "b", "x", "new")), true, secrets(secretAt("1", "a", "z", "h"), secretAt("2", "b", "x", "new"))},
		{everybody, true, everybody},
		{secrets(secretAt("1", "a", "z", "h")), false, everybody},
	}
	for i, s := range steps {
		if changed := Add(&r, "app", s.add); changed != s.changed {
			t.Errorf("step %d: changed %t", i, changed)
		}
		if diff := cmp.Diff(s.want, r.CredentialMapping["app"]); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
	// Service accounts that another kubelet recorded are kept.
	kept := kubelet.ImagePullCredentials{KubernetesServiceAccounts: []kubelet.ImagePullServiceAccount{{UID: "s", Namespace: "ns", Name: "sa"}}}
	r.CredentialMapping["other"] = kept
	Add(&r, "other", secrets(secretAt("1", "a", "z", "h")))
	kept.KubernetesSecrets = []kubelet.ImagePullSecret{secretAt("1", "a", "z", "h")}
	if diff := cmp.Diff(kept, r.CredentialMapping["other"]); diff != "" {
		t.Error(diff)
	}
}

func TestSameImage(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct {
		spec, full string
		want       bool
	}{
		{"app", "docker.io/library/app:latest", true},
		{"app:1", "docker.io/library/app:1", true},
		{"docker.io/app:1", "docker.io/library/app:1", true},
		{"app:1" + digest, "docker.io/library/app" + digest, true},
		{"team/app:1", "reg.example.com/team/app:1", true}, // a short name may mean an image of any registry
		{"app:1", "reg.example.com/app:1", true},
		{"app:1", "docker.io/library/app:2", false},
		{"app:1", "reg.example.com/otherapp:1", false},
		{"docker.io/library/app:1", "reg.example.com/library/app:1", false},
		{"reg.example.com/app", "reg.example.com/app:latest", true},
		{"reg.example.com/app:1", "mirror.example.com/reg.example.com/app:1", false},
		{"localhost/app:1", "localhost/app:1", true},
		{"A B", "A B", true}, {"A B", "app", false}, {"A B", "", false}, {"", "app", false},
	} {
		if got := SameImage(c.spec, c.full); got != c.want {
			t.Errorf("%s and %s: %t", c.spec, c.full, got)
		}
		var names Names
		names.Add("reg.example.com/unlike:7")
		names.Add(c.spec)
		names.Add("")
		if got := names.Has(c.full); got != c.want {
			t.Errorf("%s among others and %s: %t", c.spec, c.full, got)
		}
	}
}

// TestPatterns checks which repositories a pattern matches. A pattern may have wildcards in the labels of its host, an exact port, and a
// prefix of the path.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for text, cases := range map[string]map[string]bool{
		"*.example.com":               {"a.example.com/x": true, "example.com/x": false, "a.b.example.com/x": false, "a.example.com:5000/x": false},
		"app*.example.com":            {"app1.example.com/x": true, "web.example.com/x": false},
		"reg.io:8080/path":            {"reg.io:8080/path/x": true, "reg.io:8080/other": false, "reg.io/path/x": false},
		"https://index.docker.io/v1/": {"index.docker.io/library/x": true},
		"[::1]:5000":                  {"[::1]:5000/x": true, "[::1]/x": false},
	} {
		pattern, err := ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		for repository, want := range cases {
			if got := pattern.Matches(repository); got != want {
				t.Errorf("%s matches %s: %t, want %t", text, repository, got, want)
			}
		}
	}
	for _, text := range []string{"", "https://", "/path", "%zz"} {
		if got, err := ParsePattern(text); err == nil {
			t.Errorf("%q was taken as %v", text, got)
		}
	}
}
