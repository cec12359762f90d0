package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// source is a Source for tests. It puts the documents of docs on the board, and counts the calls of Look.
type source struct {
	looks atomic.Int64
	kept  atomic.Bool // whether Look was called after the last call of Forget
	took  time.Duration
	docs  func(round int64) map[string]any
}

func (s *source) Look(_ context.Context, wanted []string, b *Board) {
	n := s.looks.Add(1)
	s.kept.Store(true)
	time.Sleep(s.took)
	for k, v := range s.docs(n) {
		b.Put(k, v)
	}
	for _, w := range wanted {
		b.Put(detailPrefix+w+"/pod", w)
	}
}

func (s *source) Forget() { s.kept.Store(false) }

func fixed(docs map[string]any) func(int64) map[string]any {
	return func(int64) map[string]any { return docs }
}

// message is the JSON of one message in a stream.
type message struct {
	Now  int64          `json:"now"`
	Set  map[string]any `json:"set"`
	Gone []string       `json:"gone"`
	More bool           `json:"more"`
}

func decode(t *testing.T, messages [][]byte) (out []message) {
	t.Helper()
	for _, m := range messages {
		var x message
		if err := json.Unmarshal(m, &x); err != nil {
			t.Fatalf("%v: %s", err, m)
		}
		out = append(out, x)
	}
	return out
}

// Without a viewer, Look is not called. It is called again for the next viewer, who gets everything. After the last viewer has left,
// the hub and the source keep nothing.
func TestNothingIsComputedWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{docs: fixed(map[string]any{"a": 1})}
		h := newHub(s)
		time.Sleep(time.Hour)
		if n := s.looks.Load(); n != 0 {
			t.Errorf("%d rounds without a viewer", n)
		}
		for session := range int64(3) {
			last, first := h.join(""), h.join("")
			if messages, _ := h.refresh(t.Context(), first); len(messages) != 1 || decode(t, messages)[0].Set["a"] != 1.0 {
				t.Errorf("session %d begins with %s", session, messages)
			}
			h.leave(first)
			if !s.kept.Load() {
				t.Error("the source forgets although a viewer is left")
			}
			time.Sleep(time.Minute)
			h.refresh(t.Context(), last)
			h.leave(last)
			time.Sleep(time.Hour)
			if n, want := s.looks.Load(), 2*(session+1); n != want || h.board.docs != nil || s.kept.Load() {
				t.Errorf("%d rounds, want the %d of the viewers; the hub has kept %v, the source %v", n, want, h.board.docs, s.kept.Load())
			}
		}
	})
}

// Look uses at most a hundredth of one processor, for any number of viewers. Only a slow Look may use more: the pause after it is
// never longer than five seconds.
func TestTheShareOfComputingIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took time.Duration // how long one round takes; a round computes all documents
		most int64         // the largest number of rounds in a minute
	}{{0, 61}, {10 * time.Millisecond, 61}, {30 * time.Millisecond, 21}, {time.Second, 13}} {
		synctest.Test(t, func(t *testing.T) {
			s := &source{took: c.took, docs: fixed(map[string]any{"a": 1})}
			h := newHub(s)
			viewers := []*viewer{h.join(""), h.join(""), h.join("")}
			for began := time.Now(); time.Since(began) < time.Minute; {
				rest := time.Minute
				for _, v := range viewers { // one goroutine calls refresh for all viewers, because synctest does not advance the clock while a goroutine waits for a mutex
					_, pause := h.refresh(t.Context(), v)
					rest = min(rest, pause)
				}
				time.Sleep(rest)
			}
			if n := s.looks.Load(); n > c.most || n < c.most/2 {
				t.Errorf("rounds of %v: %d in a minute, want at most %d and more than half of that", c.took, n, c.most)
			}
		})
	}
}

// A viewer gets each document once. After that it gets only the documents that have changed, and the keys of those that have
// disappeared.
func TestAViewerGetsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rounds := []map[string]any{{"a": 1, "b": "<b>"}, {"a": 1, "b": "<b>"}, {"a": 2, "b": "<b>"}, {"a": 2}}
		h := newHub(&source{docs: func(n int64) map[string]any { return rounds[min(int(n)-1, len(rounds)-1)] }})
		v := h.join("")
		for i, want := range []string{`map[a:1 b:<b>] []`, ``, `map[a:2] []`, `map[] [b]`} {
			messages, rest := h.refresh(t.Context(), v)
			got := ""
			for _, m := range decode(t, messages) {
				got += fmt.Sprint(m.Set, " ", m.Gone)
			}
			if got != want {
				t.Errorf("round %d: %q, want %q", i, got, want)
			}
			time.Sleep(rest)
		}
	})
}

