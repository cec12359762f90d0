package pleg

import (
	"bytes"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// lines is a log that can be read while others write to it.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) with(word string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, word) {
			out = append(out, regexp.MustCompile(`time=\S+ `).ReplaceAllString(strings.TrimSpace(line), ""))
		}
	}
	slices.Sort(out)
	return out
}

// The log has one line for each container that ends, with its exit code, reason and running time, and none for a container that ended
// before the agent began.
func TestAContainerThatEndsIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		w := &world{}
		h := startWith(t, w, func(w *world) { w.set("old", false, pod.StateExited) }, slog.New(slog.NewTextHandler(&log, nil)))
		h.w.set("a", true, pod.StateRunning)
		h.w.set("quick", true, pod.StateCreated)
		time.Sleep(1500 * time.Millisecond)
		if got := log.with("ended"); got != nil {
			t.Fatalf("nothing has ended, and the log says %q", got)
		}
		now := time.Now()
		h.w.setEnd("a", pod.Container{State: pod.StateExited, ExitCode: 137, Said: pod.SaidOf("OOMKilled", ""), StartedAt: now.Add(-90 * time.Second), FinishedAt: now})
		h.w.setEnd("quick", pod.Container{State: pod.StateExited}) // the runtime does not say when the container began and ended
		time.Sleep(5 * time.Second)
		want := []string{
			`level=INFO msg="container ended" pod=/(a) container=app exitCode=137 reason=OOMKilled ranFor=1m30s id=c-a`,
			`level=INFO msg="container ended" pod=/(quick) container=app exitCode=0 id=c-quick`,
		}
		if d := cmp.Diff(want, log.with("ended")); d != "" {
			t.Errorf("lines (-want +got):\n%s", d)
		}
	})
}
