package agenttest

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// NodeName is the node of every World.
const NodeName = "node-1"

// Namespace is where pods are, unless they say otherwise.
const Namespace = "default"

// agentName is the User-Agent of agents, to the API server.
const agentName = "agent"

// Config says what a World is like. The zero value is one where everything answers at once.
type Config struct {
	Seed    uint64
	Kube    simkube.Config
	Runtime simcri.Config
	// Agent changes the agent's configuration before each start.
	Agent func(*agent.Config)
	// Deps changes what the agent is given before each start.
	Deps func(*agent.Deps)
	// Forgetful: the machine keeps no checkpoints across agents.
	Forgetful bool
	// PullRecords is where agents keep who pulled which image; empty: they keep nothing.
	PullRecords string
	// Standalone: the agent has no API server.
	Standalone bool
	// ClockMoves: the machine's clock may be moved while an agent runs.
	ClockMoves bool
	// Plant is a defect that the Witness has to find.
	Plant *Bug
}

// World is one node: an agent, its runtime and its API server, in a bubble of their own time.
type World struct {
	testing.TB
	Kube    *simkube.Kube
	Runtime *simcri.Runtime
	// Admin is a client that is not the agent's.
	Admin   kubernetes.Interface
	Witness *Witness

	cfg     Config
	clock   *clock
	disk    *checkpoint.InMemory
	log     *tail
	atFirst string // the log when the first invariant broke
	// The agent that runs, if one does.
	line  *line
	end   context.CancelFunc
	ended chan error
	// Agents that were killed: what they had under way may go on for a while.
	ghosts []chan error

	diskFault atomic.Pointer[DiskFault] // nil: none
	diskOps   atomic.Int64
	crashes   int
	quiet     bool // what the Witness found is not told
}

// Run runs f in a bubble with a running agent. When f returns, the agent is ended; whatever the Witness saw fails the
// test, and so does a goroutine that is left.
func Run(t *testing.T, cfg Config, f func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.close()
		w.StartAgent()
		f(w)
	})
}

// givenUp is what a planted World panics with where another would fail.
type givenUp struct{}

// runPlanted is Run with a defect: it returns what the Witness found instead of failing.
func runPlanted(t *testing.T, cfg Config, f func(w *World)) (found []Violation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer func() {
			w.quiet = true
			w.close()
			found = w.Witness.Violations()
		}()
		defer func() {
			if p := recover(); p != nil && p != (givenUp{}) {
				panic(p)
			}
		}()
		w.StartAgent()
		f(w)
	})
	return found
}

func newWorld(t testing.TB, cfg Config) *World {
	w := &World{TB: t, cfg: cfg, Witness: newWitness(), log: &tail{}, clock: newClock(), disk: &checkpoint.InMemory{}}
	if path := os.Getenv(logFile); path != "" {
		f, err := os.Create(path) //nolint:gosec // the user's own choice
		if err != nil {
			t.Fatal(err)
		}
		w.log.all = f
	}
	w.Witness.onBroken = func() { w.atFirst = w.log.String() }
	cfg.Kube.Seed, cfg.Runtime.Seed = cfg.Seed, cfg.Seed
	also := cfg.Kube.OnChange
	cfg.Kube.OnChange = func(typ watch.EventType, old, obj runtime.Object) {
		w.Witness.apiChanged(typ, old, obj)
		if also != nil {
			also(typ, old, obj)
		}
	}
	cfg.Runtime.Observe = w.Witness.runtimeChanged
	w.Kube, w.Runtime = simkube.New(cfg.Kube), simcri.New(cfg.Runtime)
	var err error
	if w.Admin, err = w.Kube.Client("admin"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *World) close() {
	w.StopAgent()
	for _, g := range w.ghosts {
		<-g
	}
	w.Runtime.Close()
	if w.quiet {
		return
	}
	for _, v := range w.Witness.Violations() {
		w.Errorf("invariant: %s", v)
	}
	switch {
	case w.atFirst != "":
		w.Logf("what the agent said before the first:\n%s", w.atFirst)
	case w.Failed():
		w.Logf("the agent's last words:\n%s", w.log)
	}
}

// MoveClock moves the machine's clock: that of the agent, of the next ones, and of the runtime, not the API server's.
func (w *World) MoveClock(d time.Duration) {
	d = d.Truncate(time.Second)
	w.clock.move(d)
	w.Witness.clockMoved()
	kept := checkpoint.In{Files: w.disk}
	for _, uid := range w.disk.UIDs() {
		m, err := kept.Load(uid)
		if err != nil || m == nil {
			w.Fatalf("load the checkpoint of %s: %v, %v", uid, m, err)
		}
		shiftTimes(m, d)
		if err := kept.Save(uid, m); err != nil {
			w.Fatal(err)
		}
	}
}

// Outage makes the API server unreachable for a time.
func (w *World) Outage(d time.Duration) {
	w.SetOutage(true)
	time.Sleep(d)
	w.SetOutage(false)
}

// SetOutage makes the API server unreachable, for all but the World's own methods, or reachable again.
func (w *World) SetOutage(on bool) {
	w.Kube.SetOutage(on)
}

// MachineHolds is how many pods left something on the machine.
func (w *World) MachineHolds() int { return len(w.disk.UIDs()) }
