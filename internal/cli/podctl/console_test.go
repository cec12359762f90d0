package podctl

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/proof/browser"
)

// consolePods are a pod that is well, one that crashes again and again, one whose image is missing, and one with a hostile message.
const consolePods = `
apiVersion: v1
kind: Pod
metadata: {name: well}
spec: {containers: [{name: main, image: registry.example/web:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: crash, annotations: {wherry.dev/sim-exit-code: "3", wherry.dev/sim-message: "<img src=x onerror=document.title='owned'>"}}
spec: {containers: [{name: main, image: registry.example/crash:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: missing}
spec: {containers: [{name: main, image: registry.example/lost:1, imagePullPolicy: Never}]}
`

// openConsole runs wherry console for a node with pods until the test ends, and returns its link.
func openConsole(t *testing.T) string {
	t.Helper()
	socket := startNode(t)
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte(consolePods), 0o600); err != nil {
		t.Fatal(err)
	}
	run := Run{Files: []string{file}, Detach: true, Grace: -1}
	run.Agent.Socket = socket
	if err := run.Run(t.Context(), Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- (&Console{Socket: socket}).Run(ctx, Streams{In: strings.NewReader(""), Out: in, Err: in})
		_ = in.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the console ended with %v", err)
		}
	})
	text := make([]byte, 4096)
	n, err := out.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/open/\w+`).FindString(string(text[:n]))
	if link == "" {
		t.Fatalf("no link in %q", text[:n])
	}
	return link
}

// A browser that has opened the link gets the page, the event stream and logs, and nothing else of the node.
func TestConsoleReachesOnlyTheConsole(t *testing.T) {
	t.Parallel()
	link := openConsole(t)
	base, _, _ := strings.Cut(link, "/open/")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute}
	get := func(path string) (int, string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := make([]byte, 200)
		n, _ := io.ReadFull(resp.Body, body)
		return resp.StatusCode, resp.Header.Get("Content-Type") + " " + string(body[:n])
	}
	if status, body := get(base + "/console/"); status != http.StatusUnauthorized {
		t.Errorf("without the link: %d %s", status, body)
	}
	if status, body := get(link); status != http.StatusOK || !strings.HasPrefix(body, "text/html") {
		t.Fatalf("the link: %d %s", status, body)
	}
	for path, want := range map[string]string{
		"/":                                  "200 text/html",
		"/console/app.js":                    "200 text/javascript",
		"/console/stream":                    "200 text/event-stream",
		"/console/logs/default/nothing/main": "404 text/plain",
		"/console/nodes/x/":                  "200 text/html",
		"/pods":                              "404 text/plain",
		"/console/../pods":                   "404 text/plain",
		"/console/logs/../../pods":           "404 text/plain",
		"/console/%2e%2e/pods":               "404 text/plain",
		"/console/logs/%2e%2e/%2e%2e/pods":   "404 text/plain",
		"/console/logs%2f..%2f..%2fpods":     "404 text/plain",
		"/exec/default/well/main?command=id": "404 text/plain",
		"/console/nodes/x/../../../configz":  "404 text/plain",
	} {
		status, body := get(base + path)
		if got := fmt.Sprintf("%d %s", status, body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A viewer of a pod gets the last output of a container that has failed as part of the answer. Other viewers get no output of containers.
func TestTheConsoleHasTheLastOutput(t *testing.T) {
	t.Parallel()
	at := Target{Socket: startNode(t)}
	failJob(t, at)
	c, err := openClient(t.Context(), at.Socket)
	if err != nil {
		t.Fatal(err)
	}
	first := func(detail string) string { // all documents that a new viewer gets
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/console/stream?detail="+detail, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, lines := "", bufio.NewReader(resp.Body)
		for !strings.Contains(all, `"gone":`) { // the last message of a round has it
			line, err := lines.ReadString('\n')
			if all += line; err != nil {
				t.Fatalf("%v after %s", err, all)
			}
		}
		return all
	}
	const output = `"facts":["last output: two","last output: three","last output: cannot read /etc/app.conf"]`
	if got := first("default/job"); !strings.Contains(got, output) {
		t.Errorf("no %s in %s", output, got)
	}
	for _, detail := range []string{"", "default/other"} {
		if got := first(detail); !strings.Contains(got, `"name":"job"`) || strings.Contains(got, "app.conf") {
			t.Errorf("a viewer of pod %q gets %s", detail, got)
		}
	}
}

// A node's response never becomes an HTML page in the browser, even if the node sends it as text/html. The node gets no cookie of the
// browser, and cannot set one.
func TestRelayTrustsNoNode(t *testing.T) {
	t.Parallel()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Set-Cookie", "a=b")
		fmt.Fprintf(w, "%s %s %s", r.URL.Path, r.Header.Get("Cookie"), r.Header.Get("Origin"))
	}))
	defer node.Close()
	base, err := url.Parse(node.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/console/logs/ns/web/main", nil)
	r.Header.Set("Cookie", "secret=1")
	r.Header.Set("Origin", "http://127.0.0.1:1")
	w := httptest.NewRecorder()
	relay(base.JoinPath("api/v1/nodes/n1/proxy"), http.DefaultTransport, "n1").ServeHTTP(w, r)
	if got := w.Body.String(); got != "/api/v1/nodes/n1/proxy/console/logs/ns/web/main  " || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("%q with %v", got, w.Header())
	}
}

// A user who may not use the API server's proxy is told what allows it, with the API server's own words.
func TestRelayNamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "nodes \"n1\" is forbidden: User \"eve\" cannot get resource \"nodes/proxy\""}`)
	}))
	defer api.Close()
	base, err := url.Parse(api.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	relay(base.JoinPath("api/v1/nodes/n1/proxy"), http.DefaultTransport, "n1").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/stream", nil))
	for _, want := range []string{`User "eve" cannot get resource "nodes/proxy"`, "kubectl create clusterrole ask-nodes --verb=get --resource=nodes/proxy", "kubectl create clusterrolebinding"} {
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), want) {
			t.Errorf("status %d, want %s in %s", w.Code, want, w.Body)
		}
	}
}

