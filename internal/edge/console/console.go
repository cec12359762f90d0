package console

import (
	"embed"
	"html"
	"io/fs"
	"net/http"
	"strings"
)

// files are the parts of the page.
//
//go:embed assets
var files embed.FS

// Path is the URL path below which a console is served. It ends with a slash.
const Path = "/console/"

// policy is the Content-Security-Policy of the page. It forbids content from other sites, inline scripts, forms and frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Console serves the page and the stream of one node or fleet. It may be called concurrently.
type Console struct {
	hub *hub
	mux *http.ServeMux
}

// New returns a Console for requests below Path.
func New(s Source) *Console {
	c := &Console{hub: newHub(s), mux: http.NewServeMux()}
	c.mux.HandleFunc("GET "+Path+"stream", c.stream)
	c.mux.Handle("GET "+Path, http.StripPrefix(Path, Assets()))
	return c
}

// ServeHTTP answers a request for the page, a part of it, or the stream.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !Secure(w, r) {
		return
	}
	c.mux.ServeHTTP(w, r)
}

// Viewers returns how many viewers have an open stream.
func (c *Console) Viewers() int {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return len(c.hub.viewers)
}

// Secure sets the security headers of every response of a console. If a page of another site caused the browser's request, it answers
// 403 and returns false.
func Secure(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return true // the user follows a link from another site, which cannot read the response
	}
	http.Error(w, "this request is of a browser's page from another site", http.StatusForbidden)
	return false
}

// Assets returns a handler that serves the files of the page, each at its name without a directory. The empty name means index.html.
func Assets() http.Handler {
	root, err := fs.Sub(files, "assets")
	if err != nil {
		return http.NotFoundHandler() // the name is valid, so this does not happen
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		body, err := fs.ReadFile(root, name)
		if err != nil || strings.Contains(name, "/") {
			http.Error(w, "the console has no such page", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", contentType(name))
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(body) // an error means that the client is gone
	})
}

// contentType returns the content type of a file of the page. It does not use the machine's own table of types, which may be wrong.
func contentType(name string) string {
	switch {
	case strings.HasSuffix(name, ".html"):
		return "text/html; charset=utf-8"
	case strings.HasSuffix(name, ".js"):
		return "text/javascript; charset=utf-8"
	case strings.HasSuffix(name, ".css"):
		return "text/css; charset=utf-8"
	case strings.HasSuffix(name, ".svg"):
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// Refuse answers a browser whose user may not see the console of a node. The response tells the user how to get access. user is empty
// if the request has no known user.
func Refuse(w http.ResponseWriter, status int, node, user string) {
	title, text := "The node does not know you",
		"The browser sent no client certificate that this node accepts. Open the console through the API server with your own kubeconfig instead:"
	commands := []string{"wherry console --node " + word(node)}
	after := "Or import a client certificate of the cluster into the browser, and load this page again."
	if user != "" {
		title = "You may not see this node"
		text = "You are " + user + ". The console needs the right to get the subresource console of nodes. It shows pods, their records and their logs. Somebody who may grant rights can run:"
		commands = []string{
			"kubectl create clusterrole wherry-console --verb=get --resource=nodes/console",
			"kubectl create clusterrolebinding wherry-console --clusterrole=wherry-console --user=" + word(user),
		}
		after = "Then load this page again. The node may remember its old answer for half a minute."
	}
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">" +
		"<title>" + title + " - Wherry</title></head>\n<body><main><h1>" + title + "</h1><p>" + html.EscapeString(text) + "</p>")
	for _, c := range commands {
		b.WriteString("<pre><code>" + html.EscapeString(c) + "</code></pre>")
	}
	b.WriteString("<p>" + after + "</p></main></body></html>\n")
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(b.String())) // an error means that the client is gone
}

// word quotes a text, if necessary, so that a shell reads it as one word.
func word(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:@/", r))
	}) < 0 && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
