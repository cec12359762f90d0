package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Run runs the node until ctx ends. When it returns, the pods keep running.
func (a *Agent) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	a.Begin(ctx, func(err error) { ended <- err })
	return <-ended
}

// Begin runs the node until ctx ends, as Run does, but needs no goroutine while it has nothing to do. It returns when the node has started, or
// has failed to start. It calls ended once, when Run would return, with the error that Run would return; this may be before Begin returns.
func (a *Agent) Begin(ctx context.Context, ended func(error)) {
	// client-go logs to the agent's own log instead of the process's.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(a.log.Handler()))
	finish := func(err error) {
		a.close()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		ended(err)
	}
	if err := a.start(ctx); err != nil {
		finish(err)
		return
	}
	parts := a.parts()
	a.live.begin()
	a.log.Info("node agent started", "version", a.cfg.KubeletVersion)
	if a.deps.Started != nil {
		a.deps.Started()
	}
	beginAll(ctx, parts, finish)
}

// start prepares everything that the parts need.
func (a *Agent) start(ctx context.Context) error {
	if err := a.open(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Canceled
		}
		return err
	}
	if err := a.build(); err != nil {
		return err
	}
	a.opened.closes = append([]func(){a.events.open(ctx)}, a.opened.closes...) // before any part that records events
	if err := a.platform.prepare(ctx); err != nil {
		return err
	}
	a.look(ctx)
	a.readHost()
	if _, err := a.node.ReadMachine(); err != nil {
		a.log.Error("the machine's facts cannot be read; trying again with the node's status", "err", err)
	}
	_, _ = a.resolver.Read() // reports a wrong resolver file also on a node without pods; otherwise only container starts read the file
	return nil
}

// parts returns everything that the agent runs.
func (a *Agent) parts() []part {
	parts := append(a.opened.parts, []part{
		{name: "runtime", begin: a.runtime.Begin},
		{name: "pleg", begin: a.pleg.Begin},
		{name: "probes", begin: a.probes.Begin},
		{name: "syncloop", begin: a.loop.Begin},
		{name: "eviction", begin: a.evictor.Begin},
		{name: "image collection", begin: a.collector.Begin},
		{name: "objects", begin: a.platform.objects.Begin},
	}...)
	parts = append(parts, a.platform.drivers...)
	if a.platform.driverLater != nil {
		parts = append(parts, part{name: "cgroup driver", run: a.platform.driverLater})
	}
	if a.server != nil {
		parts = append(parts, a.serverPart())
	}
	if a.rotator = a.logRotator(); a.rotator != nil {
		parts = append(parts, part{name: "log rotation", begin: a.rotator.Begin})
	}
	if a.pulls != nil {
		parts = append(parts, part{name: "image pull records", run: a.pulls.Run})
	}
	if t := a.tracer.Load(); t != nil {
		parts = append(parts, part{name: "traces", run: t.Run})
	}
	if a.push != nil {
		parts = append(parts, part{name: "push", run: a.push.Run})
	}
	if a.recorder != nil {
		parts = append(parts, part{name: "recorder", run: a.recorder.Run})
	}
	if a.shutdown != nil {
		parts = append(parts, part{name: "shutdown", run: a.shutdown.Run})
	}
	if a.control != nil {
		parts = append(parts, part{name: "control", run: a.serveControl})
	}
	if a.podsAPI != nil {
		parts = append(parts, part{name: "pods API", run: a.servePodsAPI})
	}
	if a.deps.Machine.real {
		parts = append(parts, part{name: "kernel log", run: a.watchKills}, part{name: "disk layout", run: a.stats.Run})
	}
	if a.deps.Client != nil {
		parts = append(parts, part{name: "heartbeat", begin: a.heartbeat.Begin}, part{name: "own node", begin: a.own.Begin}, part{name: "status", begin: a.writer.Begin}, part{name: "mirrors", begin: a.mirrors.Begin})
	}
	parts = append(parts, a.offlineParts()...)
	if a.deps.Client == nil && a.cfg.Kubelet.PodCIDR != "" {
		parts = append(parts, part{name: "pod CIDR", run: a.ownPodCIDR})
	}
	return append(parts, a.sourceParts()...)
}

// look reads the runtime's status before the first status of the node is computed. Without it, a node whose agent is
// replaced would be not ready for a moment. look returns at once if the runtime is down, and soon if the runtime hangs.
func (a *Agent) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a.runtime.Ask(ctx)
	a.began = time.Now()
}

// part is one of the components of the agent. It runs until its context ends. A part has either run, which blocks, or begin, which
// returns at once, for a part that needs no goroutine of its own while it has nothing to do. The agent calls join, the result of begin,
// after the end of the context.
type part struct {
	name  string
	run   func(context.Context) error
	begin func(context.Context) (join func())
}

// beginAll runs the parts until ctx ends or a part fails. It returns at once. When all parts have ended, it calls ended with their errors. Parts
// end in any order, so each part must work without the others at the end.
func beginAll(ctx context.Context, parts []part, ended func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		joins []func()
	)
	for _, p := range parts {
		if p.begin != nil {
			joins = append(joins, p.begin(ctx))
			continue
		}
		wg.Go(func() {
			err := p.run(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
				mu.Unlock()
			}
			cancel()
		})
	}
	context.AfterFunc(ctx, func() {
		cancel()
		for _, join := range joins {
			join()
		}
		wg.Wait()
		ended(errors.Join(errs...))
	})
}
