package agenttest

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// NodeName is the name of the node in every World.
const NodeName = "node-1"

// Namespace is the default namespace of pods.
const Namespace = "default"

// agentName is the User-Agent of the agents' requests, by which faults of the API server select them.
const agentName = "agent"

// Config configures a World. With the zero value everything answers at once and nothing fails.
type Config struct {
	Seed    uint64
	Kube    simkube.Config
	Runtime simcri.Config
	// Agent changes the agent's configuration before each start; nil: the configuration is not changed.
	Agent func(*agent.Config)
	// Deps changes the agent's dependencies before each start; nil: the dependencies are not changed.
	Deps func(*agent.Deps)
	// Forgetful is true if all checkpoints are lost when an agent ends.
	Forgetful bool
	// PullRecords is the directory in which agents record image pulls; "": they keep no records.
	PullRecords string
	// Memory and Storage are the sizes of the machine's memory and disk, as quantities ("4Gi"); "": the machine never runs short.
	Memory, Storage string
	// Short reports whether the machine is short of memory or disk space when containers use this many bytes of each. Only then may an
	// agent evict a pod. nil: the machine is never short.
	Short func(memory, storage int64) bool
	// CSI is the CSI driver of the machine. If it is not nil, agents make the volumes of pods in a directory, and only the mounts are
	// simulated. The World sets its Mount and Unmount. nil: the machine has no driver, and agents make no volumes.
	CSI *simcsi.Config
	// Record is true if agents keep a record of what the API server says (agent.Config.OfflineStart). Then each agent knows the pods of the
	// agent before it.
	Record bool
	// Standalone is true if the agent has no API server.
	Standalone bool
	// ClockMoves is true if the test changes the machine's clock while an agent runs.
	ClockMoves bool
	// Plant is a bug that the Witness has to find; nil: none.
	Plant *Bug
}

// World is one machine in a synctest bubble: an agent, its runtime and its API server.
type World struct {
	testing.TB
	Kube    *simkube.Kube
	Runtime *simcri.Runtime
	// Admin is a client with all rights; tests act as users with it.
	Admin   kubernetes.Interface
	Witness *Witness
	CSI     *simcsi.Driver // nil without Config.CSI

	cfg     Config
	clock   *clock
	disk    *checkpoint.InMemory
	log     *tail
	atFirst string // the last lines of the log at the first violation
	// line, agent and control (the control socket) belong to the running agent; all are nil while no agent runs.
	line    *line
	agent   *agent.Agent
	control *bufconn.Listener
	// started is the configuration of the last start of an agent.
	started agent.Config
	end     context.CancelFunc
	ended   chan error
	// ghosts has, for each killed agent, the channel that reports its end. The goroutines of a killed agent may still run for a while.
	ghosts []chan error

	driver  atomic.Pointer[bufconn.Listener] // of the process of CSI that runs now
	volumes string                           // the directory of the pods' volumes, with Config.CSI

	diskFault atomic.Pointer[DiskFault] // nil: the disk works
	diskOps   atomic.Int64
	crashes   int
	quiet     bool // violations do not fail the test
}

// Run runs f in a synctest bubble with a running agent, and then ends the agent. It fails the test if the Witness saw a violation, or if a
// goroutine is left.
func Run(t *testing.T, cfg Config, f func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.close()
		w.StartAgent()
		f(w)
	})
}

// givenUp is the value with which a World panics to end a run with a planted bug. Without a planted bug the test fails instead.
type givenUp struct{}

// runPlanted is like Run, for a World with a planted bug. It returns the violations that the Witness found, and they do not fail the test.
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
	if cfg.Short != nil {
		w.Witness.shortage.now = func() bool {
			memory, storage, _ := w.Runtime.Used()
			return cfg.Short(memory, storage)
		}
		w.Witness.shortage.nowMemory = func() bool {
			memory, _, _ := w.Runtime.Used()
			return cfg.Short(memory, 0)
		}
	}
	if cfg.CSI != nil {
		w.volumes = t.TempDir()
		w.newDriver()
	}
	var err error
	if w.Admin, err = kubernetes.NewForConfig(w.Kube.RESTConfig("admin")); err != nil {
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
	if w.CSI != nil {
		w.CSI.Close()
	}
	if w.quiet {
		return
	}
	for _, v := range w.Witness.Violations() {
		w.Errorf("invariant: %s", v)
	}
	switch {
	case w.atFirst != "":
		w.Logf("the agent's log before the first violation:\n%s", w.atFirst)
	case w.Failed():
		w.Logf("the agent's last words:\n%s", w.log)
	}
}

// MoveClock changes the clock of the machine by d: for this agent, for later agents and for the runtime, but not for the API server.
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

// Outage makes the API server unreachable for the time d.
func (w *World) Outage(d time.Duration) {
	w.SetOutage(true)
	time.Sleep(d)
	w.SetOutage(false)
}

// SetOutage makes the API server unreachable or reachable again, for agents. The World's own methods still work.
func (w *World) SetOutage(on bool) {
	w.Kube.SetOutage(on)
}

// MachineHolds returns how many pods have files on the machine.
func (w *World) MachineHolds() int { return len(w.disk.UIDs()) }
