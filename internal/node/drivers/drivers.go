package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/edge/csi"
	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/edge/plugin"
)

// Cluster learns which drivers the node has. csinode.Object is one.
type Cluster interface {
	Put(ctx context.Context, d csinode.Driver) error
	Remove(ctx context.Context, driver string) error
}

// Config configures Drivers.
type Config struct {
	// Cluster is nil on a node without an API server.
	Cluster Cluster
	// Registered is called when a driver can be used. It must not block.
	Registered func(driver string)
	Log        *slog.Logger
}

// Drivers are the CSI drivers of this node.
type Drivers struct {
	cfg Config

	mu     sync.Mutex
	byName map[string]*registered
}

type registered struct {
	driver   *csi.Driver
	endpoint string
}

// PluginType is the type of plugins that are CSI drivers.
const PluginType = "CSIPlugin"

var _ plugin.Handler = (*Drivers)(nil)

// New returns Drivers. It does no IO and starts nothing.
func New(cfg Config) *Drivers { return &Drivers{cfg: cfg, byName: map[string]*registered{}} }

// Driver returns a registered driver, or nil.
func (d *Drivers) Driver(name string) *csi.Driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.byName[name]; r != nil {
		return r.driver
	}
	return nil
}

// Names returns the names of the registered drivers.
func (d *Drivers) Names() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.byName {
		names = append(names, name)
	}
	return names
}

// Register takes a driver: it asks the driver about itself and tells the cluster. A driver of the same name takes the place of an
// earlier one, so that a driver can be replaced by its next version while both run.
func (d *Drivers) Register(ctx context.Context, p plugin.Plugin) error {
	if !speaksV1(p.Versions) {
		return fmt.Errorf("CSI driver %s speaks the versions %q of CSI, this node agent speaks 1.x", p.Name, p.Versions)
	}
	driver, err := csi.New(p.Name, p.Endpoint)
	if err != nil {
		return err
	}
	info, err := driver.Ask(ctx)
	if err == nil && d.cfg.Cluster != nil {
		err = d.cfg.Cluster.Put(ctx, csinode.Driver{Name: p.Name, NodeID: info.NodeID, MaxVolumes: info.MaxVolumes, Topology: info.Topology})
	}
	if err == nil {
		err = ctx.Err() // the socket may have gone meanwhile
	}
	if err != nil {
		driver.Close()
		return err
	}
	d.mu.Lock()
	before := d.byName[p.Name]
	d.byName[p.Name] = &registered{driver, p.Endpoint}
	d.mu.Unlock()
	if before != nil {
		before.driver.Close()
	}
	d.cfg.Registered(p.Name)
	return nil
}

// Deregister forgets a driver, unless another one has taken its place.
func (d *Drivers) Deregister(ctx context.Context, p plugin.Plugin) {
	d.mu.Lock()
	r := d.byName[p.Name]
	if r == nil || r.endpoint != p.Endpoint {
		d.mu.Unlock()
		return
	}
	delete(d.byName, p.Name)
	d.mu.Unlock()
	r.driver.Close()
	if d.cfg.Cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	if err := d.cfg.Cluster.Remove(ctx, p.Name); err != nil && !errors.Is(err, context.Canceled) {
		d.cfg.Log.Warn("the cluster still lists a CSI driver that this node no longer has", "driver", p.Name, "err", err)
	}
}

// removeWithin bounds the request that takes a driver off the CSINode.
const removeWithin = 10 * time.Second

func speaksV1(versions []string) bool {
	for _, v := range versions {
		if v = strings.TrimPrefix(v, "v"); v == "1" || strings.HasPrefix(v, "1.") {
			return true
		}
	}
	return false
}
