package fleet

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// testAccess returns an access that uses an API server in memory.
func testAccess(t *testing.T) (*access, *simkube.Kube) {
	t.Helper()
	kube := simkube.New(simkube.Config{})
	api, err := newClient(kube.RESTConfig("fleet"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &access{api: api, fleet: "f", host: "http://simkube", log: discard(), token: newToken()}, kube
}

// While the fleet runs, its bootstrap token is always valid for more than half an hour, also after somebody has deleted it or the API server
// was away.
func TestTokenStaysValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, kube := testAccess(t)
		if err := a.createToken(t.Context()); err != nil {
			t.Fatal(err)
		}
		go a.run(t.Context())
		secrets := a.api.Secrets(metav1.NamespaceSystem)
		valid := func(what string) {
			t.Helper()
			synctest.Wait()
			s, err := secrets.Get(t.Context(), a.secretName(), metav1.GetOptions{})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			end, err := time.Parse(time.RFC3339, string(s.Data["expiration"]))
			if left := time.Until(end); err != nil || left < 30*time.Minute || left > time.Hour {
				t.Errorf("%s: the token is valid for %s: %v", what, left, err)
			}
			if s.Type != v1.SecretTypeBootstrapToken || s.Labels[LabelFleet] != "f" || string(s.Data["auth-extra-groups"]) != "system:bootstrappers:wherry-fleet:f" ||
				"bootstrap-token-"+string(s.Data["token-id"]) != s.Name || string(s.Data["token-id"])+"."+string(s.Data["token-secret"]) != a.token {
				t.Errorf("%s: %s %v %v %v", what, s.Name, s.Type, s.Labels, s.Data)
			}
		}
		for range 30 {
			valid("later")
			time.Sleep(7 * time.Minute)
		}
		kube.SetOutage(true)
		time.Sleep(tokenRenewal)
		kube.SetOutage(false)
		time.Sleep(tokenRetry)
		valid("after an outage")
		if err := secrets.Delete(t.Context(), a.secretName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenRenewal)
		valid("after a deletion")
	})
}

// roundTrip is a function that is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The fleet waits while the API server does not know the new token yet. If it never accepts the token, the error names its flag.
func TestTokenAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, kube := testAccess(t)
		unknown := 3 * time.Second
		began := time.Now()
		a.boot = roundTrip(func(r *http.Request) (*http.Response, error) {
			if time.Since(began) >= unknown {
				return kube.RoundTrip(r)
			}
			const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`
			return &http.Response{StatusCode: 401, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
		if err := a.accepted(t.Context()); err != nil || time.Since(began) < unknown {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		unknown = time.Hour
		if err := a.accepted(t.Context()); err == nil || !strings.Contains(err.Error(), "--enable-bootstrap-token-auth") {
			t.Errorf("never accepted: %v", err)
		}
	})
}

// A client without TLS, or with a transport of its own, cannot present certificates.
func TestCertificatesNeedTLS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client *rest.Config
		want   string
	}{
		{simkube.New(simkube.Config{}).RESTConfig("fleet"), "transport of its own"},
		{&rest.Config{Host: "http://127.0.0.1:1"}, "has no TLS"},
		{&rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: t.TempDir() + "/none"}}, "none: no such file"},
	} {
		_, err := New(Config{Client: c.client, Identity: Certificate, Groups: []Group{{Count: 1}}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.client.Host, err, c.want)
		}
	}
}
