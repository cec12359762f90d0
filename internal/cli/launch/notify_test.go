package launch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/sdnotify"
)

// serviceManager listens as systemd does, and sends the messages that it gets to the channel.
func serviceManager(t *testing.T) (path string, heard <-chan string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := make(chan string, 10_000)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			c <- string(buf[:n])
		}
	}()
	return path, c
}

// await waits for a message with the prefix.
func await(t *testing.T, heard <-chan string, prefix string) string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case m := <-heard:
			if strings.HasPrefix(m, prefix) {
				return m
			}
		case <-deadline:
			t.Fatalf("nothing heard that begins with %q", prefix)
		}
	}
}

func TestSignsOfLifeEndWithTheLoops(t *testing.T) {
	t.Parallel()
	path, heard := serviceManager(t)
	vars := map[string]string{"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "100000"}
	m, err := sdnotify.Open(func(name string) string { return vars[name] })
	if err != nil {
		t.Fatal(err)
	}
	var stuck atomic.Bool
	asked := make(chan struct{}, 10_000)
	s := service{
		started: make(chan struct{}),
		alive: func(ctx context.Context) error {
			if !stuck.Load() {
				return nil
			}
			<-ctx.Done() // a loop that is stuck does not answer in time
			asked <- struct{}{}
			return errors.New("stuck")
		},
		summary: func() string { return "node a" },
	}
	started := make(chan struct{})
	s.started = started
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runSupervised(ctx, m, s, slog.New(slog.DiscardHandler), func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
	await(t, heard, "WATCHDOG=1") // sent also while the node waits for its identity
	close(started)
	if got := await(t, heard, "READY=1"); got != "READY=1\nSTATUS=node a" {
		t.Errorf("heard %q", got)
	}
	await(t, heard, "WATCHDOG=1")
	stuck.Store(true)
	<-asked
	for len(heard) > 0 { // drop the earlier messages
		<-heard
	}
	<-asked
	<-asked
	if len(heard) > 0 {
		t.Errorf("heard %q while the loops stand still", <-heard)
	}
	stuck.Store(false)
	await(t, heard, "WATCHDOG=1")
	cancel()
	await(t, heard, "STOPPING=1")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A whole node reports that it is ready, with its name, that it is alive, and that it stops.
func TestANodeUnderAServiceManager(t *testing.T) {
	path, heard := serviceManager(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "400000")
	cfg, _, err := config.Load([]string{
		"--container-runtime-endpoint=simulated://", "--root-dir=" + t.TempDir(), "--hostname-override=under-systemd", "--enable-server=false", "--healthz-port=0",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Kubelet(ctx, cfg, slog.New(slog.DiscardHandler), nil) }()
	if got := await(t, heard, "READY=1"); got != "READY=1\nSTATUS=node under-systemd, pods: 0" {
		t.Errorf("heard %q", got)
	}
	await(t, heard, "WATCHDOG=1")
	await(t, heard, "WATCHDOG=1")
	cancel()
	await(t, heard, "STOPPING=1")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A service manager that takes no reports is logged once, and a second time only if it has taken a report in between.
func TestAManagerThatIsGoneIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	n := notifier{log: slog.New(slog.NewTextHandler(&b, nil))}
	gone := errors.New("connection refused")
	for _, err := range []error{gone, gone, nil, gone, gone} {
		n.note(err)
	}
	if got := strings.Count(b.String(), "takes no reports"); got != 2 {
		t.Errorf("%d log lines, want 2:\n%s", got, &b)
	}
}
