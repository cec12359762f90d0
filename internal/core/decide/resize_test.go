package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/core/decide"
)

// TestResizeOnItsWay takes a resize through its states. While the resize is pending for the same reason, PendingSince stays the same. When
// the node accepts the resize, it is no longer pending, and Since becomes the time of the acceptance.
func TestResizeOnItsWay(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	var r decide.Resize
	for _, step := range []struct {
		name    string
		do      func() bool
		changed bool
		want    decide.Resize
	}{
		{"deferred", func() bool { return r.Defer("Deferred", "no room", 2, at(1)) }, true,
			decide.Resize{Pending: "Deferred", PendingMessage: "no room", PendingGeneration: 2, PendingSince: at(1)}},
		{"deferred again", func() bool { return r.Defer("Deferred", "no room", 2, at(2)) }, false,
			decide.Resize{Pending: "Deferred", PendingMessage: "no room", PendingGeneration: 2, PendingSince: at(1)}},
		{"another message", func() bool { return r.Defer("Deferred", "no CPU", 2, at(3)) }, true,
			decide.Resize{Pending: "Deferred", PendingMessage: "no CPU", PendingGeneration: 2, PendingSince: at(1)}},
		{"another generation", func() bool { return r.Defer("Deferred", "no CPU", 3, at(4)) }, true,
			decide.Resize{Pending: "Deferred", PendingMessage: "no CPU", PendingGeneration: 3, PendingSince: at(1)}},
		{"another reason", func() bool { return r.Defer("Infeasible", "no CPU", 3, at(5)) }, true,
			decide.Resize{Pending: "Infeasible", PendingMessage: "no CPU", PendingGeneration: 3, PendingSince: at(5)}},
		{"withdrawn", func() bool { r.Withdraw(); return false }, false, decide.Resize{PendingGeneration: 3, PendingSince: at(5)}},
		{"accepted", func() bool { r.Accept(4, at(6)); return false }, false, decide.Resize{InProgress: true, Generation: 4, Since: at(6)}},
		{"the next one is deferred meanwhile", func() bool { return r.Defer("Deferred", "no room", 5, at(7)) }, true,
			decide.Resize{InProgress: true, Generation: 4, Since: at(6), Pending: "Deferred", PendingMessage: "no room", PendingGeneration: 5, PendingSince: at(7)}},
		{"and accepted", func() bool { r.Accept(5, at(8)); return false }, false, decide.Resize{InProgress: true, Generation: 5, Since: at(8)}},
	} {
		if changed := step.do(); changed != step.changed {
			t.Errorf("%s: changed %v", step.name, changed)
		}
		if d := cmp.Diff(step.want, r); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
}
