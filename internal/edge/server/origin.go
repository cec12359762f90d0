package server

import (
	"net/http"
	"net/url"
	"strings"
)

// crossOrigin reports whether a browser may have made a request for a page of another site. A browser sends a TLS
// client certificate by itself, so a page that its user visits could run commands here with the user's rights. That
// concerns requests that change something, and streams, if they come with a certificate and an Origin that is not this
// server's.
//
// Three kinds of requests pass: those without an Origin, because they come from no browser; those with a token instead
// of a certificate, because a browser sends no token by itself; and those from a proxy that sets X-Forwarded-For, as
// the API server does for the browsers of its own clients. No page can make a browser send that header over a
// WebSocket, or without a CORS preflight request, which this server refuses.
func crossOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.Header.Get("X-Forwarded-For") != "" {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		if !isUpgrade(r) {
			return false
		}
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}
