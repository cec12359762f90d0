package ctlsocket

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Ask says that nothing runs only if nothing listens, and passes on the text of a refusal.
func TestAsk(t *testing.T) {
	t.Parallel()
	none := errors.New("nothing runs")
	dir := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "stale")})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			http.Error(w, "it is refused", http.StatusBadRequest)
			return
		}
		Answer(w, "yes")
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	for _, c := range []struct {
		socket, path string
		none         bool
		want         string
	}{
		{"s", "/", false, ""},
		{"s", "/refused", false, "it is refused"},
		{"missing", "/", true, "nothing runs at " + dir},
		{"stale", "/", true, "nothing runs at " + dir},
		{strings.Repeat("x", 200), "/", false, "ask the test at " + dir}, // a path that is too long
	} {
		var got string
		err := Peer{Socket: filepath.Join(dir, c.socket), What: "the test", None: none, Hint: "start it"}.Ask(t.Context(), http.MethodGet, c.path, nil, &got)
		if errors.Is(err, none) != c.none || (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) || err == nil && got != "yes" {
			t.Errorf("%.10s%s: %q, %v", c.socket, c.path, got, err)
		}
	}
}

// An answer is bounded.
func TestDecode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`"12345678"`: "", `"123456789"`: "more than 10 bytes", `"1`: "the text ends in the middle of a value"} {
		var got string
		err := decode(strings.NewReader(text), 10, &got)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}
