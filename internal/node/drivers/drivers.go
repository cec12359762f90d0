package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	proto "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/wherry-node/wherry/internal/edge/csi"
	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/edge/plugin"
)

// Cluster writes the CSI drivers of the node to its CSINode object in the API. csinode.Object implements it. Drivers makes one call at
// a time.
type Cluster interface {
	Put(ctx context.Context, d csinode.Driver) error
	Remove(ctx context.Context, driver string) error
}

// Config configures Drivers.
type Config struct {
	// Cluster is nil on a node without an API server.
	Cluster Cluster
	// Objects are the CSIDriver objects of the cluster; nil: the limits of drivers are not kept up to date (see Run).
	Objects Objects
	// Dial connects to the endpoint of a driver; nil: csi.Socket.
	Dial csi.Dial
	// Local returns a driver of this process by its endpoint, or nil if the endpoint is another one. It may be nil.
	Local func(endpoint string) proto.NodeServer
	// Registered is called when a driver can be used. It must not block.
	Registered func(driver string)
	// Attach is called after each change of a CSIDriver object that Run sees: it says whether volumes of the driver have to be attached
	// (attachRequired). It must not block. It may be nil.
	Attach func(driver string, required bool)
	// Republish is called at the same times as Attach: it says whether volumes of the driver have to be published again and again (requiresRepublish). It must
	// not block. It may be nil.
	Republish func(driver string, required bool)
	// Called is called after each call to a driver. It may be nil.
	Called csi.Called
	Log    *slog.Logger
}

// Drivers are the CSI drivers of this node.
type Drivers struct {
	cfg Config
	// telling is a lock around each call of Cluster: a goroutine holds the lock while its element is in the channel. It changes or checks
	// byName before it releases the lock, so in the end the API lists the same drivers as byName. The lock is a channel and not a mutex,
	// because a goroutine must stop waiting for it when its context ends.
	telling chan struct{}
	limits  *limits

	mu     sync.Mutex
	byName map[string]*registered
}

type registered struct {
	driver   *csi.Driver
	endpoint string
	info     csinode.Driver // what the cluster has; a goroutine that holds the lock telling may use it
	failing  bool           // the last try to update the limit has failed
}

// PluginType is the type of plugins that are CSI drivers.
const PluginType = "CSIPlugin"

var _ plugin.Handler = (*Drivers)(nil)

// New returns Drivers. It does no IO and starts nothing.
func New(cfg Config) *Drivers {
	if cfg.Dial == nil {
		cfg.Dial = csi.Socket
	}
	return &Drivers{cfg: cfg, telling: make(chan struct{}, 1), limits: newLimits(&cfg), byName: map[string]*registered{}}
}

// Driver returns a registered driver, or nil.
func (d *Drivers) Driver(name string) *csi.Driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.byName[name]; r != nil {
		return r.driver
	}
	return nil
}

// Register asks a driver for its node ID and limits, adds the driver to the cluster, and makes Driver return it from then on. The
// driver replaces an earlier one of the same name, so that the next version of a driver can register while the earlier one still runs.
func (d *Drivers) Register(ctx context.Context, p plugin.Plugin) error {
	if !speaksV1(p.Versions) {
		return fmt.Errorf("CSI driver %s speaks the versions %q of CSI, this node agent speaks 1.x", p.Name, p.Versions)
	}
	driver, err := d.connect(p)
	if err != nil {
		return err
	}
	info, err := driver.Ask(ctx)
	if err == nil {
		err = d.put(ctx, &registered{driver: driver, endpoint: p.Endpoint, info: csinode.Driver{
			Name: p.Name, NodeID: info.NodeID, MaxVolumes: info.MaxVolumes, Topology: info.Topology,
		}})
	}
	if err != nil {
		driver.Close()
		return err
	}
	d.cfg.Registered(p.Name)
	return nil
}

func (d *Drivers) connect(p plugin.Plugin) (*csi.Driver, error) {
	if d.cfg.Local != nil {
		if server := d.cfg.Local(p.Endpoint); server != nil {
			return csi.NewLocal(p.Name, server, d.cfg.Called), nil
		}
	}
	return csi.New(p.Name, p.Endpoint, d.cfg.Dial, d.cfg.Called)
}

// put adds a driver to the cluster, and then stores the driver in byName.
func (d *Drivers) put(ctx context.Context, r *registered) error {
	if d.cfg.Cluster != nil {
		done, err := d.turn(ctx)
		if err != nil {
			return err
		}
		defer done()
		if err := d.cfg.Cluster.Put(ctx, r.info); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil { // the socket may have gone in the meantime
		return err
	}
	d.mu.Lock()
	before := d.byName[r.info.Name]
	d.byName[r.info.Name] = r
	d.limits.registered(r.info.Name)
	d.mu.Unlock()
	if before != nil {
		before.driver.Retire()
	}
	return nil
}

// turn waits until no other goroutine calls Cluster. The caller calls done after its own call of Cluster.
func (d *Drivers) turn(ctx context.Context) (done func(), err error) {
	select {
	case d.telling <- struct{}{}:
		return func() { <-d.telling }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the registration of another driver: %w", ctx.Err())
	}
}

// Close ends the connections to all drivers, whose calls in flight fail. The cluster still lists the drivers.
func (d *Drivers) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.byName {
		r.driver.Close()
	}
	clear(d.byName)
}

// Deregister ends the use of a driver, unless another driver has replaced it.
func (d *Drivers) Deregister(ctx context.Context, p plugin.Plugin) {
	d.mu.Lock()
	r := d.byName[p.Name]
	if r == nil || r.endpoint != p.Endpoint {
		d.mu.Unlock()
		return
	}
	delete(d.byName, p.Name)
	d.limits.gone(p.Name)
	d.mu.Unlock()
	r.driver.Retire()
	if d.cfg.Cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	if err := d.remove(ctx, p.Name); err != nil && !errors.Is(err, context.Canceled) {
		d.cfg.Log.Warn("the cluster still lists a CSI driver that this node no longer has", "driver", p.Name, "err", err)
	}
}

// remove removes a driver from the cluster, unless another driver of the same name has registered in the meantime.
func (d *Drivers) remove(ctx context.Context, name string) error {
	done, err := d.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if d.Driver(name) != nil {
		return nil
	}
	return d.cfg.Cluster.Remove(ctx, name)
}

// removeWithin is how long the removal of a driver from the CSINode may take, including the wait for other requests.
const removeWithin = 40 * time.Second

func speaksV1(versions []string) bool {
	for _, v := range versions {
		if v = strings.TrimPrefix(v, "v"); v == "1" || strings.HasPrefix(v, "1.") {
			return true
		}
	}
	return false
}
