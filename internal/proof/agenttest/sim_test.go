package agenttest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// These are flags of TestSim. A seed that fails prints the command that repeats it.
//
//nolint:gochecknoglobals // flags of a test binary
var (
	seeds     = flag.Int("seeds", 10, "how many seeds TestSim runs")
	firstSeed = flag.Uint64("seed", 1, "the first of them")
)

// TestSim runs an agent and random events, which depend on a seed: actions of users, faults of the runtime, network and disk, and kills of
// the agent. Meanwhile the Witness observes the runtime and the API, and checks its rules. In the end all faults stop; then the API has to
// agree with the runtime, and deleted pods have to be gone.
//
// A seed determines what happens and when. But Go's scheduler decides the order of goroutines that wake at the same instant, so a few runs
// cannot be repeated exactly.
func TestSim(t *testing.T) {
	t.Parallel()
	var all tally
	t.Cleanup(func() {
		t.Logf("proved: %s", &all)
		for _, lack := range all.unarmed() {
			t.Errorf("the simulation proves too little: %s", lack)
		}
	})
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if t.Failed() {
					t.Logf("to repeat: make sim SEEDS=1 SEED=%d", seed)
				}
			}()
			cfg := simConfig(seed)
			statics := simStatics(t, seed, &cfg)
			Run(t, cfg, func(w *World) {
				s := newSim(w, seed, statics)
				defer func() { all.add(&s.tally) }()
				s.run()
			})
		})
	}
}

// simConfig returns the configuration of the World (the simulated node with its API server) for a seed.
func simConfig(seed uint64) Config {
	return Config{
		Seed: seed, ClockMoves: true,
		Agent:   func(c *agent.Config) { c.DeadContainers = new(int(1 + seed%2)) },
		Runtime: simcri.Config{Latency: latencies(), NoEvents: seed%5 == 0},
		Kube:    simkube.Config{Latency: 4 * time.Millisecond, WatchLatency: 8 * time.Millisecond},
	}
}

// simStatics adds a directory of static pods to the configuration if the seed is odd. For an even seed it returns nil.
func simStatics(t *testing.T, seed uint64, cfg *Config) *staticPods {
	if seed%2 == 0 {
		return nil
	}
	return withStatics(cfg, t.TempDir())
}

// sim is a run of the simulation with one seed.
type sim struct {
	*World
	rng     *rand.Rand
	names   []string
	next    int
	statics *staticPods // static pods; nil: there are none
	disks   *simDisks   // CSI volumes; nil: there are none
	out     bool        // users cannot reach the API server now
	faults  []func()
	answers *answers
	tally   tally
}

func newSim(w *World, seed uint64, statics *staticPods) *sim {
	return &sim{World: w, rng: rand.New(rand.NewPCG(seed, 7)), statics: statics, answers: newAnswers()}
}

const (
	simFor  = 2 * time.Minute
	simPods = 8
	slowest = 10 * time.Second // longest time that a fault lets a call to the runtime take
)

func (s *sim) run() {
	began, long := time.Now(), time.Duration(0)
	for time.Since(began)-long < simFor {
		if !s.Alive() {
			s.withoutAgent()
		}
		s.step()
		s.answers.check(s.World)
		if long == 0 && s.rng.IntN(1000) == 0 {
			out := time.Now()
			s.longOutage()
			long = time.Since(out)
		}
		time.Sleep(s.between(50*time.Millisecond, 4*time.Second))
	}
	s.settle()
	s.tally.rules, s.tally.answers = s.Witness.Armed(), s.answers.tally
	s.tally.early, s.tally.blind = s.answers.early, s.answers.blind
	for _, wrong := range s.answers.wrong {
		s.Logf("wrong answer: %s", wrong)
	}
	s.tally.virtual += time.Since(began)
	s.tally.seeds++
	s.tally.crashes += s.crashes
	s.tally.containers += s.Witness.Starts()
}

