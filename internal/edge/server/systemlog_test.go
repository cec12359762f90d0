package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

// A pod that mounts /var/log may put anything there. For anything but a regular file, the client gets an error at once, and never
// a file from outside of /var/log.
func TestSystemLogThatIsNoFile(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	b := newBench(t, func(c *server.Config, _ *bench) { c.Sources.SystemLogDir = logs })
	admin := b.client(nil, "token-admin")
	for i, thing := range plant.Things() {
		if thing.Name == "directory" {
			continue // a directory is served
		}
		t.Run(thing.Name, func(t *testing.T) {
			name := fmt.Sprint("planted-", i)
			thing.Plant(t, filepath.Join(logs, name))
			for _, path := range []string{name, name + "/", name + "/x"} {
				plant.Returns(t, func() {
					got := b.do(admin, "GET", b.url+"/logs/"+path)
					want := http.StatusBadRequest
					if strings.HasSuffix(path, "/x") && !strings.HasPrefix(thing.Name, "link") {
						want = http.StatusInternalServerError // a path below something that is not a directory
					}
					if got.status != want || contains(got.body, "secret") {
						t.Errorf("GET /logs/%s: %d %q, want %d", path, got.status, got.body, want)
					}
					if want == http.StatusBadRequest && !contains(got.body, "cannot be read") {
						t.Errorf("GET /logs/%s does not say why: %q", path, got.body)
					}
				})
			}
		})
	}
}

func TestSystemLogDirectories(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(logs, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(logs, "sub/<b>.log"), []byte("text\n"), 0o600))
	must(t, os.Symlink("sub/<b>.log", filepath.Join(logs, "inside")))
	plant.LinkFarm(t, filepath.Join(logs, "farm"), func(i int) string { return fmt.Sprint(i, ".log") })
	many := filepath.Join(logs, "many")
	must(t, os.Mkdir(many, 0o755))
	must(t, os.WriteFile(filepath.Join(many, "wanted"), []byte("text\n"), 0o600))
	for i := range 10_000 {
		must(t, os.Link(filepath.Join(many, "wanted"), filepath.Join(many, fmt.Sprint(i))))
	}
	b := newBench(t, func(c *server.Config, _ *bench) { c.Sources.SystemLogDir = logs })
	admin := b.client(nil, "token-admin")
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"", 200, `<a href="sub/">sub/</a>`},
		{"sub/", 200, "&lt;b&gt;.log"},
		{"sub/%3Cb%3E.log", 200, "text\n"},
		{"inside", 200, "text\n"},
		{"farm/", 200, "599.log"},
		{"farm/7.log", 200, "secret"}, // the link leads to a file of /var/log, which the reader may read anyway
		{"many/", 400, "the directory has too many entries; ask for a file by its name"},
		{"many/wanted", 200, "text\n"},
		{"%2e%2e/etc/passwd", 404, "404"},
	} {
		if got := b.do(admin, "GET", b.url+"/logs/"+c.path); got.status != c.status || !contains(got.body, c.body) {
			t.Errorf("GET /logs/%s: %d %.200q, want %d %q", c.path, got.status, got.body, c.status, c.body)
		}
	}
}

// A pod that mounts /var/log may put a page there. A browser that shows the page runs no script of it, and gives it an origin of its own.
func TestPagesAmongTheSystemLogsRunNoScripts(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	const page = "<!doctype html><script>fetch('/run/ns/web/main?cmd=id', {method: 'POST'})</script>"
	for _, name := range []string{"page.html", "page.svg", "page"} {
		must(t, os.WriteFile(filepath.Join(logs, name), []byte(page), 0o600))
	}
	for _, query := range []bool{false, true} {
		b := newBench(t, func(c *server.Config, _ *bench) { c.Sources.SystemLogDir, c.Enable.SystemLogQuery = logs, query })
		paths := []string{"", "page.html", "page.svg", "page", "none"}
		if query {
			paths = append(paths, "?query=/page.html", "?query=page")
		}
		for _, path := range paths {
			got := b.get("/logs/" + path)
			if csp, sniff := got.header.Get("Content-Security-Policy"), got.header.Get("X-Content-Type-Options"); csp != "sandbox" || sniff != "nosniff" {
				t.Errorf("GET /logs/%s: %d, Content-Security-Policy %q, X-Content-Type-Options %q", path, got.status, csp, sniff)
			}
		}
	}
}

// A pod may replace its log by something else. The client then gets an answer at once, and never another pod's log.
func TestContainerLogThatIsNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	b := newBench(t, func(_ *server.Config, b *bench) {
		p, o := onePod()
		o.Containers[0].LogPath = path
		b.node.pods = []*v1.Pod{p}
		b.node.observe(o)
	})
	admin := b.client(nil, "token-admin")
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			must(t, os.RemoveAll(path))
			thing.Plant(t, path)
			for query, status := range map[string]int{"": 500, "?tailLines=5": 500, "?follow=true": 200} {
				plant.Returns(t, func() {
					got := b.do(admin, "GET", b.url+"/containerLogs/ns/web/main"+query)
					if got.status != status || !contains(got.body, "not a regular file") || contains(got.body, "another pod") {
						t.Errorf("%s: %d %q", query, got.status, got.body)
					}
				})
			}
		})
	}
}
