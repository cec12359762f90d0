package agent

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/probe"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// This file assigns each piece of the node's own work to a class of package work, which decides who runs first on a busy machine. Each
// agent has one work.Scheduler. Package probe calls the scheduler itself.

// buildWork makes the scheduler of package work and its metrics.
func (a *Agent) buildWork() error {
	a.work = work.New(work.Config{Processors: a.processors(), Shares: a.shares})
	for _, g := range []struct {
		name, help string
		value      func(work.Load) int
	}{
		{"wherry_work_limit", "How many pieces of the node's own work (commands, starts, stops) may run at once", func(l work.Load) int { return l.Limit }},
		{"wherry_work_waiting", "How many pieces of the node's own work wait to run", func(l work.Load) int { return l.Waiting }},
	} {
		gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 { return float64(g.value(a.work.Load())) })
		if err := a.deps.Metrics.Register(gauge); err != nil {
			return fmt.Errorf("register %s: %w", g.name, err)
		}
	}
	return nil
}

// processors returns the minimum number of jobs of the node itself that run at the same time.
func (a *Agent) processors() int {
	switch {
	case a.cfg.Processors > 0:
		return a.cfg.Processors
	case a.deps.Machine.real:
		return runtime.NumCPU()
	}
	return a.deps.Machine.shape.CPUs // a simulated node has the CPUs of its Shape, whatever the host has
}

// mostStarts is the maximum number of pods that start at the same time, even if the agent measures that more would help.
const mostStarts = 64

// startSlots returns the smallest and the largest number of pods that may start at the same time. If a start takes about a
// tenth of a second of CPU time and waits as long, the smallest number keeps a runtime busy, and pods still finish one after
// another. If starts wait longer, for a network or a disk, the agent measures that more slots help and raises the number.
func (a *Agent) startSlots() (least, most int) {
	if n := a.cfg.StartSlots; n > 0 {
		return n, n
	}
	least = 2 + 2*a.processors()
	return least, max(least, mostStarts)
}

// workShares converts Config.WorkShares; nil means the defaults.
func workShares(cfg *Config) (*work.Shares, error) {
	if cfg.WorkShares == nil {
		return nil, nil
	}
	shares, err := work.ParseShares(cfg.WorkShares)
	if err != nil {
		return nil, fmt.Errorf("agent: Config.WorkShares: %w", err)
	}
	return &shares, nil
}

// scheduledPerformer performs actions as jobs of the scheduler of package work.
type scheduledPerformer struct {
	to   podworker.Performer
	work *work.Scheduler
	// sandboxes limits how many sandboxes stop at once. Removing the networks and processes of 100 deleted pods uses the
	// whole machine for ten seconds. Without the limit, a pod that starts in that time would also take ten seconds.
	sandboxes *work.Turns
	acted     func() // Deps.Acted
}

// Do performs an action. Removals, and stops of sandboxes, first wait until the scheduler or the limit allows them. If the agent ends
// during this wait, the outcome is an error.
func (s scheduledPerformer) Do(ctx context.Context, job pod.Job) pod.Outcome {
	if s.acted != nil {
		defer s.acted()
	}
	switch job.Action.Op {
	case pod.OpRunSandbox, pod.OpStartContainer, pod.OpStopContainer, pod.OpResize, pod.OpPostStart, pod.OpPreStop:
		defer s.work.Begin(work.Start).Done()
	case pod.OpSetUp:
		if !job.Action.Renews { // nothing waits for new content of volumes, so it must not hold back probes
			defer s.work.Begin(work.Start).Done()
		}
	case pod.OpStopSandbox:
		done, err := s.sandboxes.Wait(ctx)
		if err != nil {
			return pod.Outcome{Err: err, Reason: "Canceled"}
		}
		defer done()
		defer s.work.Begin(work.Start).Done()
	case pod.OpRemoveContainer, pod.OpRemoveSandbox:
		turn, err := s.work.Wait(ctx, work.Removal, job.Ref.UID)
		if err != nil {
			return pod.Outcome{Err: err, Reason: "Canceled"}
		}
		defer turn.Done()
	case pod.OpNone, pod.OpPullImage, pod.OpTearDown, pod.OpForget: // no jobs: these actions wait for the network, or cost little
	}
	return s.to.Do(ctx, job)
}

