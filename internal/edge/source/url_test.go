package source

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The headers of staticPodURLHeader may be credentials: only the server that the configuration names gets these headers.
func TestURLSendsItsHeadersToNoOtherHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, to string
		secrets  bool // whether the request after the redirect has the headers
	}{
		{"same host", "https://host/other", true},
		{"same host, relative", "/other", true},
		{"another host", "https://elsewhere/pods", false},
		{"another port", "https://host:8443/pods", false},
		{"without TLS", "http://host/pods", false},
		{"a host below", "https://sub.host/pods", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []*http.Request
			u := &URL{
				Config: (&wanted{}).config(), URL: "https://user:word@host/pods?token=secret", Period: time.Hour,
				Header: map[string][]string{"x-key": {"secret"}, "Authorization": {"Bearer secret"}},
				Transport: server(func(r *http.Request) (*http.Response, error) {
					got = append(got, r)
					if len(got) > 1 {
						return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
					}
					return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {c.to}}, Body: http.NoBody, Request: r}, nil
				}),
			}
			go func() { _ = u.Run(t.Context()) }()
			synctest.Wait()
			if len(got) != 2 {
				t.Fatalf("%s: %d requests, want 2", c.name, len(got))
			}
			if got[0].Header.Get("X-Key") != "secret" || got[0].Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("%s: the first request has %v", c.name, got[0].Header)
			}
			if has := got[1].Header.Get("X-Key") == "secret"; has != c.secrets {
				t.Errorf("%s: the second request has the header: %t, want %t", c.name, has, c.secrets)
			}
			for name, values := range got[1].Header {
				if !c.secrets && (strings.Contains(strings.Join(values, " "), "secret") || name == "Authorization") {
					t.Errorf("%s: the other server receives %s: %v", c.name, name, values)
				}
			}
		})
	}
}

// Endless redirects are an error, not a loop.
func TestURLFollowsFewRedirects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		u := &URL{Config: (&wanted{}).config(), URL: "https://host/", Period: time.Hour, Transport: server(func(r *http.Request) (*http.Response, error) {
			n++
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"/"}}, Body: http.NoBody, Request: r}, nil
		})}
		go func() { _ = u.Run(t.Context()) }()
		synctest.Wait()
		if n != maxRedirects+1 {
			t.Errorf("%d requests, want %d", n, maxRedirects+1)
		}
	})
}
