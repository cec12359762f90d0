package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/script"
)

// TestRulesOfTurns compares with testdata/rules.txt which rules run in a decision, in their order, as Steps lists them: what each rule saw
// and what it decided. A person who steps through a decision must see each rule that had a say.
func TestRulesOfTurns(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, tt := range slices.Concat(stepTurns(), sawTurns()) {
		in := running(tt.containers...)
		if tt.change != nil {
			tt.change(in)
		}
		_, list := decide.Steps(&in.Input)
		fmt.Fprintf(&b, "# %s\n", tt.name)
		for _, s := range list {
			fmt.Fprintf(&b, "    %s: %s\n", s.Rule, s.Saw)
			for _, line := range s.Decided {
				fmt.Fprintf(&b, "        %s\n", line)
			}
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

// sawTurns returns cases whose inputs have what the rules of stepTurns do not see: back-offs, actions in flight, ends, strays, resizes.
func sawTurns() []turnCase {
	app, job := container("app"), container("job")
	row := func(name string, change func(*moment)) turnCase {
		return turnCase{name, []v1.Container{app, job}, change}
	}
	until := func(d time.Duration) time.Time { return now.Add(d) }
	return []turnCase{
		row("its containers wait for their back-offs", func(m *moment) {
			m.exited("app", 3)
			m.c("app").FinishedAt = until(-2 * time.Second)
			m.cm("app").CrashedID, m.cm("app").CrashUntil, m.cm("app").CrashDelay = "app-0", until(8*time.Second), 20*time.Second
			m.c("job").State = pod.StateCreated
			m.cm("job").StartFailedID, m.cm("job").Pulled = "job-0", false
			m.cm("job").PullUntil, m.cm("job").StartUntil, m.cm("job").StopUntil = until(10*time.Second), until(11*time.Second), until(12*time.Second)
		}),
		row("one crashes", func(m *moment) { m.exited("app", 3) }),
		row("the state of one is unknown", func(m *moment) { m.c("app").State = pod.StateUnknown }),
		row("one was created", func(m *moment) { m.c("app").State = pod.StateCreated }),
		row("one has failed its probe, and another starts", func(m *moment) {
			m.sick("app")
			m.without("job")
			m.inFlight(pod.Action{Op: pod.OpStartContainer, Container: "job", Attempt: 1})
		}),
		row("one is ready", func(m *moment) { m.Probed.Set(decide.Probed{Name: "app", ID: "app-0", Started: true, Ready: true}) }),
		row("the end of one goes on", func(m *moment) {
			m.Memory.Ends = decide.Ends{{Name: "app", ID: "app-0", Cause: pod.CauseLiveness, Began: until(-1500300 * time.Microsecond), Grace: time.Minute}}
		}),
		row("nobody knows when one started", func(m *moment) { m.c("app").StartedAt = time.Time{} }),
		row("one has another definition", func(m *moment) { m.c("app").SpecHash = "1-older" }),
		row("one is in an older sandbox", func(m *moment) { m.c("app").SandboxID = "sb-old" }),
		row("an older instance of one runs", func(m *moment) { m.older("app") }),
		row("all its containers are to restart", func(m *moment) {
			m.Pod.Spec.Containers[0] = with(m.Pod.Spec.Containers[0], rule(v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers, 42))
			m.exited("app", 42)
		}),
		row("all its containers have been restarted", func(m *moment) { m.Memory.RestartingAll = true; m.without("app") }),
		row("its deadline comes", func(m *moment) {
			m.Pod.Spec.ActiveDeadlineSeconds, m.Memory.StartTime = new(int64(90)), until(-time.Minute)
		}),
		row("it is evicted", func(m *moment) { m.Memory.Stop = &decide.Stop{Reason: "Evicted"} }),
		row("its inspection is old", func(m *moment) { m.Stale = true }),
		row("an earlier pod of its name remains", func(m *moment) { m.Node.Predecessor = true }),
		row("its volumes wait", func(m *moment) {
			m.without("app")
			m.without("job")
			m.Memory.SetUp, m.Observed.Sandboxes = false, nil
			m.Memory.Retry = []decide.Retry{
				{Op: pod.OpSetUp, Until: until(3 * time.Second)}, {Op: pod.OpTearDown, Until: now}, {Op: pod.OpRunSandbox, Until: until(4 * time.Second)},
			}
		}),
		row("its set-up is in flight", func(m *moment) {
			m.without("app")
			m.without("job")
			m.Memory.SetUp, m.Observed.Sandboxes = false, nil
			m.inFlight(pod.Action{Op: pod.OpSetUp})
		}),
		row("a resize is in progress", func(m *moment) { m.Memory.Resize.InProgress = true }),
		row("it is ending, and the stop of its sandbox failed", func(m *moment) {
			m.Pod.DeletionTimestamp, m.Pod.DeletionGracePeriodSeconds = new(metav1.NewTime(until(5*time.Second))), new(int64(10))
			m.Memory.StopBegan, m.Memory.StopGrace = until(-5*time.Second), 10*time.Second
			m.exited("app", 0)
			m.exited("job", 0)
			m.Memory.Retry = []decide.Retry{{Op: pod.OpStopSandbox, ID: "sb0", Until: until(2 * time.Second)}}
		}),
		row("its deletion takes back a pull", func(m *moment) {
			m.Pod.DeletionTimestamp, m.Pod.DeletionGracePeriodSeconds = new(metav1.NewTime(until(30*time.Second))), new(int64(30))
			m.without("app")
			m.cm("app").Pulled = false
			m.inFlight(pod.Action{Op: pod.OpPullImage, Container: "app"})
		}),
	}
}
