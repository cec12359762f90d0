package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
	authnv1 "k8s.io/api/authentication/v1"
)

// Authenticator finds out which user makes a request. It is called for each request, concurrently.
type Authenticator interface {
	// Authenticate returns nil and no error if the request has no credentials and anonymous requests are not allowed.
	// It returns an error for bad credentials. It removes a bearer token from the request once it has accepted it.
	Authenticate(r *http.Request) (*authnv1.UserInfo, error)
}

// Authorizer decides what a user may do. It is called concurrently, once or twice for each request.
type Authorizer interface {
	// Authorize returns an error only if it cannot decide.
	Authorize(ctx context.Context, a Attributes) (allowed bool, err error)
}

// Attributes describes an access to a subresource of the node, as a SubjectAccessReview needs it.
type Attributes struct {
	User        *authnv1.UserInfo
	Verb        string // verb of the API, such as get; "": the HTTP method has none
	Node        string
	Subresource string
}

// guard passes only authorised requests on to next. It decides by the path of a request, so a path without a handler is guarded too:
// it needs the right to nodes/proxy.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(withPeer(r.Context(), r.RemoteAddr))
		user, err := s.cfg.Authenticator.Authenticate(r)
		if errors.Is(err, errBusy) {
			busy(w, err)
			return
		}
		if err != nil || user == nil {
			if err != nil {
				s.strangers.log(s.cfg.Log, r, err)
			}
			s.refuse(w, r, http.StatusUnauthorized, "", "Unauthorized")
			return
		}
		if crossOrigin(r) {
			deny(w, http.StatusForbidden, "Forbidden: the request is of a browser's page from another origin\n")
			return
		}
		a := Attributes{User: user, Verb: verb(r.Method), Node: s.cfg.NodeName}
		subs := subresources(r.Method, r.URL.Path)
		if !s.allowed(w, r, a, subs) {
			return
		}
		if s.needsCreate(r) {
			a.Verb = verb(http.MethodPost)
			if !s.allowed(w, r, a, []string{"proxy"}) {
				return
			}
		}
		known(r.Context())
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), grantKey{}, grant{a, subs})))
	})
}

// allowed reports whether a user has the verb on one of the subresources. If not, allowed answers the request with an error.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request, a Attributes, subs []string) bool {
	for _, a.Subresource = range subs {
		allowed, err := s.cfg.Authorizer.Authorize(r.Context(), a)
		switch {
		case errors.Is(err, errBusy):
			busy(w, err)
			return false
		case err != nil:
			s.cfg.Log.Warn("authorization failed", "user", a.User.Username, "verb", a.Verb, "subresource", a.Subresource, "err", err)
			deny(w, http.StatusInternalServerError, fmt.Sprintf(
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", a.User.Username, a.Verb, a.Subresource))
			return false
		case allowed:
			return true
		}
	}
	s.refuse(w, r, http.StatusForbidden, a.User.Username, fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", a.User.Username, a.Verb, subs))
	return false
}

// refuse denies a request. A browser that wants to see the console gets a page that says what its user needs.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, user, text string) {
	if page := s.cfg.Sources.ConsoleRefused; page != nil && root(r.URL.Path) == "console" && r.Method == http.MethodGet &&
		strings.Contains(r.Header.Get("Accept"), "text/html") {
		page(w, status, s.cfg.NodeName, user)
		return
	}
	deny(w, status, text)
}

// needsCreate reports whether a request runs something in a container by a method other than POST: WebSocket clients use GET. Without
// this check, the right to read through nodes/proxy would be the right to run commands in every container.
func (s *Server) needsCreate(r *http.Request) bool {
	if s.cfg.StreamingByGet || r.Method == http.MethodPost {
		return false
	}
	switch root(r.URL.Path) {
	case "exec", "attach", "run", "portForward":
		return true
	}
	return false
}

// busy answers that too many requests wait for the API server.
func busy(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	deny(w, http.StatusTooManyRequests, err.Error()+"; try again in a second\n")
}

// These constants limit the log lines about bad credentials, because any client can send as many bad requests as it likes.
const (
	strangersPerSecond = 1
	strangersAtOnce    = 20
	maxStrangersText   = 256
)

// strangers logs requests that failed to authenticate. If they are many, it logs only some of them.
type strangers struct {
	limit  *rate.Limiter
	silent atomic.Int64
}

func newStrangers() *strangers {
	return &strangers{limit: rate.NewLimiter(strangersPerSecond, strangersAtOnce)}
}

func (t *strangers) log(log *slog.Logger, r *http.Request, err error) {
	if !t.limit.Allow() {
		t.silent.Add(1)
		return
	}
	log.Info("unable to authenticate the request", "path", clip(r.URL.Path), "remote", r.RemoteAddr, "err", clip(err.Error()), "alsoNotLogged", t.silent.Swap(0))
}

func clip(s string) string {
	if len(s) > maxStrangersText {
		return strings.ToValidUTF8(s[:maxStrangersText], "") + "..."
	}
	return s
}

// deny answers with exactly this text, because clients compare it; http.Error would add a newline.
func deny(w http.ResponseWriter, status int, text string) {
	writeText(w)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // an error means that the client is gone
}

// verb returns the verb of the API (get, create, ...) for an HTTP method; "": the method has none.
func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// subresources lists the subresources of nodes that a request may use. The right to any one of these subresources is enough. Specific
// subresources, such as nodes/log, come before nodes/proxy. Source: "Kubelet authentication/authorization" of the Kubernetes
// documentation.
func subresources(method, path string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "pods", "runningpods":
		if method != http.MethodGet && method != http.MethodHead { // a client that can push pods can do anything on the node
			return []string{"proxy"}
		}
		return []string{"pods", "proxy"}
	case "healthz", "configz", "console":
		return []string{first, "proxy"}
	case "stats", "metrics", "checkpoint", "statusz":
		return []string{first}
	case "logs":
		return []string{"log"}
	case "flagz":
		return []string{"configz"}
	}
	return []string{"proxy"}
}
