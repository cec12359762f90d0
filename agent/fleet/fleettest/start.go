package fleettest

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// TB is the part of testing.TB that Start uses.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// readyTimeout bounds the time until all nodes are Ready: a minute, and a little for each node.
const readyTimeout = time.Minute

// Cluster is a cluster of simulated nodes. Its methods are those of the fleet.
type Cluster struct {
	*fleet.Fleet
	// Client configures the access to the API server.
	Client *rest.Config

	t TB
}

// Expect fails the test unless, at some moment before the time within is over, all expectations hold at once. An expectation is a text
// for fleet.ParseExpectation, for example "pods=running".
func (c *Cluster) Expect(within time.Duration, expectations ...string) {
	c.t.Helper()
	all, err := fleet.ParseExpectations(expectations)
	if err != nil {
		c.t.Fatalf("%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if _, err := c.Await(ctx, 0, all...); err != nil {
		c.t.Fatalf("after %s: %v", within, err)
	}
}

// Start runs the given number of nodes on an API server in memory. The nodes are named fleet-node-1, fleet-node-2 and so on.
func Start(t TB, nodes int) *Cluster {
	t.Helper()
	return StartConfig(t, fleet.Config{Groups: []fleet.Group{{Count: nodes}}})
}

// StartConfig runs a fleet with the given configuration. Without Config.Client the nodes join an API server in memory.
func StartConfig(t TB, cfg fleet.Config) *Cluster {
	t.Helper()
	if cfg.Client == nil {
		cfg.Client, cfg.Identity = simulated.NewAPIServer(cfg.Seed).Client("fleettest"), fleet.Shared
	}
	f, err := fleet.New(cfg)
	if err != nil {
		t.Fatalf("start a fleet: %v", err)
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Fatalf("end the fleet: %v", err)
		}
	})
	total := 0
	for i := range cfg.Groups {
		total += cfg.Groups[i].Count
	}
	if err := await(f, ended, readyTimeout+time.Duration(total)*20*time.Millisecond); err != nil {
		t.Fatalf("start a fleet: %v", err)
	}
	return &Cluster{f, cfg.Client, t}
}

// await waits until all nodes are Ready.
func await(f *fleet.Fleet, ended chan error, most time.Duration) error {
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s := f.Status()
		if s.Settled() {
			return nil
		}
		select {
		case err := <-ended:
			ended <- nil // the function given to t.Cleanup receives from ended too
			return fmt.Errorf("it ended: %w", err)
		case <-deadline.C:
			return fmt.Errorf("not after %s: %d of %d nodes are Ready", most, s.Nodes.Ready, s.Nodes.Want)
		case <-tick.C:
		}
	}
}
