package launch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// Contention is profiled if enableContentionProfiling is set and the profiles are served.
func TestContentionProfiling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ contention, profiling, want bool }{{false, true, false}, {true, true, true}, {true, false, false}} {
		k := agent.DefaultConfiguration()
		k.EnableContentionProfiling, k.EnableProfilingHandler = c.contention, &c.profiling
		if got := profilesContention(&k); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// follower is an agent that only records its calls.
type follower struct {
	received chan string
	fail     error
}

func (f *follower) Reconfigure(cfg agent.Config) (agent.Reconfigured, error) {
	f.received <- "pods " + string(rune('0'+cfg.Kubelet.MaxPods)) + " keep " + strings.Join(cfg.KeepImages, ",")
	return agent.Reconfigured{}, f.fail
}

func (f *follower) RefuseConfiguration(err error) { f.received <- "refused: " + err.Error() }

// The node follows the files of --config and --wherry-config from its start on, and ends when its context ends.
func TestRunWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubelet, wherry := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "wherry.yaml")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	const own = "apiVersion: wherry.dev/v1alpha1\nkind: WherryConfiguration\n"
	write(kubelet, head+"maxPods: 1\n")
	write(wherry, own)
	cfg, _, err := config.Load([]string{"--config=" + kubelet, "--wherry-config=" + wherry})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{received: make(chan string, 100)}
	var log bytes.Buffer
	r := &reload{agent: f, hostname: "n", log: slog.New(slog.NewTextHandler(&log, nil))}
	started := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- runWatched(ctx, r, cfg.Files, started, func(ctx context.Context) error { <-ctx.Done(); return errors.New("told to") })
	}()
	await := func(want string) {
		t.Helper()
		select {
		case got := <-f.received:
			if !strings.HasPrefix(got, want) {
				t.Fatalf("the agent received %q, want %q", got, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("the agent not received %q", want)
		}
	}
	write(kubelet, head+"maxPods: 2\n") // the file changes before the node has started, so the watch applies it first
	select {
	case got := <-f.received:
		t.Fatalf("received before the start: %s", got)
	case <-time.After(100 * time.Millisecond):
	}
	close(started)
	await("pods 2 keep ")
	write(wherry, own+"images: {neverRemove: [docker.io/library/busybox]}\n")
	await("pods 2 keep docker.io/library/busybox")
	write(kubelet, head+"maxPods: 3\nvolumePluginDir: /flex\n")
	await("pods 3 keep docker.io/library/busybox")
	write(wherry, own+"images: {neverRemove: [\"*\"]}\n")
	await("refused: --wherry-config ")
	cancel()
	if err := <-ended; err == nil || err.Error() != "told to" {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(log.String(), "volumePluginDir") || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("the log has not the one notice that is new:\n%s", &log)
	}
}
