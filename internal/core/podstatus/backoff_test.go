package podstatus_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/podstatus"
)

// The message of a crash loop says how long the back-off is only if this is known. It is not if the runtime does not say when the container
// ended, and not if the clock was set back afterwards.
func TestBackOffOfUnknownLength(t *testing.T) {
	t.Parallel()
	const known, unknown = "back-off 1m20s restarting failed container=app pod=web_shop(u1)", "back-off restarting failed container=app pod=web_shop(u1)"
	for name, c := range map[string]struct {
		ended time.Time
		want  string
	}{
		"known":                  {at(20), known},
		"not reported":           {time.Time{}, unknown},
		"the clock was set back": {at(20).Add(8 * time.Hour), unknown},
	} {
		f := newFixture(v1.RestartPolicyAlways, container("app")).sandbox("10.0.0.5").exited("app", 1, 1).memory("app", func(cm *decide.ContainerMemory) {
			cm.CrashedID, cm.CrashUntil, cm.CrashDelay = "app1", at(100), 160*time.Second
		})
		f.Observed.Containers[0].FinishedAt = c.ended
		st := podstatus.Derive(f.Input)
		if w := st.ContainerStatuses[0].State.Waiting; w == nil || w.Message != c.want {
			t.Errorf("%s: waiting %+v, want %q", name, w, c.want)
		}
	}
}
