package agent

import (
	"context"
	"io"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/shutdown"
	"github.com/wherry-node/wherry/internal/edge/logind"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/node/nodeshutdown"
	"github.com/wherry-node/wherry/internal/node/syncloop"
)

// buildShutdown wires the part that notices a shutdown of the machine and then ends the pods in order. If the configuration gives pods no
// time to end (shutdownGracePeriod), there is no such part.
func (a *Agent) buildShutdown() error {
	policy := shutdownPolicy(&a.cfg)
	if policy.Whole() == 0 {
		return nil
	}
	cfg := nodeshutdown.Config{
		Policy: policy, Pods: endingPods{a.loop, a}, Log: a.log,
		Open: a.openPower,
		Changed: func() {
			if a.heartbeat != nil {
				a.heartbeat.Now()
			}
		},
		Event: func(message string) { a.events.NodeEvent(v1.EventTypeNormal, shutdown.EventReason, message) },
	}
	if a.deps.Machine.real {
		cfg.File = filepath.Join(a.cfg.RootDir, "graceful_node_shutdown_state")
	}
	a.shutdown = nodeshutdown.New(cfg)
	return stats.RegisterShutdown(a.deps.Metrics, a.shutdown.Times)
}

// shutdownPolicy converts the configuration for package shutdown.
func shutdownPolicy(cfg *Config) shutdown.Policy {
	k, gates := &cfg.Kubelet, gates(cfg)
	if !gates.Enabled("GracefulNodeShutdown") {
		return nil
	}
	var periods []shutdown.Period
	if gates.Enabled("GracefulNodeShutdownBasedOnPodPriority") {
		for _, p := range k.ShutdownGracePeriodByPodPriority {
			periods = append(periods, shutdown.Period{Priority: p.Priority, Grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
		}
	}
	return shutdown.New(periods, k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration)
}

// goesDown reports whether the machine is going down.
func (a *Agent) goesDown() bool { return a.shutdown != nil && a.shutdown.Down() }

// endingPods gives the part that handles shutdowns access to the node's pods.
type endingPods struct {
	*syncloop.Loop
	a *Agent
}

// Reported reports whether the API server has the pod's terminal status. This is so if the watch shows the pod with a
// terminal phase, or no longer shows the pod. On a standalone node the result is always true.
func (e endingPods) Reported(uid types.UID) bool {
	if e.a.writer == nil {
		return true
	}
	p, _ := e.a.pods.Get(uid)
	if p != nil && pod.IsStatic(p) {
		p = e.a.pods.Mirror(p)
	}
	return p == nil || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// openPower connects the agent to what says when the machine shuts down: logind, or the simulated machine.
func (a *Agent) openPower(ctx context.Context) (nodeshutdown.Bus, error) {
	if !a.deps.Machine.real {
		return a.deps.Machine.power.open(), nil
	}
	bus, err := logind.Open(ctx, logind.SystemBus)
	if err != nil {
		return nil, err
	}
	return delays{bus}, nil
}

// delays is the connection to logind, by which the agent delays a shutdown. Its methods call logind.Bus with the directory of logind's
// configuration, or with the texts that logind shows about the delay.
type delays struct{ *logind.Bus }

func (d delays) Delay(ctx context.Context, longest time.Duration) error {
	return d.Raise(ctx, logind.ConfigDir, longest)
}

func (d delays) Inhibit(ctx context.Context) (io.Closer, error) {
	return d.Bus.Inhibit(ctx, "kubelet", "Kubelet needs time to handle node shutdown")
}