// settle ends all faults and checks that everything recovers.
func (s *sim) settle() {
	for _, remove := range s.faults {
		remove()
	}
	s.SetDisk(DiskFault{})
	s.CrashAfter(0, false, false)
	if !s.Alive() {
		s.withoutAgent()
	}
	if s.statics != nil {
		s.settleManifests()
		s.awaitNone(RuleStatic, 8*time.Minute, s.Unfollowed)
	}
	if s.Kube.Node(NodeName) == nil { // a deleted Node is created again only when an agent starts
		s.RestartAgent(0)
	}
	s.WaitConverged(8 * time.Minute)
	s.awaitNone(RuleRuns, 12*time.Minute, s.Idle)
	s.awaitNone(RuleResize, 8*time.Minute, s.Unresized)
	s.WaitConverged(8 * time.Minute)
	for _, name := range s.alive() {
		s.Delete(name, one(s, int64(1), -1))
	}
	if s.statics != nil {
		s.removeManifests()
	}
	s.await(RuleNothingStays, "nothing is left of deleted pods", 8*time.Minute, func() bool {
		return len(s.Kube.Pods()) == 0 && len(s.Witness.Containers()) == 0 && len(s.Witness.Sandboxes()) == 0 && s.MachineHolds() == 0
	})
	s.Await("the node is Ready", 5*time.Minute, func() bool { return s.NodeReady().Status == v1.ConditionTrue })
}

// withoutAgent changes things while no agent runs, and then starts the next agent.
func (s *sim) withoutAgent() {
	s.StopAgent()
	if s.rng.IntN(3) == 0 {
		for range s.rng.IntN(3) {
			s.deleteOne(-1, 0)
			s.exit()
		}
	}
	if s.rng.IntN(3) == 0 {
		s.remake()
	}
	if s.rng.IntN(6) == 0 {
		s.restore()
	}
	if s.rng.IntN(6) == 0 {
		s.moveClock()
	}
	if s.rng.IntN(3) == 0 && s.statics != nil {
		s.changeManifest()
	}
	if s.rng.IntN(10) == 0 {
		s.tally.count("machine: reboot")
		s.KillSandboxes()
	}
	time.Sleep(s.between(0, time.Minute))
	s.StartAgent()
}

func (s *sim) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rng.Int64N(int64(high-low)))
}

// chance returns true with this probability, in percent.
func (s *sim) chance(percent int) bool { return s.rng.IntN(100) < percent }

// one returns one of the values at random.
func one[T any](s *sim, of ...T) T { return of[s.rng.IntN(len(of))] }

// alive returns the names of the pods in the API, in an order that is the same whenever the seed runs.
func (s *sim) alive() []string {
	s.names = slices.DeleteFunc(s.names, func(n string) bool { return s.Kube.Pod(Namespace, n) == nil })
	return slices.Clone(s.names)
}

func (s *sim) pick() string {
	if names := s.alive(); len(names) > 0 {
		return names[s.rng.IntN(len(names))]
	}
	return ""
}

// step performs one random event.
func (s *sim) step() {
	n := s.rng.IntN(120)
	s.logf("step %d", n)
	switch {
	case n >= 119:
		s.loseNode()
	case n >= 116:
		s.moveClock()
	case n >= 110:
		s.resizeOne()
	case n >= 100 && s.statics != nil:
		s.changeManifest()
	case n < 36, n >= 100:
		s.create()
	case n < 52:
		s.deleteOne(-1, -1, 0, 1, 5, 30)
	case n < 54:
		s.remake()
	case n < 57:
		s.debug()
	case n < 66:
		s.exit()
	case n < 69:
		s.loseSandbox()
	case n < 80:
		s.runtimeFault()
	case n < 83:
		s.tally.count("API: outage")
		s.Outage(s.between(time.Second, 40*time.Second))
	case n < 85:
		s.tally.count("API: watch cut")
		s.Kube.CutWatches()
		if s.chance(50) {
			s.Kube.Compact()
		}
	case n < 90:
		s.apiFault()
	case n < 92:
		s.breakDisk()
	default:
		s.endAgent()
	}
}

// logf writes an event of the simulation into the log file, if there is one.
func (s *sim) logf(format string, args ...any) {
	if s.log.all != nil {
		_, _ = fmt.Fprintf(s.log, "time=%s WORLD "+format+"\n", append([]any{time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}, args...)...)
	}
}

// endAgent stops or kills the agent, now or at one of its next actions.
func (s *sim) endAgent() {
	switch s.rng.IntN(4) {
	case 0:
		s.tally.count("agent: stopped")
		s.StopAgent()
	case 1:
		s.CrashAgent(s.chance(50))
	default:
		s.CrashAfter(1+s.rng.IntN(6), s.chance(50), s.chance(50))
	}
}
