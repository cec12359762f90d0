package sdnotify_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wherry-node/wherry/internal/edge/sdnotify"
)

// listen opens the socket of a service manager. next returns the next datagram.
func listen(t *testing.T, name string) (next func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestWhatTheManagerHears(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n")
	abstract := "@wherry-sdnotify-test-" + strconv.Itoa(os.Getpid())
	for _, name := range []string{path, abstract} {
		next := listen(t, name)
		m, err := sdnotify.Open(environment(map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}))
		if err != nil {
			t.Fatal(err)
		}
		if m.Watchdog() != 30*time.Second {
			t.Errorf("watchdog %v, want 30 s", m.Watchdog())
		}
		for _, c := range []struct {
			send func() error
			want string
		}{
			{func() error { return m.Ready("node a") }, "READY=1\nSTATUS=node a"},
			{func() error { return m.Status("bad\nMAINPID=1\r\n") }, "STATUS=bad MAINPID=1"},
			{m.Alive, "WATCHDOG=1"},
			{m.Stopping, "STOPPING=1\nSTATUS=stopping"},
		} {
			if err := c.send(); err != nil {
				t.Fatal(err)
			}
			if got := next(); got != c.want {
				t.Errorf("sent %q, want %q", got, c.want)
			}
		}
		if err := m.Status(strings.Repeat("x", 100_000)); err != nil {
			t.Errorf("a long status: %v", err)
		} else if got := next(); len(got) > 1024 {
			t.Errorf("a long status has %d bytes", len(got))
		}
		if err := m.Status("x" + strings.Repeat("ü", 1000)); err != nil {
			t.Error(err)
		} else if got := next(); !utf8.ValidString(got) {
			t.Errorf("a status is cut in a character: %q", got[len(got)-4:])
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without a service manager, all methods can be called and do nothing.
func TestNoManager(t *testing.T) {
	t.Parallel()
	m, err := sdnotify.Open(environment(nil))
	if m != nil || err != nil {
		t.Fatalf("%v, %v", m, err)
	}
	for _, f := range []func() error{func() error { return m.Ready("a") }, func() error { return m.Status("a") }, m.Alive, m.Stopping, m.Close} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	if m.Watchdog() != 0 {
		t.Error("a watchdog of nobody")
	}
}

func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "n")
	listen(t, name)
	for _, c := range []struct {
		vars map[string]string
		want string // a part of the error; "": no error, and no watchdog
	}{
		{map[string]string{"NOTIFY_SOCKET": "relative"}, "NOTIFY_SOCKET"},
		{map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "missing")}, "socket"},
		{map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "soon"}, "WATCHDOG_USEC"},
		{map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "-5"}, "WATCHDOG_USEC"},
		{map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "9223372036854775807"}, "WATCHDOG_USEC"},
		{map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"}, ""},
	} {
		m, err := sdnotify.Open(environment(c.vars))
		switch {
		case c.want == "" && (err != nil || m == nil || m.Watchdog() != 0):
			t.Errorf("%v: %v, %v", c.vars, m, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want one about %s", c.vars, err, c.want)
		}
		_ = m.Close()
	}
}
