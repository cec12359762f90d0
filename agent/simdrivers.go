package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/wherry-node/wherry/internal/edge/plugin"
	"github.com/wherry-node/wherry/internal/edge/volume"
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

// These bound how long a simulated machine waits after a failed registration of a driver until the next try. The wait doubles each time.
const (
	registerFirst = 50 * time.Millisecond
	registerMost  = 10 * time.Second
)

// VolumePaths makes the paths at which a CSI driver of a simulated machine stages and publishes volumes, each as a directory with a mount.
// They are in the memory of the machine. Calls may be concurrent.
type VolumePaths interface {
	MountDir(target string) error
	// UnmountDir undoes MountDir. It does nothing if there is no such directory.
	UnmountDir(target string) error
}

// VolumeFiles is the part of a simulated machine's disk that has the records of volumes. Like Disk, it may outlive the machine. The zero
// value is an empty one.
type VolumeFiles struct{ disk volume.MemoryDisk }

// startLocal starts the CSI drivers of this process, as a machine does that boots.
func (m *Machine) startLocal() {
	files := m.shape.VolumeFiles
	if files == nil {
		files = &VolumeFiles{}
	}
	m.memory.Files = &files.disk
	m.local = make(map[string]csi.NodeServer, len(m.shape.LocalDrivers))
	for name, start := range m.shape.LocalDrivers {
		m.local[name] = start(&m.memory)
	}
}

// localDriver returns a driver of this process, whose endpoint is its name.
func (m *Machine) localDriver(name string) csi.NodeServer { return m.local[name] }

// registers returns the part of an agent that registers CSI drivers of a simulated machine. On a real machine, drivers register by a
// socket in a directory that the kernel watches, which does not work with virtual time. When all have registered, no goroutine is left.
func (m *Machine) registers(registry *drivers.Drivers, names []string, log *slog.Logger) func(context.Context) (join func()) {
	slices.Sort(names)
	return func(ctx context.Context) func() {
		var wg sync.WaitGroup
		for _, name := range names {
			wg.Go(func() { register(ctx, registry, name, log) })
		}
		return func() {
			wg.Wait()
			registry.Close()
		}
	}
}

// register registers a driver. It tries again until it succeeds or ctx ends. The first waits are short, because the Node may not exist yet.
func register(ctx context.Context, registry *drivers.Drivers, name string, log *slog.Logger) {
	for wait := registerFirst; ; wait = min(2*wait, registerMost) {
		err := registry.Register(ctx, plugin.Plugin{Type: drivers.PluginType, Name: name, Endpoint: name, Versions: []string{"1.0.0"}})
		if err == nil || ctx.Err() != nil {
			return
		}
		if wait == registerMost {
			log.Warn("plugin not registered; trying again", "plugin", name, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