// peoplesRuntime runs users' commands (ExecSync) and streams (exec, attach) as jobs of the scheduler, in the class work.People.
type peoplesRuntime struct {
	server.CRI
	work *work.Scheduler
}

// Exec returns the URL of an exec stream.
func (p peoplesRuntime) Exec(ctx context.Context, containerID string, cmd []string, s server.Streams) (*url.URL, error) {
	defer p.soon()
	return p.CRI.Exec(ctx, containerID, cmd, s)
}

// Attach returns the URL of an attach stream.
func (p peoplesRuntime) Attach(ctx context.Context, containerID string, s server.Streams) (*url.URL, error) {
	defer p.soon()
	return p.CRI.Attach(ctx, containerID, s)
}

// ExecSync runs a command and waits for its end.
func (p peoplesRuntime) ExecSync(ctx context.Context, containerID string, cmd []string) ([]byte, error) {
	defer p.work.Begin(work.People).Done()
	return p.CRI.ExecSync(ctx, containerID, cmd)
}

// soon begins a job of the class People (jobs for which a user waits) for a stream, and ends it after one second. Meanwhile the scheduler
// delays jobs of other classes in favour of the stream.
func (p peoplesRuntime) soon() { time.AfterFunc(time.Second, p.work.Begin(work.People).Done) }

// scheduledStats reads statistics from the runtime when the scheduler of package work allows it.
type scheduledStats struct {
	stats.Runtime
	work *work.Scheduler
}

// ListContainerStats calls the runtime.
func (s scheduledStats) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	turn, err := s.work.Wait(ctx, work.Statistics, "")
	if err != nil {
		return nil, err
	}
	defer turn.Done()
	return s.Runtime.ListContainerStats(ctx, in, opts...)
}

// ListPodSandboxStats calls the runtime.
func (s scheduledStats) ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	turn, err := s.work.Wait(ctx, work.Statistics, "")
	if err != nil {
		return nil, err
	}
	defer turn.Done()
	return s.Runtime.ListPodSandboxStats(ctx, in, opts...)
}

// reopenLog makes the runtime reopen a log when the scheduler of package work allows it.
func (a *Agent) reopenLog(ctx context.Context, containerID string) error {
	turn, err := a.work.Wait(ctx, work.Rotation, types.UID(containerID))
	if err != nil {
		return err
	}
	defer turn.Done()
	return a.cri.ReopenLog(ctx, containerID)
}

// probeLate records in the pod's timeline that a probe began late.
func (a *Agent) probeLate(l probe.Lateness) {
	w := a.loop.Worker(l.Pod.UID)
	if w == nil {
		return
	}
	load := a.work.Load()
	because := fmt.Sprintf("the node runs %d commands at a time, and %d are waiting", load.Limit, load.Waiting)
	if l.Own {
		because = "other checks of its pod had to end first"
	}
	w.Tell(timeline.Record{
		At: l.At, Kind: timeline.KindBegan, What: strings.ToLower(l.Kind.String()) + " probe of " + l.Container, Waited: l.Late,
		Why: "the probe began late, which is not a failure: " + because,
	})
}

// probesBehind reports that many probes on this node begin late, or cannot begin.
func (a *Agent) probesBehind(b probe.Behind) {
	if b.Waiting > 0 {
		a.log.Warn("probes cannot begin", "waiting", b.Waiting, "most", b.Most)
		a.events.NodeEvent(v1.EventTypeWarning, "ProbesLate", fmt.Sprintf(
			"%d probes cannot begin, the first for %v: too many checks of other probes hang. A shorter timeoutSeconds ends such checks sooner",
			b.Waiting, b.Most.Round(time.Second)))
		return
	}
	load := a.work.Load()
	text := fmt.Sprintf("%d of %d probes began late within %v, by up to %v: the machine can run %d commands at the same time. Late probes do not count as failed; longer periods, or probes by HTTP or gRPC, cost less",
		b.Late, b.Runs, b.Within.Round(time.Second), b.Most.Round(100*time.Millisecond), load.Limit)
	a.log.Warn("probes are late", "late", b.Late, "of", b.Runs, "within", b.Within, "most", b.Most, "limit", load.Limit)
	a.events.NodeEvent(v1.EventTypeWarning, "ProbesLate", text)
}
