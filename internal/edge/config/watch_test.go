package config_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// heard records the calls of a Watch.
type heard struct {
	mu       sync.Mutex
	reported []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = append(h.reported, fmt.Sprintf(format, args...))
}

// next returns the calls that were recorded since the previous call of next, one on each line.
func (h *heard) next() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.reported, "\n")
	h.reported = nil
	return text
}

// watch runs a Watch while f runs. With poll, it does not use the kernel's reports of changes, so that a test can use virtual time.
func watch(t *testing.T, poll bool, args []string, f func(h *heard)) {
	t.Helper()
	cfg, _, err := config.Load(args)
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	w := &config.Watch{
		Files: cfg.Files, Poll: poll, Log: slog.New(slog.DiscardHandler),
		Apply: func(c config.Config, _ []config.Notice) {
			h.add("maxPods %d, podsPerCore %d", c.Kubelet.MaxPods, c.Kubelet.PodsPerCore)
		},
		Wrong: func(err error) { h.add("wrong: %v", err) }, Right: func() { h.add("right") },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	f(h)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func minutes() { time.Sleep(2 * time.Minute); synctest.Wait() }

// A Watch calls Apply once for each valid configuration. For an invalid one it calls Wrong, with the file, the line and the field.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", "maxPods: 10\n")
	drops := filepath.Join(dir, "conf.d")
	drop := write(t, drops, "10.conf", "podsPerCore: 1\n")
	synctest.Test(t, func(t *testing.T) {
		watch(t, true, []string{"--config=" + file, "--config-dir=" + drops}, func(h *heard) {
			expect := func(when, want string) {
				t.Helper()
				minutes()
				if diff := cmp.Diff(want, strings.ReplaceAll(h.next(), dir, "DIR")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
			}
			expect("at first", "maxPods 10, podsPerCore 1")
			expect("without a change", "")
			write(t, dir, "config.yaml", "maxPods: 20\n")
			expect("another value", "maxPods 20, podsPerCore 1")
			write(t, drops, "20.conf", "podsPerCore: 2\n")
			expect("another drop-in", "maxPods 20, podsPerCore 2")
			write(t, drops, "sub/30.conf", "podsPerCore: 3\n")
			expect("a drop-in of a new directory", "maxPods 20, podsPerCore 3")
			write(t, drops, "note.txt", "podsPerCore: 4\n")
			expect("a file that is no drop-in", "")
			if err := os.RemoveAll(filepath.Join(drops, "sub")); err != nil {
				t.Fatal(err)
			}
			expect("that directory vanishes", "maxPods 20, podsPerCore 2")

			write(t, dir, "config.yaml", "maxPods: 30\nevictionHard:\n  memory.available: much\n")
			expect("a bad value", "wrong: invalid configuration:\nDIR/config.yaml:5: evictionHard[memory.available] (--eviction-hard): \"much\": write a quantity as in 100Mi, or a percentage from 0% to 100%")
			expect("the same bad value later", "")
			write(t, dir, "config.yaml", "maxPods: 30\nevictionHrad:\n")
			expect("an unknown field", "wrong: configuration file DIR/config.yaml:4: unknown field evictionHrad (did you mean \"evictionHard\"?): "+
				"not a field of kubelet.config.k8s.io/v1beta1 in Kubernetes "+config.KubernetesVersion+": remove or correct it")
			write(t, drops, "20.conf", "podsPerCore: [\n")
			write(t, dir, "config.yaml", "maxPods: 30\n")
			minutes()
			if got := h.next(); !strings.Contains(got, "20.conf:3: not valid YAML or JSON: ") {
				t.Errorf("half a file: %s", got)
			}
			write(t, drops, "20.conf", "podsPerCore: 5\n")
			expect("all is valid again", "right\nmaxPods 30, podsPerCore 5")

			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			expect("the file is removed", "wrong: read configuration file: open DIR/config.yaml: no such file or directory")
			write(t, dir, "config.yaml", "maxPods: 30\n")
			expect("the same file is back", "right\nmaxPods 30, podsPerCore 5")
			if err := os.RemoveAll(drops); err != nil {
				t.Fatal(err)
			}
			expect("the drop-in directory vanishes", "wrong: read drop-in directory (--config-dir): open DIR/conf.d: no such file or directory")
			write(t, drops, filepath.Base(drop), "podsPerCore: 6\n")
			expect("it is back", "right\nmaxPods 30, podsPerCore 6")
		})
	})
}

// A file that is growing because somebody writes it is not reported as wrong.
func TestWatchWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", "maxPods: 10\n")
	synctest.Test(t, func(t *testing.T) {
		watch(t, true, []string{"--config=" + file}, func(h *heard) {
			minutes()
			h.next()
			write(t, dir, "config.yaml", "maxPods: {\n")
			time.Sleep(time.Minute) // the Watch looks once in this minute
			write(t, dir, "config.yaml", "maxPods: 11\n")
			minutes()
			got := h.next()
			if !strings.HasSuffix(got, "maxPods 11, podsPerCore 0") {
				t.Errorf("reported %q", got)
			}
		})
	})
}

// The Watch reports a file that is too large, too many files, and directories that are nested too deeply. It does not read them
// completely.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", "maxPods: 10\n")
	drops := filepath.Join(dir, "conf.d")
	for i := range 1000 {
		write(t, drops, fmt.Sprintf("%04d.conf", i), fmt.Sprintf("podsPerCore: %d\n", i))
	}
	synctest.Test(t, func(t *testing.T) {
		watch(t, true, []string{"--config=" + file, "--config-dir=" + drops}, func(h *heard) {
			expect := func(when, want string) {
				t.Helper()
				minutes()
				if got := h.next(); !strings.Contains(got, want) {
					t.Errorf("%s: reported %q, want %q in it", when, got, want)
				}
			}
			expect("a thousand drop-ins", "maxPods 10, podsPerCore 999")
			if err := os.Truncate(file, 1<<30); err != nil { // a sparse file takes no space on the disk
				t.Fatal(err)
			}
			expect("a file of 1 GiB", "config.yaml has more than 1048576 bytes")
			write(t, dir, "config.yaml", "maxPods: 12\n")
			expect("a small one again", "maxPods 12")
			for i := range 30 {
				write(t, drops, fmt.Sprintf("more%02d.conf", i), "")
			}
			expect("too many drop-ins", "has 1030 files *.conf, more than 1024")
			for i := range 30 {
				if err := os.Remove(filepath.Join(drops, fmt.Sprintf("more%02d.conf", i))); err != nil {
					t.Fatal(err)
				}
			}
			deep := drops
			for range 20 {
				deep = filepath.Join(deep, "d")
			}
			if err := os.MkdirAll(deep, 0o755); err != nil {
				t.Fatal(err)
			}
			expect("directories that are too deep", "more than 16 directories, one in the other")
		})
	})
}

