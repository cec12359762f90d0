package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/proof/program"
)

// askSocket is the environment variable that names a socket. A test binary that is started with it sends a request to the socket
// instead of running tests.
const askSocket = "WHERRY_TEST_ASK_SOCKET"

func TestMain(m *testing.M) {
	path := os.Getenv(askSocket)
	if path == "" {
		os.Exit(m.Run())
	}
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	resp, err := c.Get("http://agent/")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	body, _ := io.ReadAll(resp.Body)
	fmt.Print(string(body))
}

// needsRoot skips a test that needs root; in CI it fails the test.
func needsRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("this test needs root, and CI must run it")
	default:
		t.Skip("needs root, for namespaces")
	}
}

// A volume may show the control socket to a container (hostPath of /run, or of /). The container's process is in other
// namespaces and is refused; a process of the machine is not.
func TestControlSocketIsNotForContainers(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- server.Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := server.LocalPeer(r.Context())
			if err != nil && !errors.Is(err, server.ErrPeer) {
				t.Errorf("error %v is no ErrPeer", err)
			}
			fmt.Fprint(w, err)
		}), server.ServeOptions{Log: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		cancel()
		must(t, <-done)
	}()
	for _, c := range []struct {
		name string
		attr *syscall.SysProcAttr
		want string
	}{
		{"a process of the machine", nil, "<nil>"},
		{"another mount namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "another mnt namespace"},
		{"another PID namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "another pid namespace"},
		{"another network namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, "<nil>"},
		{"another user", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "it runs as user 65534"},
	} {
		must(t, os.Chmod(path, 0o777))
		must(t, os.Chmod(filepath.Dir(path), 0o755))
		must(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))
		self := filepath.Join(filepath.Dir(path), "ask") // a copy of the test binary, because another user may not be allowed to run the original
		if _, err := os.Stat(self); err != nil {
			data, err := os.ReadFile("/proc/self/exe")
			must(t, err)
			program.Write(t, self, data)
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), askSocket+"="+path), c.attr
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, %q; want %q", c.name, err, out, c.want)
		}
	}
}