// A document with details of a pod is sent only to the viewers that want this pod. A viewer of the pod "web" does not get the documents of
// the pod "web-2".
func TestDetailsAreForTheirViewers(t *testing.T) {
	t.Parallel()
	h := newHub(&source{docs: fixed(nil)})
	plain, web, more := h.join(""), h.join("ns/web"), h.join("ns/web-2")
	h.next = time.Time{}
	for v, want := range map[*viewer]string{plain: "map[]", web: "map[detail/ns/web/pod:ns/web]", more: "map[detail/ns/web-2/pod:ns/web-2]"} {
		messages, _ := h.refresh(t.Context(), v)
		got := map[string]any{}
		for _, m := range decode(t, messages) {
			for k, x := range m.Set {
				got[k] = x
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("a viewer of %q got %v, want %s", v.wanted, got, want)
		}
	}
}

// A message has a bounded size. A document that is too large, or has no JSON form, is replaced by one that names the problem.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	docs := map[string]any{"huge": strings.Repeat("x", maxDocument+1), "odd": make(chan int)}
	for i := range 40 {
		docs[fmt.Sprint("row/", i)] = strings.Repeat("y", 10_000)
	}
	h := newHub(&source{docs: fixed(docs)})
	messages, _ := h.refresh(t.Context(), h.join(""))
	decoded, all := decode(t, messages), map[string]any{}
	for i, m := range decoded {
		if len(messages[i]) > maxMessage+1024 {
			t.Errorf("message %d has %d bytes", i, len(messages[i]))
		}
		if m.More != (i < len(decoded)-1) {
			t.Errorf("message %d says more=%v", i, m.More)
		}
		for k, v := range m.Set {
			all[k] = v
		}
	}
	if len(messages) < 3 || len(all) != len(docs) {
		t.Errorf("%d messages with %d documents, want several with %d", len(messages), len(all), len(docs))
	}
	for _, key := range []string{"huge", "odd"} {
		if m, ok := all[key].(map[string]any); !ok || m["problem"] == nil {
			t.Errorf("document %s: %.80v", key, all[key])
		}
	}
}

// A viewer opens a stream over HTTP and gets a document. Streams beyond the limit are refused.
func TestStream(t *testing.T) {
	t.Parallel()
	c := New(&source{docs: fixed(map[string]any{"node": "n1"})})
	s := httptest.NewServer(c)
	t.Cleanup(s.Close) // runs after the cleanups that close the streams
	open := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+Path+"stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	first := open()
	if kind := first.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("type %q", kind)
	}
	for lines := bufio.NewScanner(first.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if m := decode(t, [][]byte{[]byte(data)}); m[0].Set["node"] != "n1" {
				t.Errorf("message %s", data)
			}
			break
		}
	}
	for range maxViewers - 1 {
		if resp := open(); resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	if resp := open(); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one stream too many got status %d", resp.StatusCode)
	}
	if n := c.Viewers(); n != maxViewers {
		t.Errorf("%d viewers", n)
	}
}

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// A stream on which nothing changes stays open, over HTTP/1.1 and over HTTP/2, which browsers use if they connect to a node themselves.
func TestAQuietStreamStaysOpen(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var protocols http.Protocols
				set(&protocols)
				l := make(pipes)
				s := &http.Server{Handler: New(&source{docs: fixed(map[string]any{"a": 1})}), Protocols: &protocols, ReadHeaderTimeout: time.Minute}
				served := make(chan error, 1)
				go func() { served <- s.Serve(l) }()
				tr := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					l <- theirs
					return ours, nil
				}}
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node"+Path+"stream", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				began, signs := time.Now(), 0
				for lines := bufio.NewScanner(resp.Body); signs < 5; {
					if !lines.Scan() {
						t.Fatalf("the stream ends after %s: %v", time.Since(began), lines.Err())
					}
					if lines.Text() == ":" { // a sign of life
						signs++
					}
				}
				if took := time.Since(began); took < 4*aliveEvery {
					t.Errorf("%d signs of life in %s", signs, took)
				}
				cancel()
				_ = resp.Body.Close()
				tr.CloseIdleConnections()
				close(l)
				<-served
				_ = s.Close()
			})
		})
	}
}

