package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/singleflight"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// AlwaysAllow is authorization.mode AlwaysAllow: every authenticated user may do everything.
type AlwaysAllow struct{}

// Authorize returns true for every request.
func (AlwaysAllow) Authorize(context.Context, Attributes) (bool, error) { return true, nil }

// AccessReviewer creates SubjectAccessReviews; client-go's AuthorizationV1().SubjectAccessReviews() is one.
type AccessReviewer interface {
	Create(ctx context.Context, r *authzv1.SubjectAccessReview, o metav1.CreateOptions) (*authzv1.SubjectAccessReview, error)
}

// AuthzConfig is authorization.mode Webhook: the API server decides.
type AuthzConfig struct {
	Access AccessReviewer
	// Reviews bounds how many requests wait for a review; nil: a new Reviews with the default bound.
	Reviews *Reviews
	// AllowedTTL and DeniedTTL are how long an answer is cached; zero: 5 minutes and 30 seconds.
	AllowedTTL, DeniedTTL time.Duration
}

// These constants bound the cache of the API server's answers: how many answers it holds, and how many bytes the key of
// an answer may have.
const (
	rememberAnswers = 8192
	maxQuestion     = 10_000
)

// authz is the Authorizer of the mode Webhook. It asks the API server and caches the answers.
type authz struct {
	cfg   AuthzConfig
	seen  *cache.LRUExpireCache
	calls singleflight.Group
}

// NewAuthorizer returns the Authorizer that asks the API server by SubjectAccessReview.
func NewAuthorizer(cfg AuthzConfig) Authorizer {
	if cfg.AllowedTTL == 0 {
		cfg.AllowedTTL = 5 * time.Minute
	}
	if cfg.Reviews == nil {
		cfg.Reviews = NewReviews(0)
	}
	if cfg.DeniedTTL == 0 {
		cfg.DeniedTTL = 30 * time.Second
	}
	return &authz{cfg: cfg, seen: cache.NewLRUExpireCache(rememberAnswers)}
}

func (a *authz) Authorize(ctx context.Context, at Attributes) (bool, error) {
	spec := authzv1.SubjectAccessReviewSpec{
		User: at.User.Username, UID: at.User.UID, Groups: at.User.Groups,
		ResourceAttributes: &authzv1.ResourceAttributes{
			Verb: at.Verb, Version: "v1", Resource: "nodes", Subresource: at.Subresource, Name: at.Node,
		},
	}
	for k, v := range at.User.Extra {
		if spec.Extra == nil {
			spec.Extra = make(map[string]authzv1.ExtraValue, len(at.User.Extra))
		}
		spec.Extra[k] = authzv1.ExtraValue(v)
	}
	question, err := json.Marshal(&spec)
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	key := string(question)
	if v, ok := a.seen.Get(key); ok {
		allowed, _ := v.(bool)
		return allowed, nil
	}
	leave, err := a.cfg.Reviews.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	v, err := share(ctx, &a.calls, key, func(ctx context.Context) (any, error) {
		var got *authzv1.SubjectAccessReview
		err := retry(ctx, func(ctx context.Context) (err error) {
			got, err = a.cfg.Access.Create(ctx, &authzv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("review access: %w", err)
		}
		allowed := got.Status.Allowed && !got.Status.Denied
		if len(key) <= maxQuestion {
			ttl := a.cfg.DeniedTTL
			if allowed {
				ttl = a.cfg.AllowedTTL
			}
			a.seen.Add(key, allowed, ttl)
		}
		return allowed, nil
	})
	if err != nil {
		return false, err
	}
	allowed, _ := v.(bool)
	return allowed, nil
}

// share makes one call for all concurrent callers with the same key. The call runs with the context of the caller that
// began it. If that context ends, another caller begins the call again.
func share(ctx context.Context, g *singleflight.Group, key string, f func(context.Context) (any, error)) (any, error) {
	for {
		mine := false
		v, err, _ := g.Do(key, func() (any, error) {
			mine = true
			ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
			defer cancel()
			return f(ctx)
		})
		if err == nil || mine || ctx.Err() != nil || !errors.Is(err, context.Canceled) {
			return v, err
		}
	}
}

// retry calls f up to five times while the error of f is temporary. It waits 0.5 s to 1.7 s between the
// calls, or longer if the API server asks for that.
func retry(ctx context.Context, f func(context.Context) error) error {
	wait := 500 * time.Millisecond
	for n := 1; ; n++ {
		err := f(ctx)
		if err == nil || n == 5 || !passing(err) {
			return err
		}
		d := wait + time.Duration(rand.Int64N(int64(wait/5)))
		if s, ok := apierrors.SuggestsClientDelay(err); ok {
			d = max(d, time.Duration(s)*time.Second)
		}
		t := time.NewTimer(d)
		select {
		case <-ctx.Done():
			t.Stop()
			return errors.Join(err, ctx.Err())
		case <-t.C:
		}
		wait = wait * 3 / 2
	}
}

// passing reports whether an error is temporary, so that the next call to the API server may succeed.
func passing(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
