package probe

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// The log has one line for each change of a container's state. The line names the new state and the probe that caused it.
func TestLogSaysWhatAContainerHasBecome(t *testing.T) {
	var log bytes.Buffer
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	cfg := Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: plain}))}
	inBubble(t, cfg, func(t *testing.T, r *rig) {
		r.answer = func(at time.Duration, _ string, cmd []string) (int32, error) {
			fails := map[string]bool{
				"started": at < 12*time.Second,
				"ready":   at < 20*time.Second || at > 50*time.Second,
				"alive":   at > 100*time.Second,
			}
			if fails[cmd[0]] {
				return 1, nil
			}
			return 0, nil
		}
		r.Set(ref, []Target{
			{ContainerID: "c1", StartedAt: time.Now(), Spec: &v1.Container{Name: "app",
				StartupProbe: execProbe("started", 5, 0, 30), LivenessProbe: execProbe("alive", 10, 0, 1), ReadinessProbe: execProbe("ready", 10, 0, 1)}},
			{ContainerID: "c2", StartedAt: time.Now(), Spec: &v1.Container{Name: "side", StartupProbe: execProbe("started", 7, 0, 30)}},
		})
		pass(2 * time.Minute)
	})
	want := []string{
		`msg="container has started and is ready" pod=ns/web(u) container=side why="Startup probe succeeded" output=outerr`,
		`msg="container has started and is not ready yet" pod=ns/web(u) container=app why="Startup probe succeeded" output=outerr`,
		`msg="container is ready" pod=ns/web(u) container=app why="Readiness probe succeeded" output=outerr`,
		`msg="container is not ready" pod=ns/web(u) container=app why="Readiness probe failed" output=outerr`,
		`msg="container is unhealthy and will be stopped" pod=ns/web(u) container=app why="Liveness probe failed" output=outerr`,
	}
	if d := cmp.Diff(want, strings.Split(strings.TrimSpace(log.String()), "\n")); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}
