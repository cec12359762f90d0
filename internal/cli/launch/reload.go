package launch

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// reconfigurable is the part of an agent that receives new configurations.
type reconfigurable interface {
	Reconfigure(cfg agent.Config) (agent.Reconfigured, error)
	RefuseConfiguration(err error)
}

// reload passes new configurations from the files to the agent.
type reload struct {
	agent    reconfigurable
	hostname string
	log      *slog.Logger
	said     []config.Notice // the notices of the last configuration; nil: none was read since the start
}

// runWatched runs the node. From the node's start on, it passes changes of the configuration's files to the node.
func runWatched(ctx context.Context, r *reload, files config.Files, started <-chan struct{}, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer func() {
		cancel()
		watch.Wait()
	}()
	watch.Go(func() {
		select {
		case <-started:
		case <-ctx.Done():
			return
		}
		w := config.Watch{
			Files: files, Apply: r.apply, Wrong: r.agent.RefuseConfiguration, Log: r.log,
			Right: func() { r.log.Info("the configuration's files are valid again") },
		}
		_ = w.Run(ctx) // it ends only when ctx ends
	})
	return run(ctx)
}

// apply gives the agent a configuration. It logs the notices that are new. The first configuration after the start repeats the
// notices of the start, so those are not logged.
func (r *reload) apply(cfg config.Config, notices []config.Notice) {
	for _, n := range notices {
		if r.said != nil && !slices.Contains(r.said, n) {
			r.log.Warn(n.Message, "subject", n.Subject, "kind", string(n.Kind))
		}
	}
	r.said = append([]config.Notice{}, notices...)
	c, err := AgentConfig(cfg, r.hostname)
	if err == nil {
		_, err = r.agent.Reconfigure(c)
	}
	if err != nil {
		r.agent.RefuseConfiguration(err)
	}
}
