package nodefacts

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Machine is the host, real or simulated. Calls may be concurrent and may do short IO.
type Machine interface {
	Facts() (nodestatus.Machine, error)
	Network() nodestatus.Network
	// EphemeralStorage returns the size in bytes of the file system that pods write to; 0: unknown.
	EphemeralStorage() int64
}

// Config configures a Source.
type Config struct {
	// Settings are the first settings; SetSettings replaces them.
	Settings nodestatus.Settings
	Machine  Machine
	Runtime  *Runtime
	// Pressure returns the newest result of the signals of resource pressure. It measures if there is none yet. Nil: nothing is
	// measured.
	Pressure func(ctx context.Context) pressure.Result
	// VolumesInUse returns the volumes that must not be detached from the node; false: that is not known. Nil: there are none. It is
	// called at each computation.
	VolumesInUse func() ([]v1.UniqueVolumeName, bool)
	// Devices returns the devices that pods request as extended resources. Nil: there are none. It is called at each computation.
	Devices func() nodestatus.Devices
	// Problems returns further reasons why the node is not ready. It is called at each computation.
	Problems func() []string
	// Failing returns the parts of the agent that fail and are retried. The status names them, and the node stays ready. It is called at
	// each computation.
	Failing func() []string
	// Clock is the node's clock, for the times in the Node.
	Clock nodeclock.Clock
}

// Source measures the node. It is the heartbeat's Source.
type Source struct {
	cfg Config

	mu       sync.Mutex
	settings nodestatus.Settings
	machine  *nodestatus.Machine
	storage  int64
	measured *nodestatus.Facts // the facts from which Update last computed the Node; nil: there are none, or the settings have changed
	built    *v1.Node
	builtAt  time.Time
	building chan struct{} // closed when the current build of the Node has ended; nil: no build runs
}

// builtFor is how long Refresh uses a Node that it has built before it builds a new one.
const builtFor = 10 * time.Second

// New returns a Source; it does no IO.
func New(cfg Config) *Source { return &Source{cfg: cfg, settings: cfg.Settings} }

// SetSettings replaces the settings. The next Node uses them.
func (s *Source) SetSettings(settings nodestatus.Settings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings, s.builtAt, s.measured = settings, time.Time{}, nil
}

// Settings returns the settings. Callers must not modify their slices and maps.
func (s *Source) Settings() nodestatus.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// Initial builds the Node for registration.
func (s *Source) Initial(ctx context.Context) nodestatus.Result {
	facts := s.facts(ctx)
	r := nodestatus.Build(s.Settings(), facts)
	s.mu.Lock()
	nodestatus.KeepTransitions(r.Node, s.built)
	s.built, s.builtAt = r.Node, time.Now()
	s.mu.Unlock()
	return r
}

// Update measures the node and computes the new state of the Node. If settled is true, node is the Node of the last call, and its result
// made no difference to it; the result is then zero if nothing has changed since.
func (s *Source) Update(ctx context.Context, node *v1.Node, settled bool) nodestatus.Result {
	facts := s.facts(ctx)
	s.mu.Lock()
	settings, same := s.settings, settled && s.measured != nil && s.measured.Same(&facts)
	if s.measured == nil {
		s.measured = &nodestatus.Facts{}
	}
	*s.measured = facts                   // also if they are the same, because the old ones may keep an old list of images in memory
	s.built, s.builtAt = nil, time.Time{} // the API has a Node, so nobody needs this one
	s.mu.Unlock()
	if same {
		return nodestatus.Result{}
	}
	return nodestatus.Update(settings, facts, node)
}

// Refresh builds the Node anew if the last one is older than builtFor. A build may take long, because it measures. Only one caller
// builds at a time. The others return at once if there is an earlier Node; if not, they wait for the build.
func (s *Source) Refresh(ctx context.Context) {
	s.mu.Lock()
	building, fresh := s.building, s.built != nil && time.Since(s.builtAt) < builtFor
	if fresh || building != nil {
		known := s.built != nil
		s.mu.Unlock()
		if !known {
			<-building // wait even if ctx ends, because admission without a Node would refuse pods for good
		}
		return
	}
	building = make(chan struct{})
	s.building = building
	s.mu.Unlock()
	s.Initial(ctx)
	s.mu.Lock()
	s.building = nil
	s.mu.Unlock()
	close(building)
}

// Node returns the Node that was last built from settings and measurements alone, not from the object in the API. Standalone nodes
// use this Node. Other nodes use it for admission until they are registered. The result is nil until Refresh or Initial has returned, and
// again after Update, which is called when there is a Node in the API. Node does no IO. Callers must not modify the result.
func (s *Source) Node() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.built
}

// ReadMachine reads the facts of the machine that do not change, unless they are already read.
func (s *Source) ReadMachine() (nodestatus.Machine, error) {
	if m, known := s.Machine(); known {
		return m, nil
	}
	m, err := s.cfg.Machine.Facts()
	if err != nil {
		return nodestatus.Machine{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine = &m
	return m, nil
}

// Machine returns the facts of the machine that do not change; false: they are not read yet. It does no IO.
func (s *Source) Machine() (nodestatus.Machine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine == nil {
		return nodestatus.Machine{}, false
	}
	return *s.machine, true
}

// facts returns the newest facts about the node. It measures before it takes the lock, because admission takes the same lock.
func (s *Source) facts(ctx context.Context) nodestatus.Facts {
	f := nodestatus.Facts{Network: s.cfg.Machine.Network(), Runtime: s.cfg.Runtime.Facts(), VolumesKnown: true}
	if s.cfg.VolumesInUse != nil {
		f.VolumesInUse, f.VolumesKnown = s.cfg.VolumesInUse()
	}
	if s.cfg.Devices != nil {
		f.Devices = s.cfg.Devices()
	}
	if s.cfg.Problems != nil {
		f.Problems = s.cfg.Problems()
	}
	if s.cfg.Failing != nil {
		f.Failing = s.cfg.Failing()
	}
	var err error
	if f.Machine, err = s.ReadMachine(); err != nil {
		f.Problems = append(f.Problems, err.Error())
	}
	f.EphemeralStorage = s.ephemeralStorage()
	store := s.cfg.Runtime.Store()
	f.Images, f.ImagesKnown = store.Images, store.Known
	if s.cfg.Pressure != nil {
		f.Pressure = s.cfg.Pressure(ctx)
	}
	f.Now, f.Clock = time.Now(), s.cfg.Clock
	return f
}

// ephemeralStorage returns the size of the file system that pods write to (Machine.EphemeralStorage). It asks the machine until that
// size is known.
func (s *Source) ephemeralStorage() int64 {
	s.mu.Lock()
	storage := s.storage
	s.mu.Unlock()
	if storage == 0 {
		storage = s.cfg.Machine.EphemeralStorage()
		s.mu.Lock()
		s.storage = storage
		s.mu.Unlock()
	}
	return storage
}
