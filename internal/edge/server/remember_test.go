package server_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wherry-node/wherry/internal/edge/server"
)

func authenticate(a server.Authenticator, token string) (*authnv1.UserInfo, error) {
	r := httptest.NewRequest("GET", "/pods", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return a.Authenticate(r)
}

func TestTokensAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &tokens{}
		a := server.NewAuthenticator(server.AuthnConfig{Tokens: f})
		calls := func(want int) {
			t.Helper()
			if f.calls != want {
				t.Fatalf("%d reviews, want %d", f.calls, want)
			}
		}
		for range 3 {
			if u, err := authenticate(a, "token-x"); err != nil || u.Username != "x" {
				t.Fatalf("%v %v", u, err)
			}
		}
		calls(1)
		time.Sleep(2*time.Minute + time.Second) // "authentication.webhook.cacheTTL" 2m
		_, _ = authenticate(a, "token-x")
		calls(2)
		for range 3 {
			if u, err := authenticate(a, "bad"); err == nil {
				t.Fatalf("%v", u)
			}
		}
		calls(3)
		time.Sleep(11 * time.Second)
		_, _ = authenticate(a, "bad")
		calls(4)

		// During an outage of the API server the review is tried five times, and its failure is not cached.
		f.err = apierrors.NewInternalError(errors.New("etcd is away"))
		if _, err := authenticate(a, "token-y"); err == nil {
			t.Fatal("no error")
		}
		calls(9)
		f.err = nil
		if _, err := authenticate(a, "token-y"); err != nil {
			t.Fatal(err)
		}
		calls(10)
	})
}

func TestOneReviewForMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &tokens{err: apierrors.NewInternalError(errors.New("away"))}
		a := server.NewAuthenticator(server.AuthnConfig{Tokens: f})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := authenticate(a, "token-x"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // all requests wait for the second try of the shared call
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		wg.Wait()
		if f.calls != 2 {
			t.Errorf("%d reviews, want 2", f.calls)
		}
	})
}

// If the caller that makes the shared call goes away, the other callers still get an answer.
func TestSharedReviewSurvivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &tokens{err: apierrors.NewInternalError(errors.New("away"))}
		a := server.NewAuthenticator(server.AuthnConfig{Tokens: f})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			r := httptest.NewRequest("GET", "/pods", nil).WithContext(ctx)
			r.Header.Set("Authorization", "Bearer token-x")
			if _, err := a.Authenticate(r); !errors.Is(err, context.Canceled) {
				t.Errorf("first: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if u, err := authenticate(a, "token-x"); err != nil || u.Username != "x" {
				t.Errorf("second: %v %v", u, err)
			}
		})
		synctest.Wait()
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		cancel()
		wg.Wait()
	})
}

func TestAnswersAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &access{rules: map[string][]string{"x": {"get pods"}}}
		a := server.NewAuthorizer(server.AuthzConfig{Access: f})
		ask := func(sub string, allowed bool, calls int) {
			t.Helper()
			got, err := a.Authorize(t.Context(), server.Attributes{
				User: &authnv1.UserInfo{Username: "x"}, Verb: "get", Node: "n1", Subresource: sub,
			})
			if err != nil || got != allowed || len(f.asked) != calls {
				t.Fatalf("allowed %v, %d reviews, %v; want %v, %d", got, len(f.asked), err, allowed, calls)
			}
		}
		ask("pods", true, 1)
		ask("proxy", false, 2)
		ask("pods", true, 2)
		ask("proxy", false, 2)
		time.Sleep(31 * time.Second) // "authorization.webhook.cacheUnauthorizedTTL" 30s
		ask("proxy", false, 3)
		ask("pods", true, 3)
		time.Sleep(4 * time.Minute)
		ask("pods", true, 3)
		time.Sleep(time.Minute) // "authorization.webhook.cacheAuthorizedTTL" 5m
		ask("pods", true, 4)
	})
}
