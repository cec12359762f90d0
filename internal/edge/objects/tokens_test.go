package objects

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// issuer grants numbered tokens: "token-1" and so on. If valid is set, the tokens are JWTs with that lifetime.
type issuer struct {
	mu      sync.Mutex
	granted int
	asked   []*authenticationv1.TokenRequest
	err     error
	valid   time.Duration
}

func (i *issuer) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err = err
}

func (i *issuer) react(a clienttesting.Action) (bool, runtime.Object, error) {
	if a.GetSubresource() != "token" {
		return false, nil, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	req := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
	i.asked = append(i.asked, req)
	if i.err != nil {
		return true, nil, i.err
	}
	i.granted++
	seconds := int64(3600)
	if req.Spec.ExpirationSeconds != nil {
		seconds = *req.Spec.ExpirationSeconds
	}
	req.Spec.ExpirationSeconds = &seconds
	req.Status.Token = fmt.Sprintf("token-%d", i.granted)
	if i.valid > 0 {
		claims := fmt.Sprintf(`{"iat":1000,"exp":%d}`, 1000+int64(i.valid.Seconds()))
		req.Status.Token = fmt.Sprintf("token-%d.%s.sig", i.granted, base64.RawURLEncoding.EncodeToString([]byte(claims)))
	}
	// The server's clock is an hour behind, so the client must use only durations from the answer.
	req.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(seconds)*time.Second - time.Hour))
	return true, req, nil
}

func withIssuer(t *testing.T, f func(t *testing.T, w *world, i *issuer, p *v1.Pod)) {
	t.Helper()
	run(t, watchOnly, func(t *testing.T, w *world) {
		i := &issuer{}
		w.client.PrependReactor("create", "serviceaccounts", i.react)
		p := podWith("1")
		p.Spec.ServiceAccountName = "builder"
		w.Track(p)
		f(t, w, i, p)
	})
}

func tokenOf(t *testing.T, w *world, p *v1.Pod, audience string, seconds int64) string {
	t.Helper()
	got, expires, err := w.ServiceAccountToken(t.Context(), p, audience, &seconds)
	if err != nil {
		return "error: " + err.Error()
	}
	if !expires.After(time.Now()) {
		t.Errorf("token %s expired at %v", got, expires)
	}
	name, _, _ := strings.Cut(got, ".")
	return name
}

func TestTokenIsBoundToThePodAndCached(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
		for range 3 {
			if got := tokenOf(t, w, p, "", 3607); got != "token-1" {
				t.Errorf("got %s", got)
			}
		}
		if got := tokenOf(t, w, p, "vault", 3607); got != "token-2" {
			t.Errorf("another audience: %s", got)
		}
		if got := tokenOf(t, w, p, "vault", 600); got != "token-3" {
			t.Errorf("another expiry: %s", got)
		}
		spec := i.asked[1].Spec
		ref := spec.BoundObjectRef
		if ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Name != "p-1" || ref.UID != "1" || len(spec.Audiences) != 1 || spec.Audiences[0] != "vault" || *spec.ExpirationSeconds != 3607 {
			t.Errorf("asked for %+v bound to %+v", spec, ref)
		}
		if len(i.asked[0].Spec.Audiences) != 0 {
			t.Errorf("audiences %v, want the API server's own", i.asked[0].Spec.Audiences)
		}
		w.Forget("1")
		if got := tokenOf(t, w, p, "", 3607); got != "token-4" {
			t.Errorf("after Forget: %s", got)
		}
		if !w.NextRenewal("1").IsZero() {
			t.Error("the token of a forgotten pod is kept")
		}
	})
}

// "The kubelet proactively requests rotation for the token if it is older than 80% of its total time-to-live (TTL),
// or if the token is older than 24 hours."
func TestTokenIsRenewedInTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		seconds int64
		valid   time.Duration // lifetime in the JWT; 0: the token is no JWT
		renew   time.Duration
	}{
		{600, 0, 8 * time.Minute},
		{3600, time.Hour, 48 * time.Minute},
		{3607, 365 * 24 * time.Hour, 3607 * time.Second * 8 / 10}, // valid for a year, but still renewed within the hour
		{3600, 10 * time.Minute, 8 * time.Minute},                 // the lifetime in the JWT is shorter than the requested one
		{7 * 24 * 3600, 7 * 24 * time.Hour, 24 * time.Hour},
	} {
		withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
			i.valid = tt.valid
			tokenOf(t, w, p, "", tt.seconds)
			due := time.Until(w.NextRenewal("1"))
			if due > tt.renew || due < tt.renew*94/100 {
				t.Errorf("%d s: due in %v, want shortly before %v", tt.seconds, due, tt.renew)
			}
			time.Sleep(due - time.Second)
			if got := tokenOf(t, w, p, "", tt.seconds); got != "token-1" {
				t.Errorf("%d s: renewed early: %s", tt.seconds, got)
			}
			time.Sleep(time.Second)
			if got := tokenOf(t, w, p, "", tt.seconds); got != "token-2" {
				t.Errorf("%d s: not renewed: %s", tt.seconds, got)
			}
		})
	}
}

