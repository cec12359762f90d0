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

// Here stands which of the node's own work is of which class: all of it meets in one work.Scheduler, which is the agent's own.
// Probes ask it themselves (package probe).

// buildWork makes the scheduler.
func (a *Agent) buildWork() error {
	a.work = work.New(work.Config{Processors: a.processors(), Shares: a.shares})
	for _, g := range []struct {
		name, help string
		value      func(work.Load) int
	}{
		{"wherry_work_limit", "Pieces of the node's own work that the machine bears at once: commands, starts, stops", func(l work.Load) int { return l.Limit }},
		{"wherry_work_waiting", "Pieces of the node's own work that wait for their turn", func(l work.Load) int { return l.Waiting }},
	} {
		gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 { return float64(g.value(a.work.Load())) })
		if err := a.deps.Metrics.Register(gauge); err != nil {
			return fmt.Errorf("register %s: %w", g.name, err)
		}
	}
	return nil
}

// processors is how much of the node's own work the machine does at once at least.
func (a *Agent) processors() int {
	switch {
	case a.cfg.Processors > 0:
		return a.cfg.Processors
	case a.deps.Machine.real:
		return runtime.NumCPU()
	}
	return a.deps.Machine.shape.CPUs // on every machine the same
}

// mostStarts bounds how many pods are being started at once, whatever the runtime seems to bear.
const mostStarts = 64

// startPlaces bounds how many pods are being started at once. The least are enough to keep a runtime busy that makes a pod with a
// processor's work of about a tenth of a second and as much waiting, and few enough that pods finish one after another. Where a
// start waits longer, for a network or a disk, more are found out to be useful.
func (a *Agent) startPlaces() (least, most int) {
	if n := a.cfg.StartPlaces; n > 0 {
		return n, n
	}
	least = 2 + 2*a.processors()
	return least, max(least, mostStarts)
}

// workShares reads Config.WorkShares; nil where it is.
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

// scheduledPerformer says of each action what it is to the scheduler.
type scheduledPerformer struct {
	to   podworker.Performer
	work *work.Scheduler
}

// Do performs an action. Removals wait for their turn; if the agent ends meanwhile, the action says so.
func (s scheduledPerformer) Do(ctx context.Context, job pod.Job) pod.Outcome {
	switch job.Action.Op {
	case pod.OpRunSandbox, pod.OpStartContainer, pod.OpStopContainer, pod.OpStopSandbox, pod.OpResize, pod.OpPostStart, pod.OpPreStop, pod.OpSetUp:
		defer s.work.Begin(work.Start).Done()
	case pod.OpRemoveContainer, pod.OpRemoveSandbox:
		turn, err := s.work.Wait(ctx, work.Removal, job.Ref.UID)
		if err != nil {
			return pod.Outcome{Err: err, Reason: "Canceled"}
		}
		defer turn.Done()
	case pod.OpNone, pod.OpPullImage, pod.OpTearDown, pod.OpForget: // they wait for the network, or cost little
	}
	return s.to.Do(ctx, job)
}

// peoplesRuntime notes what people have the runtime do.
type peoplesRuntime struct {
	server.CRI
	work *work.Scheduler
}

// Exec asks for the URL of an exec stream.
func (p peoplesRuntime) Exec(ctx context.Context, containerID string, cmd []string, s server.Streams) (*url.URL, error) {
	defer p.soon()
	return p.CRI.Exec(ctx, containerID, cmd, s)
}

// Attach asks for the URL of an attach stream.
func (p peoplesRuntime) Attach(ctx context.Context, containerID string, s server.Streams) (*url.URL, error) {
	defer p.soon()
	return p.CRI.Attach(ctx, containerID, s)
}

// ExecSync runs a command to its end.
func (p peoplesRuntime) ExecSync(ctx context.Context, containerID string, cmd []string) ([]byte, error) {
	defer p.work.Begin(work.People).Done()
	return p.CRI.ExecSync(ctx, containerID, cmd)
}

// soon makes room for what begins when the stream is opened: its first moment is what somebody waits for.
func (p peoplesRuntime) soon() { time.AfterFunc(time.Second, p.work.Begin(work.People).Done) }

// scheduledStats reads numbers from the runtime in their turn.
type scheduledStats struct {
	stats.Runtime
	work *work.Scheduler
}

// ListContainerStats asks the runtime.
func (s scheduledStats) ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	turn, err := s.work.Wait(ctx, work.Statistics, "")
	if err != nil {
		return nil, err
	}
	defer turn.Done()
	return s.Runtime.ListContainerStats(ctx, in, opts...)
}

// ListPodSandboxStats asks the runtime.
func (s scheduledStats) ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	turn, err := s.work.Wait(ctx, work.Statistics, "")
	if err != nil {
		return nil, err
	}
	defer turn.Done()
	return s.Runtime.ListPodSandboxStats(ctx, in, opts...)
}

// reopenLog has the runtime reopen a log in its turn.
func (a *Agent) reopenLog(ctx context.Context, containerID string) error {
	turn, err := a.work.Wait(ctx, work.Rotation, types.UID(containerID))
	if err != nil {
		return err
	}
	defer turn.Done()
	return a.cri.ReopenLog(ctx, containerID)
}

// probeLate puts into the pod's timeline that a probe began late.
func (a *Agent) probeLate(l probe.Lateness) {
	w := a.loop.Worker(l.Pod.UID)
	if w == nil {
		return
	}
	load := a.work.Load()
	w.Tell(timeline.Record{
		At: l.At, Kind: timeline.KindBegan, What: strings.ToLower(l.Kind.String()) + " probe of " + l.Container, Waited: l.Late,
		Why: fmt.Sprintf("it was late, which is no failure: commands wait for each other on this node, %d at once and %d waiting", load.Limit, load.Waiting),
	})
}

// probesBehind says that the node does not keep the periods of probes.
func (a *Agent) probesBehind(b probe.Behind) {
	load := a.work.Load()
	text := fmt.Sprintf("%d of %d probes began late within %v, by up to %v: the machine bears %d commands at once. Late probes are not failed ones; longer periods, or probes by HTTP or gRPC, cost less",
		b.Late, b.Runs, b.Within.Round(time.Second), b.Most.Round(100*time.Millisecond), load.Limit)
	a.log.Warn("probes are late", "late", b.Late, "of", b.Runs, "within", b.Within, "most", b.Most, "limit", load.Limit)
	a.events.NodeEvent(v1.EventTypeWarning, "ProbesLate", text)
}
