package server

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
)

// TokenReviewer creates TokenReviews; client-go's AuthenticationV1().TokenReviews() is one.
type TokenReviewer interface {
	Create(ctx context.Context, r *authnv1.TokenReview, o metav1.CreateOptions) (*authnv1.TokenReview, error)
}

// AuthnConfig says which credentials are accepted: KubeletConfiguration.authentication.
type AuthnConfig struct {
	// ClientCAs are the authorities of client certificates; nil: no certificate is accepted.
	ClientCAs *ClientCAs
	// Tokens reviews bearer tokens; nil: no token is accepted.
	Tokens TokenReviewer
	// TokenTTL is how long the result of a review is cached; zero: 2 minutes.
	TokenTTL time.Duration
	// Reviews bounds how many requests wait for a review; nil: a new Reviews with the default bound.
	Reviews *Reviews
	// Anonymous lets requests without credentials in as system:anonymous.
	Anonymous bool
}

// These constants limit the number of tokens in the cache, how long a refusal is cached, and the time for one review.
const (
	rememberTokens = 4096
	rememberDenied = 10 * time.Second // short, because the token may become valid soon
	maxToken       = 64 << 10
	reviewTimeout  = 10 * time.Second
)

// errToken is the answer to a token that the API server does not know.
var errToken = errors.New("invalid bearer token")

// authn authenticates by client certificate, then by bearer token. A request without credentials is anonymous if the configuration
// allows anonymous requests.
type authn struct {
	cfg   AuthnConfig
	key   []byte // the key of the hash with which tokens are stored in the cache, so that the cache holds no tokens
	seen  *cache.LRUExpireCache
	calls singleflight.Group
}

// NewAuthenticator returns a node's Authenticator.
func NewAuthenticator(cfg AuthnConfig) Authenticator {
	if cfg.TokenTTL == 0 {
		cfg.TokenTTL = 2 * time.Minute
	}
	if cfg.Reviews == nil {
		cfg.Reviews = NewReviews(0)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return &authn{cfg: cfg, key: key, seen: cache.NewLRUExpireCache(rememberTokens)}
}

func (a *authn) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	user, certErr := a.certificate(r)
	if user != nil {
		return user, nil
	}
	user, err := a.token(r)
	if user != nil {
		return user, nil
	}
	if err := errors.Join(certErr, err); err != nil {
		return nil, err
	}
	if a.cfg.Anonymous {
		return &authnv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, nil
	}
	return nil, nil
}

// certificate authenticates by the client certificate: its common name is the user, its organisations the groups.
func (a *authn) certificate(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.ClientCAs == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	o := x509.VerifyOptions{
		Roots:         a.cfg.ClientCAs.Pool(),
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range r.TLS.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(o); err != nil {
		return nil, fmt.Errorf("verify client certificate (CN=%q, serial=%s): %w", leaf.Subject.CommonName, leaf.SerialNumber, err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	print := sha256.Sum256(leaf.Raw)
	return authenticated(&authnv1.UserInfo{
		Username: leaf.Subject.CommonName,
		Groups:   slices.Clone(leaf.Subject.Organization),
		Extra: map[string]authnv1.ExtraValue{
			"authentication.kubernetes.io/credential-id": {"X509SHA256=" + hex.EncodeToString(print[:])},
		},
	}), nil
}

// token authenticates by a bearer token from the header or, for browsers, from a WebSocket subprotocol.
func (a *authn) token(r *http.Request) (*authnv1.UserInfo, error) {
	if a.cfg.Tokens == nil {
		return nil, nil
	}
	token, strip, err := bearer(r)
	if token == "" || err != nil {
		return nil, err
	}
	user, err := a.review(r.Context(), token)
	if err != nil {
		return nil, err
	}
	strip()
	return user, nil
}

// review returns the cached answer, or asks the API server. Concurrent requests with the same token share one call.
func (a *authn) review(ctx context.Context, token string) (*authnv1.UserInfo, error) {
	if len(token) > maxToken {
		return nil, errToken
	}
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte(token))
	key := string(mac.Sum(nil))
	if v, ok := a.seen.Get(key); ok {
		user, _ := v.(*authnv1.UserInfo)
		return remembered(user)
	}
	leave, err := a.cfg.Reviews.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	v, err := share(ctx, &a.calls, key, func(ctx context.Context) (any, error) {
		var got *authnv1.TokenReview
		err := retry(ctx, func(ctx context.Context) (err error) {
			got, err = a.cfg.Tokens.Create(ctx, &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("review token: %w", err)
		}
		if !got.Status.Authenticated {
			a.seen.Add(key, (*authnv1.UserInfo)(nil), min(rememberDenied, a.cfg.TokenTTL))
			return (*authnv1.UserInfo)(nil), nil
		}
		user := authenticated(&got.Status.User)
		a.seen.Add(key, user, a.cfg.TokenTTL)
		return user, nil
	})
	if err != nil {
		return nil, err
	}
	user, _ := v.(*authnv1.UserInfo)
	return remembered(user)
}

func remembered(user *authnv1.UserInfo) (*authnv1.UserInfo, error) {
	if user == nil {
		return nil, errToken
	}
	return user, nil
}

// authenticated adds the group system:authenticated to a user who has it not yet. The user system:anonymous does not get it.
func authenticated(u *authnv1.UserInfo) *authnv1.UserInfo {
	if u.Username != "system:anonymous" && !slices.Contains(u.Groups, "system:authenticated") &&
		!slices.Contains(u.Groups, "system:unauthenticated") {
		u.Groups = append(slices.Clone(u.Groups), "system:authenticated")
	}
	return u
}

// protocolToken is the prefix of a WebSocket subprotocol that carries a token, because browsers cannot set headers.
const protocolToken = "base64url.bearer.authorization.k8s.io."

// bearer finds the token of a request; "" means that the request has none. The function strip removes the token from the request, so
// that the runtime does not get the token.
func bearer(r *http.Request) (token string, strip func(), err error) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "bearer") && rest != "" {
		return rest, func() { r.Header.Del("Authorization") }, nil
	}
	if !isWebSocket(r) {
		return "", nil, nil
	}
	var others []string
	for _, p := range subprotocols(r) {
		encoded, ok := strings.CutPrefix(p, protocolToken)
		switch {
		case !ok:
			others = append(others, p)
		case token != "":
			return "", nil, errors.New("Sec-WebSocket-Protocol has more than one bearer token")
		default:
			b, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || len(b) == 0 {
				return "", nil, errors.New("Sec-WebSocket-Protocol has a bearer token that is not base64url without padding")
			}
			token = string(b)
		}
	}
	if token != "" && len(others) == 0 {
		return "", nil, errors.New("Sec-WebSocket-Protocol has a bearer token and no other protocol")
	}
	return token, func() { r.Header.Set("Sec-Websocket-Protocol", strings.Join(others, ",")) }, nil
}
