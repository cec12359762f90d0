package drivers_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/edge/plugin"
	"github.com/wherry-node/wherry/internal/node/drivers"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// cluster is a fake Cluster: it keeps the drivers that a CSINode object would list.
type cluster struct {
	mu  sync.Mutex
	has map[string]csinode.Driver
	// put and removed are called at the end of each Put and Remove, unless they are nil.
	put     func(d csinode.Driver)
	removed func()
}

func (c *cluster) Put(_ context.Context, d csinode.Driver) error {
	c.mu.Lock()
	c.has[d.Name] = d
	c.mu.Unlock()
	if c.put != nil {
		c.put(d)
	}
	return nil
}

func (c *cluster) Remove(_ context.Context, name string) error {
	c.mu.Lock()
	delete(c.has, name)
	c.mu.Unlock()
	if c.removed != nil {
		c.removed()
	}
	return nil
}

func (c *cluster) get(name string) (csinode.Driver, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.has[name]
	return d, ok
}

// node is the Drivers of a node, with a plugin watcher on a real registration directory.
type node struct {
	*drivers.Drivers
	t       *testing.T
	dir     string
	cluster *cluster

	changed chan struct{} // gets a value after each change that a test can wait for

	mu         sync.Mutex
	registered []string
}

// note wakes await. It does not block.
func (n *node) note() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "plug") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, changed: make(chan struct{}, 1)}
	n.cluster = &cluster{has: map[string]csinode.Driver{}, removed: n.note}
	log := slog.New(slog.DiscardHandler)
	n.Drivers = drivers.New(drivers.Config{Cluster: n.cluster, Log: log, Registered: func(name string) {
		n.mu.Lock()
		n.registered = append(n.registered, name)
		n.mu.Unlock()
		n.note()
	}})
	w := plugin.New(plugin.Config{Dir: filepath.Join(dir, "reg"), Handlers: map[string]plugin.Handler{drivers.PluginType: n.Drivers}, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return n
}

// start starts a simulated CSI driver and lets it register.
func (n *node) start(file string, cfg simcsi.Config) *simcsi.Driver {
	n.t.Helper()
	d := n.make(cfg)
	n.announce(d, file)
	return d
}

// make creates a simulated CSI driver that does not register yet.
func (n *node) make(cfg simcsi.Config) *simcsi.Driver {
	cfg.Called = n.note
	d := simcsi.New(cfg)
	n.t.Cleanup(d.Close)
	return d
}

// announce starts the server of a driver, and lets the driver register in the registration directory.
func (n *node) announce(d *simcsi.Driver, file string) {
	n.t.Helper()
	if err := errors.Join(d.Serve(filepath.Join(n.dir, file+".csi")), d.Announce(filepath.Join(n.dir, "reg", file))); err != nil {
		n.t.Fatal(err)
	}
}

// await waits until ok returns true. It asks after each change.
func (n *node) await(what string, ok func() bool) {
	n.t.Helper()
	for !ok() {
		select {
		case <-n.changed:
		case <-n.t.Context().Done():
			n.t.Fatalf("not yet: %s", what)
		}
	}
}

// A driver can be used while its socket is there, and registers again after a restart.
func TestDriverRegisters(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	cfg := simcsi.Config{Name: "disks.example.com", NodeID: "i-1", MaxVolumes: 25, Topology: map[string]string{"zone": "a"}, Stage: true}
	d := n.start("disks.sock", cfg)
	n.await("the driver is told", func() bool { return slices.Equal(d.Told(), []string{"registered"}) })
	if got := n.Driver(cfg.Name); got == nil || !got.Can().Stage || got.Can().MountGroup {
		t.Errorf("driver %+v", got)
	}
	if got, _ := n.cluster.get(cfg.Name); got.NodeID != "i-1" || got.MaxVolumes != 25 || got.Topology["zone"] != "a" {
		t.Errorf("the cluster has %+v", got)
	}
	d.Close()
	n.await("the driver is gone", func() bool { _, ok := n.cluster.get(cfg.Name); return !ok && n.Driver(cfg.Name) == nil })
	again := n.start("disks.sock", cfg)
	n.await("the driver is back", func() bool { return len(again.Told()) == 1 && n.Driver(cfg.Name) != nil })
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.registered, []string{cfg.Name, cfg.Name}) {
		t.Errorf("reported: %v", n.registered)
	}
}

