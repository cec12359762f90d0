package server

import (
	"net/http"
	"net/url"
	"strings"
)

// crossOrigin reports a request that a browser may have made for a page of another site. A browser sends a TLS client
// certificate by itself, so a page that its user visits could run commands here with the user's rights. Requests that
// change something, and streams, are such where they have a certificate and an Origin that is not this server's.
//
// Let through: no Origin (no browser); a token instead of a certificate (a browser sends none by itself); and what comes
// through a proxy that says so by X-Forwarded-For, as the API server does for browsers of its own clients. No page can make
// a browser send that header over a WebSocket or without asking first (CORS), and such a question is refused here.
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
