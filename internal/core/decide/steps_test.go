package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/script"
)

// TestRulesOfTurns compares with testdata/rules.txt which rules run in a decision, in their order, as Steps lists them. A person who steps
// through a decision must see each rule that had a say.
func TestRulesOfTurns(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, tt := range stepTurns() {
		in := running(tt.containers...)
		if tt.change != nil {
			tt.change(in)
		}
		_, list := decide.Steps(&in.Input)
		fmt.Fprintf(&b, "# %s\n", tt.name)
		for _, s := range list {
			fmt.Fprintln(&b, "   ", strings.Join(append([]string{s.Rule}, s.Decided...), "; "))
		}
	}
	script.Golden(t, "testdata/rules.txt", b.String(), *update)
}

// stepTurns returns cases that end a decision at different rules, or leave rules out.
func stepTurns() []turnCase {
	app, init := container("app"), container("init")
	row := func(name string, change func(*moment)) turnCase {
		return turnCase{name, []v1.Container{init, app}, func(m *moment) {
			m.exited("init", 0)
			change(m)
		}}
	}
	deleted := func(m *moment) {
		m.Pod.DeletionTimestamp, m.Pod.DeletionGracePeriodSeconds = new(metav1.NewTime(now.Add(30*time.Second))), new(int64(30))
	}
	ended := func(m *moment) {
		deleted(m)
		m.exited("app", 0)
		m.Observed.Sandboxes[0].Ready = false
		m.Memory.StoppedSandboxes = []string{m.Observed.Sandboxes[0].ID}
	}
	return []turnCase{
		row("it runs", func(*moment) {}),
		row("it is not admitted", func(m *moment) { m.Memory.Admitted, m.Observed.Sandboxes = false, nil }),
		row("no source has it, and not every source has answered", func(m *moment) { m.Pod, m.Node.SourcesReady = nil, false }),
		row("no source has it", func(m *moment) { m.Pod = nil }),
		row("it has no sandbox, and the node has no network", func(m *moment) {
			m.Observed.Sandboxes, m.Observed.Containers, m.Node.NetworkReady = nil, nil, false
		}),
		row("its init container runs", func(m *moment) { m.c("init").State = pod.StateRunning; m.without("app") }),
		row("its init container has completed, and its main container is missing", func(m *moment) { m.without("app") }),
		row("all its containers are restarted", func(m *moment) { m.Memory.RestartingAll = true }),
		row("it is deleted", deleted),
		row("it is deleted, and its containers have ended", func(m *moment) { deleted(m); m.exited("app", 0) }),
		row("it is deleted, and its sandbox has ended", ended),
		row("it is deleted and torn down", func(m *moment) { ended(m); m.Memory.TornDown = true }),
		row("no source has it, and it is torn down", func(m *moment) { ended(m); m.Memory.TornDown, m.Pod = true, nil }),
	}
}
