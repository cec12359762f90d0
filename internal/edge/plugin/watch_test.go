package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// announcer is a plugin whose answers the test chooses.
type announcer struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
	// getInfo, unless it is nil, is called before the answer to GetInfo. Its error replaces the answer.
	getInfo func(ctx context.Context) error
	told    chan string // receives what the agent reports to the plugin: "registered", or the error
}

func (a *announcer) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	if a.getInfo != nil {
		if err := a.getInfo(ctx); err != nil {
			return nil, err
		}
	}
	return a.info, nil
}

func (a *announcer) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	text := "registered"
	if !s.PluginRegistered {
		text = s.Error
	}
	select {
	case a.told <- text:
	case <-ctx.Done():
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// listen serves a plugin on a listener until the test ends or stop is called.
func listen(t *testing.T, l net.Listener, a *announcer) (stop func()) {
	t.Helper()
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, a)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		s.Stop()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// handler notes its calls, as "+NAME" and "-NAME".
type handler struct {
	calls chan string
	fail  func(p Plugin) error // may be nil
}

func newHandler() *handler { return &handler{calls: make(chan string, 64)} }

func (h *handler) Register(_ context.Context, p Plugin) error {
	if h.fail != nil {
		if err := h.fail(p); err != nil {
			return err
		}
	}
	h.calls <- "+" + p.Name
	return nil
}

func (h *handler) Deregister(_ context.Context, p Plugin) { h.calls <- "-" + p.Name }

// shortDir returns a directory whose path leaves room for the path of a socket, which t.TempDir does not.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func unixListener(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newWatcher(dir string, h Handler) *Watcher {
	return New(Config{Dir: dir, Handlers: map[string]Handler{"T": h}, Log: slog.New(slog.DiscardHandler)})
}

func start(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func valid(name string) *registration.PluginInfo {
	return &registration.PluginInfo{Type: "T", Name: name, SupportedVersions: []string{"1.0.0"}}
}

// If the agent refuses a plugin's answer, it tells the plugin why. No handler gets the answer, and no text is longer than its bound.
func TestAnswersOfPluginsHaveBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	with := func(change func(*registration.PluginInfo)) *registration.PluginInfo {
		i := valid("n")
		change(i)
		return i
	}
	for _, c := range []struct {
		name, want string
		info       *registration.PluginInfo
	}{
		{"the longest answer", "", with(func(i *registration.PluginInfo) {
			i.Name, i.Endpoint, i.SupportedVersions = long[:maxName], "/"+long[:maxEndpoint-1], slices.Repeat([]string{long[:maxVersion]}, maxVersions)
		})},
		{"a type without a handler", `plugins of type "xxx`, with(func(i *registration.PluginInfo) { i.Type = long })},
		{"no name", "must have 1 to 63 characters", valid("")},
		{"a long name", "must have 1 to 63 characters", valid(long)},
		{"a path as name", "no '/'", valid("../../../etc")},
		{"the directory above as name", "no '/'", valid("..")},
		{"the same directory as name", "no '/'", valid(".")},
		{"a zero byte in the name", "no '/'", valid("a\x00b")},
		{"a relative endpoint", "must be an absolute path", with(func(i *registration.PluginInfo) { i.Endpoint = "../csi.sock" })},
		{"a long endpoint", "with at most 107 bytes", with(func(i *registration.PluginInfo) { i.Endpoint = "/" + long })},
		{"many versions", "names 17 versions", with(func(i *registration.PluginInfo) { i.SupportedVersions = make([]string, maxVersions+1) })},
		{"a long version", "has more than 63 bytes", with(func(i *registration.PluginInfo) { i.SupportedVersions = []string{long} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHandler()
			w := newWatcher("", h)
			l := bufconn.Listen(64 << 10)
			w.dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
			a := &announcer{info: c.info, told: make(chan string, 1)}
			listen(t, l, a)
			p, err := w.register(t.Context(), "/plugin.sock")
			told := <-a.told
			if c.want == "" {
				if err != nil || told != "registered" || len(h.calls) != 1 || p.Name != c.info.Name {
					t.Errorf("told %q, %d calls, plugin %+v, error %v", told, len(h.calls), p, err)
				}
				return
			}
			if err == nil || !strings.Contains(told, c.want) || told != err.Error() {
				t.Errorf("told %q, error %v, want %q", told, err, c.want)
			}
			if p.Name != "" || len(h.calls) != 0 || len(told) > 400 {
				t.Errorf("plugin %+v, %d calls, told %d bytes", p, len(h.calls), len(told))
			}
		})
	}
}

func TestAnswersOfPluginsAreShort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		plugin     *announcer
	}{
		{"an answer of many bytes", "received message larger than max", &announcer{info: valid(strings.Repeat("x", maxAnswer))}},
		{"a long error", "GetInfo: xxxx", &announcer{getInfo: func(context.Context) error { return status.Error(codes.Internal, strings.Repeat("x", maxHeaders/2)) }}},
		{"an error that is longer than all headers may be", "RST_STREAM", &announcer{getInfo: func(context.Context) error { return status.Error(codes.Internal, strings.Repeat("x", 2*maxHeaders)) }}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWatcher("", newHandler())
			l := bufconn.Listen(64 << 10)
			w.dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
			listen(t, l, c.plugin)
			if _, err := w.register(t.Context(), "/plugin.sock"); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > pod.TextBytes+100 {
				t.Errorf("error %.300v, want %q", err, c.want)
			}
		})
	}
}