// A driver that cannot be registered gets the reason as the answer to its registration, and is asked again later.
func TestDriverThatCannotRegister(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for want, cfg := range map[string]simcsi.Config{
		`plugins of type "DevicePlugin" are not supported`: {Name: "a", NodeID: "n", Type: "DevicePlugin"},
		"speaks 1.x":                        {Name: "b", NodeID: "n", Versions: []string{"0.3.0", "10.1"}},
		"must have 1 to 63 characters":      {Name: "../../z", NodeID: "n"},
		"node_id has 0 bytes":               {Name: "c"},
		"must be an absolute path":          {Name: "d", NodeID: "n", Endpoint: "relative.sock"},
		"CSI driver e, NodeGetCapabilities": {Name: "e", NodeID: "n", Endpoint: "/nowhere.sock"},
	} {
		d := n.start("x"+strings.ToLower(cfg.Name[len(cfg.Name)-1:]), cfg)
		n.await("the driver hears "+want, func() bool { told := d.Told(); return len(told) > 0 && strings.Contains(told[0], want) })
		if n.Driver(cfg.Name) != nil {
			t.Errorf("%s is registered", cfg.Name)
		}
	}
	late := simcsi.Config{Name: "late.example.com", NodeID: "n"}
	d := n.make(late)
	d.SetFault("NodeGetInfo", &simcsi.Fault{Err: status.Error(codes.Unavailable, "not ready")})
	n.announce(d, "late")
	n.await("the driver hears its own error", func() bool {
		told := d.Told()
		return len(told) > 0 && strings.Contains(told[0], "CSI driver late.example.com, NodeGetInfo: not ready")
	})
	d.SetFault("NodeGetInfo", nil)
	n.await("the driver is registered", func() bool { return slices.Contains(d.Told(), "registered") && n.Driver(late.Name) != nil })
}

// A driver that hangs while it registers delays no other.
func TestDriverThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	hung := n.make(simcsi.Config{Name: "hung.example.com", NodeID: "n"})
	hung.SetFault("NodeGetCapabilities", &simcsi.Fault{Hang: make(chan struct{})})
	n.announce(hung, "hung")
	n.await("the driver hangs", func() bool { return hung.Count("NodeGetCapabilities") > 0 })
	other := n.start("other", simcsi.Config{Name: "other.example.com", NodeID: "n"})
	n.await("the other driver is registered", func() bool { return len(other.Told()) == 1 && n.Driver("other.example.com") != nil })
}

// The next version of a driver registers on a socket of its own, and the old one ends at the same time. The cluster lists the new one.
func TestADriverIsReplaced(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "plug")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const name = "disks.example.com"
	versions := map[string]plugin.Plugin{}
	for _, id := range []string{"old", "new"} {
		d := simcsi.New(simcsi.Config{Name: name, NodeID: id})
		t.Cleanup(d.Close)
		versions[id] = plugin.Plugin{Type: drivers.PluginType, Name: name, Endpoint: filepath.Join(dir, id), Versions: []string{"1.0.0"}}
		if err := d.Serve(versions[id].Endpoint); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{has: map[string]csinode.Driver{}}
	d := drivers.New(drivers.Config{Cluster: c, Registered: func(string) {}, Log: slog.New(slog.DiscardHandler)})
	if err := d.Register(t.Context(), versions["old"]); err != nil {
		t.Fatal(err)
	}
	inPut, release := make(chan struct{}), make(chan struct{})
	c.put = func(csinode.Driver) {
		close(inPut)
		<-release
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.Register(t.Context(), versions["new"]); err != nil {
			t.Error(err)
		}
	})
	<-inPut
	wg.Go(func() { d.Deregister(t.Context(), versions["old"]) })
	for d.Driver(name) != nil { // wait until Deregister has begun
		runtime.Gosched()
	}
	close(release)
	wg.Wait()
	if got, ok := c.get(name); !ok || got.NodeID != "new" || d.Driver(name) == nil {
		t.Errorf("the cluster has %+v (%v), the node has %v", got, ok, d.Driver(name))
	}
	d.Deregister(t.Context(), versions["new"])
	if got, ok := c.get(name); ok || d.Driver(name) != nil {
		t.Errorf("after the end of both: the cluster has %+v, the node has %v", got, d.Driver(name))
	}
}