// A pod is notified when one of its tokens is due for renewal, once for each token, because nothing else would make the pod renew
// it.
func TestAPodIsNotifiedWhenATokenIsDue(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
		notified := func() int {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.notified["1"]
		}
		tokenOf(t, w, p, "vault", 24*3600)
		time.Sleep(time.Minute)
		tokenOf(t, w, p, "", 600) // due earlier than the time that remind waits for
		for n := range 3 {
			time.Sleep(time.Until(w.NextRenewal("1")) - time.Millisecond)
			if got := notified(); got != n {
				t.Fatalf("notified %d times before renewal %d", got, n)
			}
			time.Sleep(time.Millisecond)
			if got := notified(); got != n+1 {
				t.Fatalf("notified %d times when renewal %d was due", got, n)
			}
			if n == 1 {
				i.fail(apierrors.NewServiceUnavailable("down")) // this renewal fails, so the pod must be notified again for another try
			}
			tokenOf(t, w, p, "", 600)
			i.fail(nil)
			if n == 1 {
				if wait := time.Until(w.NextRenewal("1")); wait > time.Minute {
					t.Errorf("a renewal that failed is tried again in %v", wait)
				}
			}
		}
		// At this time the 24-hour token for the audience vault is due, too. The test does not request that token again. Its notification
		// must not replace those for the 10-minute token.
		due := time.Now().Add(20 * time.Hour)
		for before := notified(); time.Now().Before(due); before++ {
			time.Sleep(time.Until(w.tokens.pods["1"].of(tokenKey{"builder", "", 600}).renew))
			if got := notified(); got <= before {
				t.Fatalf("notified %d times at %v", got, time.Now())
			}
			tokenOf(t, w, p, "", 600)
		}
		w.Forget("1")
		before := notified()
		time.Sleep(48 * time.Hour)
		if got := notified(); got != before {
			t.Errorf("notified %d times after Forget", got-before)
		}
	})
}

func TestAnOldTokenServesWhileItsRenewalFails(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
		began := time.Now()
		tokenOf(t, w, p, "", 600)
		i.fail(apierrors.NewServiceUnavailable("down"))
		tries := len(i.asked)
		for time.Since(began) < 600*time.Second-time.Second {
			if got := tokenOf(t, w, p, "", 600); got != "token-1" {
				t.Fatalf("after %v: %s", time.Since(began), got)
			}
			time.Sleep(time.Second)
		}
		if n := len(i.asked) - tries; n < 2 || n > 5 {
			t.Errorf("%d tries in the 2 minutes before the end, want one in 30 to 60 s", n)
		}
		time.Sleep(2 * time.Minute)
		if got := tokenOf(t, w, p, "", 600); !strings.Contains(got, "token expired at") || !strings.Contains(got, "down") {
			t.Errorf("after the end: %s", got)
		}
		i.fail(nil)
		if got := tokenOf(t, w, p, "", 600); got != "token-2" {
			t.Errorf("after the outage: %s", got)
		}
	})
}

// Each tracked pod has its own tokens. After Forget, no token of the pod is kept, even if a renewal was in flight.
func TestTokensArePodByPod(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
		two := podWith("2")
		w.Track(two)
		tokenOf(t, w, p, "", 600)
		tokenOf(t, w, p, "vault", 3600)
		time.Sleep(time.Minute)
		tokenOf(t, w, two, "", 600)
		w.Track(p) // tracking the pod again keeps its tokens
		one := w.NextRenewal("1")
		if other := w.NextRenewal("2"); !one.Before(other) || time.Until(one) > 480*time.Second-time.Minute {
			t.Errorf("due %s and %s, want the sooner of its own tokens for each", one, other)
		}
		w.Forget("2")
		if again := w.NextRenewal("1"); !again.Equal(one) || !w.NextRenewal("2").IsZero() {
			t.Errorf("after another's Forget due %s, was %s", again, one)
		}
		time.Sleep(time.Until(one))
		w.client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.Forget("1")
			return true, nil, apierrors.NewServiceUnavailable("down")
		})
		if got := tokenOf(t, w, p, "", 600); got != "token-1" {
			t.Errorf("while its renewal fails: %s", got)
		}
		if n := len(w.tokens.pods); n != 0 {
			t.Errorf("the tokens of %d pods that were forgotten are kept: %v", n, w.tokens.pods)
		}
	})
}

