package fleet

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// restartWait is the wait before an agent that failed is started again.
const restartWait = 5 * time.Second

// node is one node of a fleet. Its simulated machine and containers exist as long as the node does. Its agent may end, and then the node
// starts a new agent.
type node struct {
	fleet *Fleet
	group *Group
	index int
	name  string
	slice int
	link  *link
	clock clock // wrong while the node has FaultClock
	// identity is the node's client certificate; nil: there is none yet, or Config.Identity is not Certificate. Only turn, and close after
	// the node has ended, use it.
	identity *identity.Memory
	isNew    bool               // the cluster had no Node of this name when this one began to join
	disk     agent.Disk         // keeps its content when the machine crashes
	volumes  *agent.VolumeFiles // like disk; nil: the group has no CSI drivers
	rounds   *rounds.Rounds     // starts the node's agents, one after another
	// end ends the node. After end, join waits until no agent of the node runs any more.
	end, join func()

	// The fleet's lock guards the fields below.
	began  time.Time           // when the node began to join
	joined bool                // the Node has been Ready once
	ready  bool                // whether the Node is Ready in the API
	leaves bool                // the node is being removed
	down   bool                // the agent does not run because of FaultCrash or FaultAgent
	err    error               // why the last agent failed; nil while an agent runs
	waits  string              // what the node waits for before it starts its agent; "": nothing
	runs   bool                // an agent runs, or begins or ends to do so
	next   time.Time           // when the next agent may start
	stop   context.CancelFunc  // ends the agent that runs; nil: none runs
	faults map[int]activeFault // by the number that Inject gave them
	sim    *simulated.Node     // nil: the machine is off
	agent  *agent.Agent        // the agent that runs; nil: none runs
	page   http.Handler        // the console of agent; nil: not requested yet
}

// begin lets the node run its agents, one after another, until end is called. It does not block.
func (n *node) begin() {
	ctx, end := context.WithCancel(context.Background())
	var agents sync.WaitGroup
	n.rounds = rounds.New(func(ctx context.Context) time.Duration { return n.turn(ctx, &agents) })
	join := n.rounds.Begin(ctx)
	n.end, n.join = end, func() {
		join()
		agents.Wait()
	}
}

// turn starts an agent if none runs, and returns how long to wait until the next call. After a crash it waits until the fault is healed.
func (n *node) turn(ctx context.Context, agents *sync.WaitGroup) time.Duration {
	run, cancel := context.WithCancel(ctx)
	sim, wait := n.starts(cancel)
	if sim == nil {
		cancel()
		return wait
	}
	agents.Add(1)
	n.beginAgent(run, sim, func(err error) {
		defer agents.Done()
		cancel()
		n.stopped(err)
		n.rounds.Wake()
	})
	return rounds.Never
}

// starts returns the machine on which the next agent runs, or nil and how long to wait, if one runs, a fault keeps the node down, or the last
// agent has just failed. It stores stop, which ends that agent. After a crash it makes a new machine with the old disk, as after a reboot.
func (n *node) starts(stop context.CancelFunc) (sim *simulated.Node, wait time.Duration) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	if n.runs || n.down {
		return nil, rounds.Never
	}
	if wait := time.Until(n.next); wait > 0 {
		return nil, wait
	}
	if n.sim == nil {
		n.sim = n.machine()
	}
	n.runs, n.stop, n.err = true, stop, nil
	return n.sim, 0
}

// close ends the simulation of the machine. The agent must have ended before.
func (n *node) close() {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	if n.sim != nil {
		n.sim.Close()
	}
	if n.identity != nil {
		n.identity.CloseAll()
	}
}

// stopped stores that the agent has ended, with its error. If it has failed, the next one starts after restartWait.
func (n *node) stopped(err error) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.runs, n.stop, n.err, n.agent, n.page = false, nil, err, nil, nil
	if err != nil {
		n.next = time.Now().Add(restartWait)
		n.fleet.cfg.Log.Error("a node of the fleet failed; starting its agent again", "node", n.name, "err", err)
	}
}

// beginAgent starts an agent of the node, which runs until ctx ends, and calls ended when it has ended. If the node has to have a certificate,
// beginAgent first gets it, and renews it while the agent runs.
func (n *node) beginAgent(ctx context.Context, sim *simulated.Node, ended func(error)) {
	if n.fleet.access != nil {
		switch err := n.certify(ctx); {
		case ctx.Err() != nil:
			ended(nil)
			return
		case err != nil:
			ended(err)
			return
		}
		var renewal sync.WaitGroup
		renewing, end := context.WithCancel(ctx)
		renewal.Go(func() {
			if err := n.identity.Run(renewing); err != nil {
				n.fleet.cfg.Log.Error("the certificate of a node is not renewed any more", "node", n.name, "err", err)
			}
		})
		after := ended
		ended = func(err error) {
			end()
			renewal.Wait()
			after(err)
		}
	}
	a, err := n.newAgent(sim)
	if err != nil {
		ended(err)
		return
	}
	n.fleet.mu.Lock()
	n.agent, n.page = a, nil
	n.fleet.mu.Unlock()
	a.Begin(ctx, ended)
}

