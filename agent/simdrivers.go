package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/edge/plugin"
	"github.com/wherry-node/wherry/internal/node/drivers"
)

// dialDriver connects to a CSI driver of a simulated machine, whose endpoint is its name.
func (m *Machine) dialDriver(ctx context.Context, name string) (net.Conn, error) {
	dial := m.shape.Drivers[name]
	if dial == nil {
		return nil, fmt.Errorf("the simulated machine has no CSI driver %s", name)
	}
	return dial(ctx)
}

// registerEvery is how long a simulated machine waits after a failed registration of a driver until the next try.
const registerEvery = 10 * time.Second

// registers returns the part of an agent that registers the CSI drivers of a simulated machine. On a real machine, drivers register by a
// socket in a directory that the kernel watches, which does not work with virtual time.
func (m *Machine) registers(registry *drivers.Drivers, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		var wg sync.WaitGroup
		for name := range m.shape.Drivers {
			wg.Go(func() {
				for {
					err := registry.Register(ctx, plugin.Plugin{Type: drivers.PluginType, Name: name, Endpoint: name, Versions: []string{"1.0.0"}})
					if err == nil || ctx.Err() != nil {
						return
					}
					log.Warn("plugin not registered; trying again", "plugin", name, "err", err)
					select {
					case <-ctx.Done():
						return
					case <-time.After(registerEvery):
					}
				}
			})
		}
		<-ctx.Done()
		wg.Wait()
		registry.Close()
		return nil
	}
}