// The console of a node of a cluster is read through the API server's proxy, over HTTP/2 as API servers speak it.
func TestConsoleOfANodeGoesThroughTheProxy(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/k8s/clusters/c1"} {
		api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.URL.RequestURI()) }))
		api.EnableHTTP2 = true
		api.StartTLS()
		defer api.Close()
		c := Console{Node: "n1", Config: &rest.Config{Host: api.URL + prefix, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}
		base, transport, _, err := c.upstream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		relay(base, transport, "n1").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/console/stream?detail=ns/web", nil))
		if got, want := w.Body.String(), "HTTP/2.0 "+prefix+"/api/v1/nodes/n1/proxy/console/stream?detail=ns/web"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// In a real browser the page shows the pods and the reasons for their states, follows links, steps through the record, follows the colours
// that the user prefers, and keeps the rules of accessibility. Texts that containers write are shown as text, never interpreted as HTML.
func TestConsoleInABrowser(t *testing.T) {
	t.Parallel()
	tab := browser.Open(t, 1360, 900)
	link := openConsole(t)
	tab.Go(link)
	tab.Until("the three pods", `document.querySelectorAll("table.pods tbody tr").length === 3`)
	tab.Until("the crash loop, as text", `document.querySelector("tr.trouble .line") && document.body.innerText.includes("CrashLoop")`)
	tab.Until("stripes with words for screen readers", `[...document.querySelectorAll(".bands")].every((b) => b.getAttribute("aria-label"))`)
	for _, dark := range []bool{false, true} {
		tab.Dark(dark)
		tab.CheckAccess(fmt.Sprintf("the pods, dark=%v", dark))
	}
	tab.Dark(false)
	tab.Eval(`document.querySelector('input[type=search]').value = "well"; document.querySelector('input[type=search]').dispatchEvent(new Event("input"))`, nil)
	tab.Until("only the pod that was searched for", `document.querySelectorAll("table.pods tbody tr").length === 1`)
	tab.Eval(`document.querySelector('input[type=search]').value = ""; document.querySelector('input[type=search]').dispatchEvent(new Event("input"))`, nil)
	tab.Until("all pods again", `document.querySelectorAll("table.pods tbody tr").length === 3`)

	tab.Eval(`[...document.querySelectorAll("a.name")].find((a) => a.textContent.endsWith("crash")).click()`, nil)
	tab.Until("the answer", `document.querySelector(".answer.trouble")?.innerText.includes("exit code 3")`)
	tab.Until("the message of the container, as text", `document.querySelector(".answer").innerText.includes("<img src=x")`)
	tab.Until("the name of the fact", `[...document.querySelectorAll(".answer dt")].some((e) => e.textContent === "last words")`)
	tab.Until("the record", `document.querySelectorAll(".record tbody tr").length > 5`)
	tab.Eval(`[...document.querySelectorAll("button")].find((b) => b.textContent.includes("back")).click()`, nil)
	tab.Until("the step before the newest", `document.querySelector(".record tr[aria-current]")?.nextElementSibling && !document.querySelector(".record tr[aria-current]").nextElementSibling.hasAttribute("aria-current")`)
	for _, dark := range []bool{false, true} {
		tab.Dark(dark)
		tab.CheckAccess(fmt.Sprintf("a pod, dark=%v", dark))
	}
	tab.Eval(`location.hash = "#/pod/default/crahs"`, nil)
	tab.Until("an unknown pod, with similar names", `document.querySelector("main").innerText.includes("not on this node") && [...document.querySelectorAll("main a")].some((a) => a.hash === "#/pod/default/crash")`)
	tab.CheckAccess("an unknown pod")
	for name, sign := range map[string]string{"node": "memory.available", "events": "Pod default/", "work": "Nothing waits"} {
		tab.Eval(`location.hash = "#/`+name+`"`, nil)
		tab.Until("the view "+name, `document.querySelector("main").innerText.includes("`+sign+`")`)
		tab.CheckAccess("the view " + name)
	}
	var title string
	tab.Eval(`document.title`, &title)
	if title != "n1 - Wherry console" || len(tab.Problems) > 0 {
		t.Errorf("title %q, problems %v", title, tab.Problems)
	}
}