// The page has no inline script or style and loads nothing from elsewhere, and its code never reads a text as HTML.
func TestThePageIsClosed(t *testing.T) {
	t.Parallel()
	c := New(&source{docs: fixed(nil)})
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path+e.Name(), nil))
		body := w.Body.String()
		if w.Code != http.StatusOK || body == "" || w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: status %d, headers %v", e.Name(), w.Code, w.Header())
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "style=\"", "onclick=\"", "https://", "srcdoc"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s contains %q", e.Name(), bad)
			}
		}
	}
	for _, path := range []string{Path + "nothing", Path + "assets/app.js", Path + "%2e%2e/doc.go"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code == http.StatusOK {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}

// A request that a page of another site makes is refused. A link from another site to the console works.
func TestOtherSitesGetNothing(t *testing.T) {
	t.Parallel()
	c := New(&source{docs: fixed(nil)})
	for _, x := range []struct {
		site, mode, dest string
		status           int
	}{
		{"", "", "", 200}, {"same-origin", "cors", "empty", 200}, {"none", "navigate", "document", 200}, {"cross-site", "navigate", "document", 200},
		{"cross-site", "no-cors", "script", 403}, {"same-site", "cors", "empty", 403}, {"cross-site", "navigate", "iframe", 403},
	} {
		r := httptest.NewRequest(http.MethodGet, Path, nil)
		r.Header.Set("Sec-Fetch-Site", x.site)
		r.Header.Set("Sec-Fetch-Mode", x.mode)
		r.Header.Set("Sec-Fetch-Dest", x.dest)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code != x.status {
			t.Errorf("%+v: status %d", x, w.Code)
		}
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]string{
		"":                          "wherry console --node n1",
		"ada":                       "kubectl create clusterrolebinding wherry-console --clusterrole=wherry-console --user=ada<",
		"<script>x</script> $(id)'": `--user=&#39;&lt;script&gt;x&lt;/script&gt; $(id)&#39;\&#39;&#39;&#39;`,
	} {
		w := httptest.NewRecorder()
		Refuse(w, http.StatusForbidden, "n1", user)
		if body := w.Body.String(); w.Code != http.StatusForbidden || !strings.Contains(body, want) || strings.Contains(body, "<script") {
			t.Errorf("user %q: %d %s", user, w.Code, body)
		}
	}
}

// A login link works once and sets a cookie. Requests without the cookie, or for another host name, are refused.
func TestLogin(t *testing.T) {
	t.Parallel()
	l := NewLogin(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4567})
	h := l.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "inside") }))
	ask := func(url string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, url, nil)
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	old := l.Link()
	link := l.Link()
	if w := ask(old, nil); w.Code != http.StatusUnauthorized {
		t.Errorf("an earlier link: %d", w.Code)
	}
	w := ask(link, nil)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(link, cookies[0].Value) {
		t.Fatalf("the link: %d %v", w.Code, cookies)
	}
	if w := ask(link, nil); w.Code != http.StatusUnauthorized {
		t.Errorf("the link, again: %d", w.Code)
	}
	const page = "http://127.0.0.1:4567/console/"
	with := func(change func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			r.AddCookie(cookies[0])
			if change != nil {
				change(r)
			}
		}
	}
	for _, c := range []struct {
		name   string
		url    string
		change func(*http.Request)
		status int
	}{
		{"the cookie", page, with(nil), 200},
		{"the cookie, from localhost", "http://localhost:4567/console/", with(nil), 200},
		{"no cookie", page, nil, 401},
		{"another cookie", page, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookies[0].Name, Value: "x"}) }, 401},
		{"a name of a stranger that points to this machine", "http://rebound.example:4567/console/", with(nil), 421},
		{"another port", "http://127.0.0.1:1/console/", with(nil), 421},
		{"an origin of another site", page, with(func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }), 403},
		{"an origin of another port", page, with(func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:80") }), 403},
		{"its own origin", page, with(func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:4567") }), 200},
		{"a fetch by another port", page, with(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }), 403},
		{"a POST", page, with(func(r *http.Request) { r.Method = http.MethodPost }), 405},
	} {
		if w := ask(c.url, c.change); w.Code != c.status || (w.Body.String() == "inside") != (c.status == 200) {
			t.Errorf("%s: %d %q, want %d", c.name, w.Code, w.Body, c.status)
		}
	}
}

// A login link that nobody opens stops working after linkLife.
func TestALinkEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLogin(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4567})
		_, token, _ := strings.Cut(l.Link(), "/open/")
		time.Sleep(linkLife + time.Second)
		if l.use(token) {
			t.Error("the link works after its life")
		}
	})
}
