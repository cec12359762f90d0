package nodeshutdown_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
	"github.com/wherry-node/wherry/internal/node/nodeshutdown"
)

// runs runs a Watch with the file, and do while it runs. It returns the times of the last shutdown, and what the Watch has logged.
func runs(t *testing.T, file string, do func(*world)) (began, finished time.Time, logged string) {
	t.Helper()
	o := newWorld()
	o.pod("web", 0, 5, 3*s)
	var log strings.Builder
	w := nodeshutdown.New(nodeshutdown.Config{
		Policy: shutdown.New(nil, 30*s, 10*s), Pods: o, Log: slog.New(slog.NewTextHandler(&log, nil)), Open: o.open, Event: func(string) {}, Changed: func() {}, File: file,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	do(o)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	began, finished = w.Times()
	return began, finished, log.String()
}

// After the machine's start the agent still knows when the last shutdown began and ended. If the machine went down before the pods had ended,
// the agent knows that too.
func TestTheTimesOfAShutdownAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state")
		nothing := func(*world) {}
		if began, _, logged := runs(t, file, nothing); !began.IsZero() || strings.Contains(logged, file) {
			t.Errorf("without a shutdown, the last one began at %v: %s", began, logged)
		}
		start := time.Now()
		runs(t, file, func(o *world) {
			o.logind(true)
			time.Sleep(s) // power goes off while the pod still ends
		})
		if began, finished, _ := runs(t, file, nothing); !began.Equal(start) || !finished.IsZero() {
			t.Errorf("the shutdown that was cut short: %v to %v, want %v and no end", began, finished, start)
		}
		start = time.Now()
		runs(t, file, func(o *world) {
			o.logind(true)
			time.Sleep(time.Minute)
		})
		if began, finished, _ := runs(t, file, nothing); !began.Equal(start) || finished.Before(start.Add(3*s)) || finished.After(start.Add(5*s)) {
			t.Errorf("the shutdown took from %v to %v, want %v to 3 or 4 s later", began, finished, start)
		}
		data, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(data), `"startTime":"2000-01-01T`) || !strings.Contains(string(data), `"endTime":"2000-01-01T`) {
			t.Errorf("the file is %s (%v), want the format of upstream's kubelet", data, err)
		}
	})
}

// A file that is not valid, or no file at all, is named in the log, and the agent works without it.
func TestAStateFileThatIsNotValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for name, content := range map[string]string{"torn": `{"startTime":"20`, "huge": strings.Repeat(" ", 5000), "no time": `{"startTime":"soon"}`} {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if began, finished, logged := runs(t, file, func(*world) {}); !began.IsZero() || !finished.IsZero() || !strings.Contains(logged, name) {
				t.Errorf("%s: %v, %v; the log says %q", name, began, finished, logged)
			}
		}
		if _, _, logged := runs(t, dir, func(o *world) { o.logind(true); time.Sleep(time.Minute) }); !strings.Contains(logged, "is not kept for the next agent") {
			t.Errorf("a directory in place of the file: the log says %q", logged)
		}
	})
}

// hearsEnds is a world that says when a pod begins to end.
type hearsEnds struct {
	*world
	ends chan struct{}
}

func (h hearsEnds) End(uid types.UID, why *decide.Stop) {
	h.world.End(uid, why)
	close(h.ends)
}

// Pods begin to end even while the disk does not take the file: a pod can keep a disk busy for long. The file is a named pipe here, on which the
// agent waits until somebody reads it.
func TestPodsDoNotWaitForTheStateFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state")
	if err := unix.Mkfifo(file+hostfs.Unfinished, 0o600); err != nil {
		t.Fatal(err)
	}
	o := newWorld()
	o.pod("web", 0, 5, 0)
	ends := make(chan struct{})
	w := nodeshutdown.New(nodeshutdown.Config{
		Policy: shutdown.New(nil, 30*s, 10*s), Pods: hearsEnds{o, ends}, Log: slog.New(slog.DiscardHandler), Open: o.open, Event: func(string) {}, Changed: func() {}, File: file,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	o.logind(true)
	select {
	case <-ends:
	case <-time.After(20 * time.Second):
		t.Error("no pod has begun to end after 20 s")
	}
	cancel()
	pipe, err := os.Open(file + hostfs.Unfinished) // the agent's write ends
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
