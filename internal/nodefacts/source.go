package nodefacts

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	// Images lists what the runtime holds.
	Images func(ctx context.Context) ([]*runtimeapi.Image, error)
	// Problems are further reasons for not being ready, asked at each computation.
	Problems func() []string
	Log      *slog.Logger
}

// Source measures; it is the heartbeat's Source.
type Source struct {
	cfg Config

	mu       sync.Mutex
	machine  *nodestatus.Machine
	images   []*runtimeapi.Image
	imagesOK bool
	imagesAt time.Time
	storage  int64
	pressure pressure.State
	last     pressure.Result
}

// imagesFor is how long a list of images is good enough.
const imagesFor = 55 * time.Second

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

// Node builds the Node without the API: for a standalone node, and for admission before registration.
func (s *Source) Node(ctx context.Context) *v1.Node { return s.Initial(ctx).Node }

// Pressure is the newest judgement of the signals.
func (s *Source) Pressure() pressure.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Source) facts(ctx context.Context) nodestatus.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := nodestatus.Facts{Now: time.Now(), Runtime: s.cfg.Runtime.Facts(), VolumesKnown: true}
	if s.cfg.Problems != nil {
		f.Problems = s.cfg.Problems()
	}
	if s.machine == nil {
		m, err := s.cfg.Machine.Facts()
		if err != nil {
			f.Problems = append(f.Problems, err.Error())
		} else {
			s.machine = &m
		}
	}
	if s.machine != nil {
		f.Machine = *s.machine
	}
	f.Network = s.cfg.Machine.Network()
	if s.storage == 0 {
		s.storage = s.cfg.Machine.EphemeralStorage()
	}
	f.EphemeralStorage = s.storage
	s.measureImages(ctx, &f)
	s.last = pressure.Evaluate(pressure.Input{
		Signals: s.cfg.Machine.Signals(ctx), Thresholds: s.cfg.Settings.Thresholds,
		TransitionPeriod: s.cfg.TransitionPeriod, Previous: s.pressure, Now: f.Now,
	})
	s.pressure = s.last.State
	f.Pressure = s.last
	return f
}

func (s *Source) measureImages(ctx context.Context, f *nodestatus.Facts) {
	if f.Runtime.Err == "" && f.Runtime.Status != nil && f.Now.Sub(s.imagesAt) > imagesFor {
		images, err := s.cfg.Images(ctx)
		if err != nil {
			s.cfg.Log.Warn("images not listed; the node keeps the list it had", "err", err)
		} else {
			s.images, s.imagesOK = images, true
		}
		s.imagesAt = f.Now
	}
	f.Images, f.ImagesKnown = s.images, s.imagesOK
}
