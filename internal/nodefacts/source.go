package nodefacts

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/nodestatus"
	"github.com/wherry-node/wherry/internal/pressure"
)

// Machine is the host, real or simulated. Calls may be concurrent and may do short IO.
type Machine interface {
	Facts() (nodestatus.Machine, error)
	Network() nodestatus.Network
	// Signals reads what pressure is judged by; what cannot be read is absent.
	Signals(ctx context.Context) pressure.Signals
	// EphemeralStorage is the size in bytes of the file system that pods write to; 0: not known.
	EphemeralStorage() int64
}

// Config is what a Source measures with.
type Config struct {
	Settings         nodestatus.Settings
	TransitionPeriod time.Duration
	Machine          Machine
	Runtime          *Runtime
	// Problems are further reasons for not being ready, asked at each computation.
	Problems func() []string
}

// Source measures; it is the heartbeat's Source.
type Source struct {
	cfg Config

	mu       sync.Mutex
	machine  *nodestatus.Machine
	storage  int64
	pressure pressure.State
	last     pressure.Result
	built    *v1.Node
	builtAt  time.Time
}

// builtFor is how long a Node that was built without the API is good enough.
const builtFor = 10 * time.Second

// New returns a Source; it does no IO.
func New(cfg Config) *Source { return &Source{cfg: cfg} }

// Initial makes the Node for registration.
func (s *Source) Initial(ctx context.Context) nodestatus.Result {
	return nodestatus.Build(s.cfg.Settings, s.facts(ctx))
}

// Update computes the Node's new state.
func (s *Source) Update(ctx context.Context, node *v1.Node) nodestatus.Result {
	return nodestatus.Update(s.cfg.Settings, s.facts(ctx), node)
}

// Node builds the Node without the API: for a standalone node, and for admission before registration. It must not be
// written to.
func (s *Source) Node(ctx context.Context) *v1.Node {
	s.mu.Lock()
	built := s.built
	if time.Since(s.builtAt) >= builtFor {
		built = nil
	}
	s.mu.Unlock()
	if built != nil {
		return built
	}
	built = s.Initial(ctx).Node
	s.mu.Lock()
	s.built, s.builtAt = built, time.Now()
	s.mu.Unlock()
	return built
}

// Machine is what does not change of the machine.
func (s *Source) Machine() (nodestatus.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knownMachine()
}

// knownMachine is called with the lock held.
func (s *Source) knownMachine() (nodestatus.Machine, error) {
	if s.machine == nil {
		m, err := s.cfg.Machine.Facts()
		if err != nil {
			return nodestatus.Machine{}, err
		}
		s.machine = &m
	}
	return *s.machine, nil
}

// Pressure is the newest judgement of the signals.
func (s *Source) Pressure() pressure.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Source) facts(ctx context.Context) nodestatus.Facts {
	network := s.cfg.Machine.Network() // it may ask a name server
	s.mu.Lock()
	defer s.mu.Unlock()
	f := nodestatus.Facts{Network: network, Now: time.Now(), Runtime: s.cfg.Runtime.Facts(), VolumesKnown: true}
	if s.cfg.Problems != nil {
		f.Problems = s.cfg.Problems()
	}
	var err error
	if f.Machine, err = s.knownMachine(); err != nil {
		f.Problems = append(f.Problems, err.Error())
	}
	if s.storage == 0 {
		s.storage = s.cfg.Machine.EphemeralStorage()
	}
	f.EphemeralStorage = s.storage
	store := s.cfg.Runtime.Store()
	f.Images, f.ImagesKnown = store.Images, store.Known
	s.last = pressure.Evaluate(pressure.Input{
		Signals: s.cfg.Machine.Signals(ctx), Thresholds: s.cfg.Settings.Thresholds,
		TransitionPeriod: s.cfg.TransitionPeriod, Previous: s.pressure, Now: f.Now,
	})
	s.pressure = s.last.State
	f.Pressure = s.last
	return f
}
