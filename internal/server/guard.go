package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
)

// Authenticator says who makes a request. It is called for each request, concurrently.
type Authenticator interface {
	// Authenticate returns nil and no error where the request has no credentials (and nobody may come without), an
	// error where it has bad ones. It removes bearer tokens from the request once it has accepted them.
	Authenticate(r *http.Request) (*authnv1.UserInfo, error)
}

// Authorizer says what a user may do. It is called one to two times for each request, concurrently.
type Authorizer interface {
	// Authorize returns an error only where it cannot tell.
	Authorize(ctx context.Context, a Attributes) (allowed bool, err error)
}

// Attributes is an access to a subresource of the node, as a SubjectAccessReview asks for it.
type Attributes struct {
	User        *authnv1.UserInfo
	Verb        string // empty for methods that have none
	Node        string
	Subresource string
}

// guard lets through to next only those who may. It knows paths, not handlers: a path that nothing serves is
// guarded like any other ("nodes/proxy").
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.cfg.Authenticator.Authenticate(r)
		if err != nil || user == nil {
			if err != nil {
				s.cfg.Log.Info("unable to authenticate the request", "path", r.URL.Path, "remote", r.RemoteAddr, "err", err)
			}
			deny(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		a := Attributes{User: user, Verb: verb(r.Method), Node: s.cfg.NodeName}
		subs := subresources(r.Method, r.URL.Path)
		for _, a.Subresource = range subs {
			allowed, err := s.cfg.Authorizer.Authorize(r.Context(), a)
			if err != nil {
				s.cfg.Log.Warn("authorization failed", "user", user.Username, "verb", a.Verb, "subresource", a.Subresource, "err", err)
				deny(w, http.StatusInternalServerError, fmt.Sprintf(
					"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Username, a.Verb, a.Subresource))
				return
			}
			if allowed {
				next.ServeHTTP(w, r)
				return
			}
		}
		deny(w, http.StatusForbidden, fmt.Sprintf(
			"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user.Username, a.Verb, subs))
	})
}

// deny answers without what http.Error adds: clients compare these texts.
func deny(w http.ResponseWriter, status int, text string) {
	writeText(w)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the client is gone: nothing to tell it
}

// verb is the API's word for a method.
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

// subresources are those of which a user must have one: "The kubelet authorizes API requests using the same
// request attributes approach as the apiserver"; the fine-grained ones are asked for before nodes/proxy.
func subresources(method, path string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "pods", "runningpods":
		if method != http.MethodGet && method != http.MethodHead { // a pod that is pushed may do anything on the node
			return []string{"proxy"}
		}
		return []string{"pods", "proxy"}
	case "healthz", "configz":
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