// The agent gives up a plugin that hangs in any call after a bounded time.
func TestAPluginThatHangs(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]*announcer{
		"when it is asked": {info: valid("n"), getInfo: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"when it is told":  {info: valid("n"), told: nil}, // the plugin hangs, because a send to a nil channel blocks
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHandler()
				w := newWatcher("", h)
				l := bufconn.Listen(64 << 10)
				w.dial = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
				listen(t, l, a)
				began := time.Now()
				_, err := w.register(t.Context(), "/plugin.sock")
				if took := time.Since(began); took != askWithin {
					t.Errorf("register took %v, want %v", took, askWithin)
				}
				if asked := a.getInfo == nil; asked != (err == nil) || asked != (len(h.calls) == 1) {
					t.Errorf("error %v, %d calls of the handler", err, len(h.calls))
				}
			})
		})
	}
}

func TestScanHasBounds(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	mkdir := func(path string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	socket := func(path string) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	socket(filepath.Join(mkdir("a/b/c"), "deep.sock"))
	socket(filepath.Join(mkdir("a/b/c/d"), "too-deep.sock"))
	outside := shortDir(t)
	socket(filepath.Join(outside, "other.sock"))
	socket(filepath.Join(dir, ".hidden.sock"))
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink(filepath.Join(outside, "other.sock"), filepath.Join(dir, "link.sock")),
		os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	w := newWatcher(dir, newHandler())
	found, dirs := w.scan()
	if want := filepath.Join(dir, "a/b/c/deep.sock"); len(found) != 1 || found[want] == (identity{}) {
		t.Errorf("found %v, want only %s", found, want)
	}
	if len(dirs) != maxDepth {
		t.Errorf("%d directories are watched, want %d: %v", len(dirs), maxDepth, dirs)
	}
	for i := range maxSockets {
		socket(filepath.Join(dir, fmt.Sprint(i)))
	}
	for i := range maxDirs {
		mkdir(fmt.Sprint("dir", i))
	}
	if found, dirs = w.scan(); len(found) != maxSockets || len(dirs) != maxDirs {
		t.Errorf("%d sockets and %d directories, want %d and %d", len(found), len(dirs), maxSockets, maxDirs)
	}
	many := mkdir("a/many")
	for i := range maxEntries {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("%05d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	w.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	var none []string
	w.scanDir(many, 3, map[string]identity{}, &none)
	if log.Len() > 0 {
		t.Errorf("a directory with %d entries: %s", maxEntries, log.String())
	}
	socket(filepath.Join(many, "s"))
	w.scanDir(many, 3, map[string]identity{}, &none)
	if !strings.Contains(log.String(), "it has more than 4096 entries") {
		t.Errorf("a directory with %d entries: log %q", maxEntries+1, log.String())
	}
}

// A directory that a plugin has replaced with a link is not read.
func TestScanFollowsNoLinkOfAPlugin(t *testing.T) {
	t.Parallel()
	dir, outside := shortDir(t), shortDir(t)
	unixListener(t, filepath.Join(outside, "other.sock"))
	if err := os.Symlink(outside, filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	w := newWatcher(dir, newHandler())
	found, dirs := map[string]identity{}, []string(nil)
	w.scanDir(filepath.Join(dir, "sub"), 2, found, &dirs) // as if sub had been a directory when its parent was listed
	if len(found) != 0 {
		t.Errorf("found %v through a link", found)
	}
}

// A plugin is registered when its socket appears, even if the socket's path is not a valid URL. It is registered again when the
// socket is replaced, and deregistered when the socket is gone.
func TestAPluginComesAndGoes(t *testing.T) {
	t.Parallel()
	dir, h := shortDir(t), newHandler()
	w := newWatcher(dir, h)
	start(t, w)
	await := func(when string, want ...Socket) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !slices.Equal(w.Sockets(), want); <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the sockets are %+v, want %+v", when, w.Sockets(), want)
			}
		}
	}
	want := func(call string) {
		t.Helper()
		if got := <-h.calls; got != call {
			t.Errorf("call %s, want %s", got, call)
		}
	}
	path := filepath.Join(dir, "100%zz?#.sock")
	a := &announcer{info: valid("n"), told: make(chan string, 8)}
	await("at first")
	stop := listen(t, unixListener(t, path), a)
	want("+n")
	await("registered", Socket{path, true, true})
	// A new server creates its socket under another name and renames it to the path of the old one.
	other := unixListener(t, path+".new")
	other.(*net.UnixListener).SetUnlinkOnClose(false)
	stopOther := listen(t, other, &announcer{info: valid("m"), told: make(chan string, 8)})
	want("+m")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{<-h.calls, <-h.calls} { // the old path .new is gone, and the path has a new socket
		if got != "-m" && got != "+m" {
			t.Errorf("call %s", got)
		}
	}
	stop() // the old server removes the socket at its path, which is now the new server's socket
	want("-m")
	stopOther()
	await("gone")
}

// A plugin whose registration fails is asked again, and a handler that hangs for one plugin delays no other.
func TestAPluginIsAskedAgain(t *testing.T) {
	t.Parallel()
	dir, h := shortDir(t), newHandler()
	hung, tries := make(chan struct{}), 0
	h.fail = func(p Plugin) error {
		switch {
		case p.Name == "hangs":
			hung <- struct{}{}
			<-hung
		case tries == 0:
			tries++
			return errors.New("not yet")
		}
		return nil
	}
	w := newWatcher(dir, h)
	start(t, w)
	a := &announcer{info: valid("hangs"), told: make(chan string, 8)}
	listen(t, unixListener(t, filepath.Join(dir, "hangs.sock")), a)
	<-hung
	b := &announcer{info: valid("b"), told: make(chan string, 8)}
	listen(t, unixListener(t, filepath.Join(dir, "b.sock")), b)
	if got := []string{<-b.told, <-b.told, <-h.calls}; !slices.Equal(got, []string{"not yet", "registered", "+b"}) {
		t.Errorf("got %q", got)
	}
	if s := w.Sockets(); len(s) != 2 || s[1] != (Socket{filepath.Join(dir, "hangs.sock"), true, false}) {
		t.Errorf("the sockets are %+v", s)
	}
	close(hung)
	if got := []string{<-h.calls, <-a.told}; !slices.Equal(got, []string{"+hangs", "registered"}) {
		t.Errorf("got %q", got)
	}
}

// If a plugin creates and removes many files, the agent reads the directory at most once in each period of settle (50 ms).
func TestManyEventsCauseFewReadings(t *testing.T) {
	t.Parallel()
	dir, h := shortDir(t), newHandler()
	w := newWatcher(dir, h)
	var reads atomic.Int64
	w.read = func() { reads.Add(1) }
	began := time.Now()
	start(t, w)
	for i := range 3000 {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
	}
	listen(t, unixListener(t, filepath.Join(dir, "n.sock")), &announcer{info: valid("n"), told: make(chan string, 8)})
	if got := <-h.calls; got != "+n" {
		t.Errorf("call %s", got)
	}
	// The first reading comes at once, and each later reading after the wait settle.
	if n, most := reads.Load(), int64(time.Since(began)/settle)+2; n > most {
		t.Errorf("the directory was read %d times, want at most %d", n, most)
	}
}
