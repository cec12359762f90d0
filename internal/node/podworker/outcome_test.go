package podworker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// loud is a performer that returns a given outcome for every action.
type loud struct {
	still
	text string
}

func (l *loud) Do(context.Context, pod.Job) pod.Outcome {
	return pod.Outcome{Reason: l.text, Message: l.text, Err: fmt.Errorf("%s: %w", l.text, io.ErrUnexpectedEOF)}
}

// The text of a failure, which runtimes and registries choose, is bounded before it reaches the memory, the checkpoint, the
// status, the timeline and the log. errors.Is still finds the original error.
func TestOutcomesAreBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 16<<20), "binary": strings.Repeat("\x00\xff\x1b[31m", 1<<20), "cut": strings.Repeat("ä\u009b", pod.TextBytes), "short": "\x1b[2J",
	} {
		l := &loud{text: text}
		l.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "ns"}}
		var wg sync.WaitGroup
		var said strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		w := New(&Config{Context: ctx, Group: &wg, Performer: l, Cache: emptyCache{}, Log: slog.New(slog.NewTextHandler(&said, nil))}, pod.RefOf(l.pod))
		w.rouse()
		cancel() // so that no turn takes the outcome before the test reads it
		w.begin(l.pod, &pod.Observed{}, &decide.Plan{Do: []pod.Action{{Op: pod.OpPullImage}}})
		wg.Wait()
		w.mu.Lock()
		outcomes := w.engage().outcomes
		w.mu.Unlock()
		if len(outcomes) != 1 {
			t.Fatalf("%s: %d outcomes", name, len(outcomes))
		}
		o := outcomes[0]
		for what, s := range map[string]string{"reason": o.Reason, "message": o.Message, "error": o.Err.Error()} {
			if s == "" || len(s) > pod.TextBytes || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x1b\x7f\u009b") {
				t.Errorf("%s: the %s has %d bytes: %.60q", name, what, len(s), s)
			}
		}
		if !errors.Is(o.Err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the error is no longer what it was: %.60v", name, o.Err)
		}
		if said.Len() > 8*pod.TextBytes {
			t.Errorf("%s: %d bytes of log", name, said.Len())
		}
	}
}
