package objects

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/base/rounds"
)

// These constants say when a token is renewed: "The kubelet proactively requests rotation for the token if it is older than 80% of its
// total time-to-live (TTL), or if the token is older than 24 hours."
const (
	renewAt     = 0.8
	renewWithin = 24 * time.Hour
	// A renewal comes early by up to renewJitter, a share of the token's life, so that pods started together do not renew together.
	renewJitter = 0.05
	// After a failed renewal, the next try waits for renewRetry.
	renewRetry = 30 * time.Second
	// If there is no token to renew, remind checks again after idleReminder. If there are pods, it checks after jumpReminder, because no timer runs while the
	// machine sleeps, and somebody may set the clock.
	idleReminder = time.Hour
	jumpReminder = time.Minute
	// setBack is by how much the clock may be set back before tokens are renewed: an API server whose clock is set back, too, takes a token of a minute later.
	setBack = time.Minute
	// askWithin is how long a request for a token or a certificate may take, including its wait for the limit of the node's requests. A request
	// whose turn would come later fails at once and takes no turn, so these requests never occupy the turns of more than this time. It is not
	// shorter, because after a restart of the agent the tokens of all pods wait behind the lists of all objects.
	askWithin = 30 * time.Second
)

// tokenKey identifies a token of a pod. A token is bound to its pod, so pods never share one.
type tokenKey struct {
	serviceAccount string
	audience       string
	seconds        int64 // requested lifetime; 0: the pod names none
}

// token is a granted token. Its times are on the node's clock, counted from the moment the token arrived, because the
// server's clock may differ.
type token struct {
	value string
	renew time.Time     // when to request a new token, or to try again
	left  time.Duration // how long the token is still valid after renew
}

// expires returns when the token stops being valid.
func (t *token) expires() time.Time { return t.renew.Add(t.left) }

// due reports whether it is time to request a new token. Before that much time has passed, it also is when the clock shows that time: the machine has slept, in
// which no time passes for a process, or its clock was set. And it is when the clock was set back so that the token may seem to be issued in the future.
func (t *token) due(now time.Time) bool {
	return !now.Before(t.renew) || !now.Round(0).Before(t.renew.Round(0)) || jump(t.renew, now) < -setBack
}

// jump returns how far the clock has gone ahead between two times beyond the time that has passed; negative: it was set back.
func jump(from, to time.Time) time.Duration { return to.Round(0).Sub(from.Round(0)) - to.Sub(from) }

// tokens caches service account tokens.
type tokens struct {
	accounts func(namespace string) ServiceAccounts
	log      *slog.Logger
	changed  func()
	expires  func(p *v1.Pod, serviceAccount string, expired time.Time)

	mu sync.Mutex
	// offline makes get return the token that the pod has, even if it has expired, instead of requesting a new one.
	offline bool
	// pods holds the tokens of each tracked pod; nil for a pod without tokens. Tokens of other pods are not kept. Most pods have
	// one token, so they form a linked list instead of a map.
	pods map[types.UID]*heldToken
	next time.Time // when round will check again; zero: it has not checked yet

	rounds *rounds.Rounds
	notify func(types.UID) // set by remind before the first call of round
	since  time.Time       // when round last checked; only remind and round use it
	// The function also returns further pods to notify, such as those with a certificate that is due for renewal, and the time of the next
	// check, which is not after next.
	also func(since, now, next time.Time) (uids []types.UID, at time.Time)
}

// heldToken is a token and the request for which it was granted. It is an element of the list of the pod's tokens; next is the next
// element.
type heldToken struct {
	tokenKey
	token
	next *heldToken
}

func newTokens(cfg Config) *tokens {
	t := &tokens{
		accounts: cfg.API.ServiceAccounts, log: cfg.Log, changed: cfg.Changed, expires: cfg.Expired, pods: map[types.UID]*heldToken{},
		also: func(_, _, next time.Time) ([]types.UID, time.Time) { return nil, next },
	}
	t.rounds = rounds.New(t.round)
	return t
}

func (t *tokens) track(p *v1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.pods[p.UID]; !ok {
		t.pods[p.UID] = nil
	}
}

func (t *tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, uid)
}

// keep stores a token if its pod is still tracked. The lock is held.
func (t *tokens) keep(uid types.UID, k tokenKey, granted token) {
	first, ok := t.pods[uid]
	if !ok {
		return
	}
	if h := first.of(k); h != nil {
		h.token = granted
	} else {
		t.pods[uid] = &heldToken{k, granted, first}
	}
	if granted.renew.Before(t.next) {
		t.rounds.Wake()
	}
}

// of returns the element of the list whose request is k, or nil.
func (h *heldToken) of(k tokenKey) *heldToken {
	for h != nil && h.tokenKey != k {
		h = h.next
	}
	return h
}

// has returns the stored token for a request, or the zero value. The lock is held.
func (t *tokens) has(uid types.UID, k tokenKey) token {
	if h := t.pods[uid].of(k); h != nil {
		return h.token
	}
	return token{}
}

// remind notifies a pod once for each of its tokens that becomes due for renewal, until ctx ends. It returns at once; join waits for
// the end. Without this notification, nothing would make the workers of most pods read the token again before it expires. All pods share
// one timer.
func (t *tokens) remind(ctx context.Context, notify func(types.UID)) (join func()) {
	t.notify, t.since = notify, time.Now()
	return t.rounds.Begin(ctx)
}

