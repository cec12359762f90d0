package source

import (
	"context"
	"io"
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

// A first answer with a wrong manifest is an answer, in doubt: without it, the node would neither end deleted pods nor evict pods nor remove images
// until somebody corrected the manifest.
func TestURLAnswersWithAWrongManifest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, bodies := &wanted{}, []string{podText("a", "i:1") + "---\nkind: Pod\n", podText("a", "i:1") + "---\n" + podText("b", "i:1")}
		n := 0
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		u := &URL{Config: w.config(), URL: "https://host/", Period: 20 * time.Second, Transport: server(func(r *http.Request) (*http.Response, error) {
			n++
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(bodies[min(n, len(bodies))-1])), Request: r}, nil
		})}
		go func() { ended <- u.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		w.expect(t, "one of two is wrong", "a-n i:1")
		if answered, doubt, wrongs := w.state(); !answered || !doubt || len(wrongs) != 1 {
			t.Errorf("answered %t, in doubt %t, reported %q", answered, doubt, wrongs)
		}
		nextLook()
		w.expect(t, "corrected", "a-n i:1", "b-n i:1")
		if _, doubt, _ := w.state(); doubt {
			t.Error("the source is in doubt although its manifest is correct")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