func TestARefusedTokenIsAskedForAgainAtOnce(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
		i.fail(apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "builder", errors.New("no relationship found")))
		time.AfterFunc(130*time.Millisecond, func() { i.fail(nil) })
		if got := tokenOf(t, w, p, "", 600); got != "token-1" {
			t.Errorf("got %s", got)
		}
		i.fail(apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "builder"))
		before := len(i.asked)
		if got := tokenOf(t, w, p, "other", 600); !strings.Contains(got, `"builder" not found`) || len(i.asked) != before+1 {
			t.Errorf("a missing service account: %s after %d tries", got, len(i.asked)-before)
		}
	})
}

// The agent closes its own connections after it has renewed its certificate, or after failed heartbeats. A token request that was in flight
// is made again, so that the set-up of the volume does not fail.
func TestATokenIsAskedForAgainWhenItsConnectionWasClosed(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, w *world, i *issuer, p *v1.Pod) {
		i.fail(&url.Error{Op: "Post", URL: "https://127.0.0.1", Err: &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}})
		time.AfterFunc(kubeclient.InsistMin/2, func() { i.fail(nil) })
		if got := tokenOf(t, w, p, "", 3600); got != "token-1" {
			t.Errorf("token %q, want token-1", got)
		}
		// The request is also made again if the API server does not find the pod yet, although its watch has sent the pod.
		i.fail(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, p.Name))
		time.AfterFunc(kubeclient.InsistMin/2, func() { i.fail(nil) })
		if got := tokenOf(t, w, p, "other", 3600); got != "token-2" {
			t.Errorf("token %q, want token-2", got)
		}
	})
}

// silent is a namespace's service accounts on an API server that does not answer.
type silent struct{ ServiceAccounts }

func (silent) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*v1.ServiceAccount, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) CreateToken(ctx context.Context, _ string, _ *authenticationv1.TokenRequest, _ metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A request for a token or a certificate that gets no answer ends by itself, so that the set-up of the volume says what is wrong. The context of
// a set-up has no deadline.
func TestARequestWithoutAnAnswerEnds(t *testing.T) {
	t.Parallel()
	runCertificates(t, func(t *testing.T, w *certWorld) {
		p := projecting("1", certifying("ED25519"))
		w.Track(p)
		accounts := func(string) ServiceAccounts { return silent{} }
		w.tokens.accounts, w.certificates.accounts = accounts, accounts
		for what, ask := range map[string]func(context.Context) error{
			"token": func(ctx context.Context) error {
				_, _, err := w.ServiceAccountToken(ctx, p, "", nil)
				return err
			},
			"certificate": func(ctx context.Context) error {
				_, err := w.PodCertificate(ctx, p, "v", 0, nil)
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // ends this test if the request does not end by itself
			began := time.Now()
			err := ask(ctx)
			if took := time.Since(began); took > 30*time.Second || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: after %s: %v, want the end of a deadline within 30 s", what, took, err)
			}
			cancel()
		}
	})
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	jwt := func(claims string) string {
		return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
	}
	for token, want := range map[string]time.Duration{
		jwt(`{"iat":100,"exp":700}`):   10 * time.Minute,
		jwt(`{"iat":100.5,"exp":700}`): 599 * time.Second,
		jwt(`{"exp":700}`):             0,
		jwt(`{"iat":700,"exp":100}`):   0,
		jwt(`{"iat":1,"exp":1e300}`):   0,
		jwt(`nonsense`):                0,
		"opaque":                       0,
		"a.!.c":                        0,
		"":                             0,
	} {
		if got := lifetime(token); got != want {
			t.Errorf("lifetime(%q) = %v, want %v", token, got, want)
		}
	}
}

func FuzzLifetime(f *testing.F) {
	f.Add(`{"iat":1,"exp":2}`)
	f.Fuzz(func(t *testing.T, claims string) {
		if d := lifetime("h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"); d < 0 {
			t.Errorf("%q lasts %v", claims, d)
		}
	})
}