// round notifies the pods whose tokens have become due, and returns the time until the next check.
func (t *tokens) round(context.Context) time.Duration {
	uids, now, next := t.dueSince(t.since)
	more, next := t.also(t.since, now, next)
	for _, uid := range append(uids, more...) {
		t.notify(uid)
	}
	t.since = now
	return max(0, time.Until(next))
}

// dueSince lists the pods with a token that became due for renewal after the time since, but not after the current time now. It also
// returns when the next token will be due.
func (t *tokens) dueSince(since time.Time) (uids []types.UID, now, next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = time.Now()
	t.next = now.Add(idleReminder)
	if len(t.pods) > 0 {
		t.next = now.Add(jumpReminder)
	}
	for uid, h := range t.pods {
		due := false
		for ; h != nil; h = h.next {
			switch {
			case h.due(now):
				due = due || !h.due(since)
			case h.renew.Before(t.next):
				t.next = h.renew
			}
		}
		if due {
			uids = append(uids, uid)
		}
	}
	return uids, now, t.next
}

func (t *tokens) get(ctx context.Context, p *v1.Pod, audience string, seconds *int64) (string, time.Time, error) {
	k := tokenKey{serviceAccount: p.Spec.ServiceAccountName, audience: audience}
	if seconds != nil {
		k.seconds = *seconds
	}
	if k.serviceAccount == "" {
		k.serviceAccount = "default"
	}
	now := time.Now()
	t.mu.Lock()
	held, offline := t.has(p.UID, k), t.offline
	t.mu.Unlock()
	if held.value != "" && !held.due(now) {
		return held.value, held.expires(), nil
	}
	if offline { // send no request, because it may hang
		return t.lastKnown(p, k, held)
	}

	fresh, err := t.request(ctx, p, k, seconds)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.keep(p.UID, k, fresh)
		t.changed()
		return fresh.value, fresh.expires(), nil
	}
	if time.Now().Before(held.expires()) {
		t.log.Warn("cannot renew service account token, keeping the old one", "pod", p.Namespace+"/"+p.Name,
			"serviceAccount", k.serviceAccount, "expires", held.expires(), "err", err)
		again := time.Now().Add(renewRetry + rand.N(renewRetry))
		t.keep(p.UID, k, token{value: held.value, renew: again, left: held.expires().Sub(again)})
		return held.value, held.expires(), nil
	}
	if held.value != "" {
		return "", time.Time{}, fmt.Errorf("token expired at %s and renewal failed: %w", held.expires().Format(time.RFC3339), err)
	}
	return "", time.Time{}, err
}

// request requests a token. A refusal in the first moments may only mean that the API server's authorizer does not know
// yet that the pod is bound to this node, so request tries again.
func (t *tokens) request(ctx context.Context, p *v1.Pod, k tokenKey, seconds *int64) (token, error) {
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
	}}
	if k.audience != "" {
		req.Spec.Audiences = []string{k.audience}
	}
	var fresh token
	err := insist(ctx, func(ctx context.Context) error {
		got, err := t.accounts(p.Namespace).CreateToken(ctx, k.serviceAccount, req, metav1.CreateOptions{})
		if err == nil {
			fresh, err = granted(got, time.Now())
		}
		return err
	})
	if err != nil {
		return token{}, fmt.Errorf("request token: %w", err)
	}
	return fresh, nil
}

// insist makes a request for a token or a certificate, and makes it again while its error may not last: see kubeclient.Insist. Another such error is
// that the API server does not know the pod yet. The context of ask ends after askWithin, which includes all tries.
func insist(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return kubeclient.Insist(ctx, func() error { return ask(ctx) }, podNotFound)
}

// podNotFound reports whether the error says that the API server does not know the token's pod. That can happen although the watch
// has already sent the pod to this node. The next try may succeed.
func podNotFound(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	kind := status.Status().Details.Kind
	return kind == "pod" || kind == "pods"
}

// granted computes when to renew a token and when it really expires. The two need not agree: an API server may grant a
// token that is valid for a year and ask, by its status, for a renewal within the hour.
func granted(got *authenticationv1.TokenRequest, now time.Time) (token, error) {
	if got.Status.Token == "" {
		return token{}, errors.New("the API server returned an empty token")
	}
	asked := time.Duration(0)
	if s := got.Spec.ExpirationSeconds; s != nil {
		asked = time.Duration(*s) * time.Second
	} else if e := got.Status.ExpirationTimestamp; !e.IsZero() {
		asked = e.Sub(now)
	}
	valid := lifetime(got.Status.Token)
	switch {
	case valid <= 0:
		valid = asked
	case asked <= 0 || asked > valid:
		asked = valid
	}
	if valid <= 0 {
		return token{}, errors.New("the API server granted a token without an expiry")
	}
	after := min(time.Duration(float64(asked)*renewAt), renewWithin)
	after -= rand.N(max(time.Duration(float64(after)*renewJitter), 1))
	return token{value: got.Status.Token, renew: now.Add(after), left: valid - after}, nil
}

// lifetime returns how long a JSON web token is valid from its issue (exp - iat), or 0 if the token does not say.
func lifetime(jwt string) time.Duration {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return 0
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0
	}
	var claims struct {
		Exp float64 `json:"exp"`
		Iat float64 `json:"iat"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Iat <= 0 || claims.Exp <= claims.Iat || claims.Exp > 1<<33 {
		return 0
	}
	return time.Duration(claims.Exp-claims.Iat) * time.Second
}
