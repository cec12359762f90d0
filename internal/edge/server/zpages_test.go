package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// /flagz and /statusz answer with text, or with objects of config.k8s.io for clients that accept them. The feature
// gates ComponentFlagz and ComponentStatusz turn them off, and so does enableDebuggingHandlers: false.
func TestZPages(t *testing.T) {
	t.Parallel()
	pages := func(debugging, flagz, statusz bool) *bench {
		return newBench(t, func(c *server.Config, _ *bench) {
			c.Enable = server.Enable{Debugging: debugging, Flagz: flagz, Statusz: statusz}
			c.Sources = server.Sources{
				Flags: func() map[string]string { return map[string]string{"v": "2"} }, Version: "v1.36.3", Started: time.Now().Add(-time.Hour),
			}
		})
	}
	b := pages(true, true, true)
	const group = ";g=config.k8s.io;v=v1beta1;as="
	for _, c := range []struct {
		path, accept string
		status       int
		contains     string
	}{
		{"/flagz", "", 200, "\nv=2\n"},
		{"/flagz", "text/html, */*;q=0.5", 200, "\nv=2\n"},
		{"/flagz", "application/json", 406, "as=Flagz"},
		{"/flagz", "application/json" + group + "Statusz", 406, ""},
		{"/flagz", "application/json;g=config.k8s.io;v=v9;as=Flagz", 406, ""},
		{"/flagz", "application/json" + group + "Flagz", 200, `{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"},"flags":{"v":"2"}}`},
		{"/flagz", "application/yaml" + group + "Flagz", 200, "kind: Flagz\n"},
		{"/flagz", "application/json" + group + "Flagz, text/plain", 200, `"kind":"Flagz"`},
		{"/statusz", "", 200, "\nUp: 1 hr 00 min 0"},
		{"/statusz", "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz", 200, `"apiVersion":"config.k8s.io/v1alpha1"`},
		{"/statusz", "text/plain;as=Statusz", 406, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+c.path, nil)
		must(t, err)
		if c.accept != "" {
			req.Header.Set("Accept", c.accept)
		}
		got := b.send(b.client(nil, "token-admin"), req)
		if got.status != c.status || !strings.Contains(got.body, c.contains) {
			t.Errorf("%s for %q: %d %q, want %d %q", c.path, c.accept, got.status, got.body, c.status, c.contains)
		}
		if old := strings.Contains(c.accept, "v1alpha1"); (got.header.Get("Warning") != "") != old {
			t.Errorf("%s for %q: warning %q", c.path, c.accept, got.header.Get("Warning"))
		}
		if c.path == "/statusz" && strings.HasPrefix(got.body, "{") {
			var z struct {
				UptimeSeconds int64
				BinaryVersion string
				Paths         []string
			}
			must(t, json.Unmarshal([]byte(got.body), &z))
			if z.UptimeSeconds < 3600 || z.BinaryVersion != "1.36.3" || !slices.Contains(z.Paths, "/flagz") || !slices.Contains(z.Paths, "/healthz") {
				t.Errorf("statusz: %+v", z)
			}
		}
	}
	for what, off := range map[string]*bench{
		"ComponentFlagz=false,ComponentStatusz=false": pages(true, false, false), "enableDebuggingHandlers: false": pages(false, true, true),
	} {
		for _, path := range []string{"/flagz", "/statusz"} {
			if got := off.get(path); got.status != http.StatusNotFound {
				t.Errorf("%s with %s: %d", path, what, got.status)
			}
		}
	}
}
