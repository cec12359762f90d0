package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/edge/stats"
)

// A pod that can be measured in part only is logged once, with the reason and the effect, and counted by the metric; and once more when it can
// be measured completely again. The two purposes are apart: they allow a measurement different times.
func TestMeasurementsInPartAreSaid(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	gone := map[types.UID]bool{}
	m := &partly{log: slog.New(slog.NewTextHandler(&text, nil)), present: func(uid types.UID) bool { return !gone[uid] }}
	web, db := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1"}}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "2"}}
	slow := fmt.Errorf("volume %q: %w", "data", context.DeadlineExceeded)
	for i, c := range []struct {
		pod   *v1.Pod
		why   purpose
		err   error
		logs  []string // what the new part of the log has; empty: nothing is logged
		count float64
	}{
		{web, forEviction, nil, nil, 0},
		{web, forEviction, slow, []string{"level=WARN", "pod=ns/web", "counts with what was found", "data", "deadline exceeded"}, 1},
		{web, forEviction, slow, nil, 1},
		{web, forLimits, errors.New("input/output error"), []string{"level=WARN", "cannot evict", "input/output error"}, 1},
		{db, forLimits, slow, []string{"level=WARN", "pod=ns/db"}, 2},
		{db, forLimits, context.Canceled, nil, 2},
		{web, forEviction, nil, []string{"level=INFO", "pod=ns/web"}, 2},
		{web, forLimits, nil, []string{"level=INFO", "pod=ns/web"}, 1},
	} {
		text.Reset()
		m.note(c.pod, c.why, c.err)
		if got := text.String(); (len(c.logs) == 0) != (got == "") {
			t.Errorf("%d: logged %q, want %q", i, got, c.logs)
		}
		for _, part := range c.logs {
			if !strings.Contains(text.String(), part) {
				t.Errorf("%d: logged %q, want %q", i, text.String(), part)
			}
		}
		if n := m.count(); n != c.count {
			t.Errorf("%d: the metric is %v, want %v", i, n, c.count)
		}
	}
	gone["2"] = true
	if m.forget("2"); m.count() != 0 {
		t.Error("a pod that is gone is counted")
	}
	text.Reset()
	if m.note(db, forLimits, slow); m.count() != 0 || text.Len() > 0 {
		t.Errorf("a pod that went while it was measured is counted, or logged: %q", text.String())
	}
}

// Logs that could be measured in part only are marked in the usage of the pod.
func TestLogsThatCouldNotBeMeasuredAreMarked(t *testing.T) {
	t.Parallel()
	a := &Agent{platform: &platform{volumes: walked{}}, partly: &partly{log: slog.New(slog.DiscardHandler), present: func(types.UID) bool { return true }}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	u := a.diskUsageOf(t.Context(), p, stats.PodDisk{Logs: stats.Space{Bytes: 111}, NoLogs: true, Err: errors.New("not readable")})
	if !u.NoLogs || u.NoVolumes || u.Logs != (evict.Disk{Bytes: 111}) || a.partly.count() != 1 {
		t.Errorf("%+v; %v pods are measured in part", u, a.partly.count())
	}
}