// If the kernel reports changes of files, a Watch finds a change long before watchPeriod has passed.
func TestWatchNoticesChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", "maxPods: 10\n")
	watch(t, false, []string{"--config=" + file}, func(h *heard) {
		await := func(want string) {
			t.Helper()
			for deadline := time.Now().Add(50 * time.Second); ; { // 50 s are less than watchPeriod, after which the Watch would find the change without a report of the kernel
				got := h.next()
				if got == want {
					return
				}
				if got != "" || time.Now().After(deadline) {
					t.Fatalf("reported %q, want %q", got, want)
				}
				<-time.After(10 * time.Millisecond)
			}
		}
		await("maxPods 10, podsPerCore 0")
		write(t, dir, "draft", "maxPods: 11\n")
		if err := os.Rename(filepath.Join(dir, "draft"), file); err != nil {
			t.Fatal(err)
		}
		await("maxPods 11, podsPerCore 0")
	})
}

// The functions that parse a configuration file never panic, whatever the file contains.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{"", "maxPods: 1\n", "{\"maxPods\": 1}", "a:\n  - b: c\n", "evictionHard:\n\tx: y", "\"", "'a'x", ": :", "- - - a: 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		file := write(t, t.TempDir(), "c.yaml", body)
		_, _, err := config.Load([]string{"--config=" + file})
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