// certify makes sure that the node has a valid certificate. It waits until the cluster has signed one, or ctx ends.
func (n *node) certify(ctx context.Context) error {
	if n.identity == nil {
		id, err := n.fleet.access.identity(n)
		if err != nil {
			return err
		}
		n.identity, n.link.next = id, n.fleet.count.over(id.Transport())
	}
	n.waitsFor("its certificate (kubectl get csr)")
	defer n.waitsFor("")
	return n.identity.Join(ctx)
}

func (n *node) waitsFor(what string) {
	n.fleet.mu.Lock()
	defer n.fleet.mu.Unlock()
	n.waits = what
}

// reason says why the node is not Ready, if its fleet knows that. The caller holds the lock.
func (n *node) reason() string {
	switch {
	case n.err != nil:
		return n.err.Error()
	case n.waits != "":
		return "waits for " + n.waits
	}
	return ""
}

// newAgent returns a new agent on the node's machine.
func (n *node) newAgent(sim *simulated.Node) (*agent.Agent, error) {
	f, g := n.fleet, n.group
	k := *g.Kubelet.DeepCopy()
	off, none := false, int32(0)
	k.EnableServer, k.HealthzPort = &off, &none
	k.ProviderID = g.providerID(f.cfg.Name, n.name, n.index)
	k.RegisterWithTaints = append([]v1.Taint{}, g.Taints...)
	if f.cfg.Taint {
		k.RegisterWithTaints = append(k.RegisterWithTaints, v1.Taint{Key: TaintSimulated, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	deps := sim.Deps()
	deps.Client = f.clientOf(n.link, &k)
	if n.identity != nil {
		deps.CloseConnections = n.identity.CloseAll
	}
	deps.Leases = f.wheel.of(n.link, f.seedOf(n.name), time.Duration(k.NodeLeaseDurationSeconds)*time.Second, n.isNew, func() { f.leased(n) })
	deps.EventTurn = n.eventTurn
	deps.Log, deps.Seed = f.cfg.NodeLog, f.seedOf(n.name)
	if f.hub != nil {
		deps.Feed = f.hub.of(n.link)
	}
	cfg := agent.Config{NodeName: n.name, NodeLabels: g.labels(f.cfg.Name, n.index)}
	if f.cfg.Dir != "" {
		k.PodLogsDir = f.cfg.logs(n.name)
	}
	if f.serving != nil {
		if err := f.serving.open(n.name, sim, &k, &cfg, &deps); err != nil {
			return nil, err
		}
	}
	cfg.Kubelet = k
	a, err := agent.New(cfg, deps)
	if err != nil && deps.API != nil {
		_ = deps.API.Close()
	}
	return a, err
}

// eventTurn returns when the node may send an event: see turns. While an injected fault delays the node's requests, its events take no turns,
// because a request that hangs would keep the turn from the events of all other nodes.
func (n *node) eventTurn(ctx context.Context) (done func(), err error) {
	done, err = n.fleet.count.turns.wait(ctx)
	if err == nil && n.link.delays() {
		done()
		done = func() {}
	}
	return done, err
}

// clientOf returns the configuration of a node's client: it sends requests over the node's link. All links use the same transport.
func (f *Fleet) clientOf(l *link, k *kubelet.KubeletConfiguration) *rest.Config {
	c := &rest.Config{Host: f.host, Transport: l, UserAgent: userAgent}
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	c.QPS, c.Burst = float32(*k.KubeAPIQPS), int(k.KubeAPIBurst)
	return c
}

// machine returns a simulated machine that has just booted.
func (n *node) machine() *simulated.Node {
	g := n.group
	return simulated.New(simulated.Config{
		CPUs: g.CPUs, Memory: g.Memory, Storage: g.Storage, Disk: n.disk, PollManifests: true, Seed: n.fleet.cfg.Seed + uint64(n.index),
		Latency: g.Latency, Images: g.Images, RuntimeHandlers: g.RuntimeHandlers, Rules: n.fleet.cfg.Rules,
		Address: n.fleet.cfg.Address, Logs: n.fleet.cfg.Dir != "", CSIDrivers: g.drivers(n.fleet.cfg.Name, n.name, n.index), VolumeFiles: n.volumes,
		DevicesPrepared: true, Devices: g.Devices, Clock: &n.clock,
	})
}

// pause waits for d. It returns false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// limited calls f for each item, at most limit at a time, and waits for all.
func limited[T any](items []T, limit int, f func(T)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, limit)
	for _, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(item)
		})
	}
	group.Wait()
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
