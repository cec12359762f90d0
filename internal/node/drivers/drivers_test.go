package drivers_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/edge/plugin"
	"github.com/wherry-node/wherry/internal/node/drivers"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// cluster notes what it is told.
type cluster struct {
	mu   sync.Mutex
	has  map[string]csinode.Driver
	fail error
}

func (c *cluster) Put(_ context.Context, d csinode.Driver) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail == nil {
		c.has[d.Name] = d
	}
	return c.fail
}

func (c *cluster) Remove(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.has, name)
	return nil
}

func (c *cluster) get(name string) (csinode.Driver, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.has[name]
	return d, ok
}

// node is the registration of a node on a real directory.
type node struct {
	*drivers.Drivers
	t       *testing.T
	dir     string
	cluster *cluster

	mu         sync.Mutex
	registered []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "plug") // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, cluster: &cluster{has: map[string]csinode.Driver{}}}
	log := slog.New(slog.DiscardHandler)
	n.Drivers = drivers.New(drivers.Config{Cluster: n.cluster, Log: log, Registered: func(name string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.registered = append(n.registered, name)
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

// start starts a driver that registers.
func (n *node) start(file string, cfg simcsi.Config) *simcsi.Driver {
	n.t.Helper()
	d := simcsi.New(cfg)
	n.t.Cleanup(d.Close)
	if err := errors.Join(d.Serve(filepath.Join(n.dir, file+".csi")), d.Announce(filepath.Join(n.dir, "reg", file))); err != nil {
		n.t.Fatal(err)
	}
	return d
}

func (n *node) await(what string, ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("not yet: %s", what)
		}
	}
}

// A driver registers, is given out while its socket is there, and registers again after a restart.
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

// What cannot be registered is told why, and is tried again.
func TestDriverThatCannotRegister(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for want, cfg := range map[string]simcsi.Config{
		`plugins of type "DevicePlugin" are not supported`: {Name: "a", NodeID: "n", Type: "DevicePlugin"},
		"speaks 1.x":                        {Name: "b", NodeID: "n", Versions: []string{"0.3.0", "10.1"}},
		"must have 1 to 63 characters":      {Name: "../../z", NodeID: "n"},
		"the answer has no node_id":         {Name: "c"},
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
	d := simcsi.New(late)
	t.Cleanup(d.Close)
	d.SetFault("NodeGetInfo", &simcsi.Fault{Err: status.Error(codes.Unavailable, "not ready")})
	if err := errors.Join(d.Serve(filepath.Join(n.dir, "late.csi")), d.Announce(filepath.Join(n.dir, "reg", "late"))); err != nil {
		t.Fatal(err)
	}
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
	hung := simcsi.New(simcsi.Config{Name: "hung.example.com", NodeID: "n"})
	t.Cleanup(hung.Close)
	hung.SetFault("NodeGetCapabilities", &simcsi.Fault{Hang: make(chan struct{})})
	if err := errors.Join(hung.Serve(filepath.Join(n.dir, "hung.csi")), hung.Announce(filepath.Join(n.dir, "reg", "hung"))); err != nil {
		t.Fatal(err)
	}
	n.await("the driver hangs", func() bool { return hung.Count("NodeGetCapabilities") > 0 })
	other := n.start("other", simcsi.Config{Name: "other.example.com", NodeID: "n"})
	n.await("the other driver is registered", func() bool { return len(other.Told()) == 1 && n.Driver("other.example.com") != nil })
}
