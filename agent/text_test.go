package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/event"
)

// hostile returns a possible output of a hook, a probe or a runtime: 16 MiB of binary data.
func hostile() string { return strings.Repeat("\xff\x00\x1b[2J\x07", 16<<20/8) }

// The length of a log line is bounded, whether a long text is its message, an error, an attribute or inside a group.
func TestLogLinesAreBounded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := slog.New(boundedLog{slog.NewJSONHandler(&b, nil)})
	big := hostile()
	long := errors.New(big)
	for _, write := range []func(){
		func() { log.Info("action", "err", long) },
		func() { log.Info("action", "err", fmt.Errorf("exec: %w", long)) },
		func() { log.Info("action", "output", big) },
		func() { log.Info(big) },
		func() { log.Info("action", "raw", []byte(big)) },
		func() { log.Info("action", slog.Group("g", "err", long, "x", big)) },
		func() { log.With("err", long).Info("action") },
		func() { log.WithGroup("g").Info("action", "err", long) },
	} {
		b.Reset()
		write()
		if b.Len() > 4*pod.TextBytes || b.Len() < 100 || !utf8.Valid(b.Bytes()) || bytes.ContainsAny(b.Bytes(), "\x00\x1b\x07") {
			t.Errorf("a line of %d bytes", b.Len())
		}
	}
	b.Reset()
	log.Info("action", "pod", "ns/web", "took", 3, "err", errors.New("no such image"))
	if s := b.String(); !strings.Contains(s, `"msg":"action","pod":"ns/web","took":3,"err":"no such image"`) {
		t.Errorf("a short text was changed: %s", s)
	}
}

// The length of an event is bounded.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	local := event.NewLocal(event.Kept)
	e := &events{nodeName: "n", recorder: event.New(event.Config{API: func(string) event.API { return local }})}
	ctx, cancel := context.WithCancel(t.Context())
	defer e.open(ctx)()
	defer cancel()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}
	e.Event(p, "main", v1.EventTypeWarning, hostile(), "PostStartHook failed: "+hostile())
	e.NodeEvent(v1.EventTypeWarning, "Reason", hostile())
	list, _, news := local.After(0)
	for len(list) < 2 {
		<-news
		list, _, news = local.After(0)
	}
	for _, ev := range list {
		if len(ev.Message) > pod.TextBytes || len(ev.Reason) > maxReason || !utf8.ValidString(ev.Message) || strings.ContainsAny(ev.Message, "\x00\x1b\x07") {
			t.Errorf("an event of %d bytes, reason of %d", len(ev.Message), len(ev.Reason))
		}
	}
}
