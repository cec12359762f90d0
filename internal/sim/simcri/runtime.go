package simcri

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/sim/simrules"
)

// Config configures a Runtime. The zero value is a runtime that answers at once.
type Config struct {
	// Seed is the seed of all random values.
	Seed uint64
	// PodCIDRs are the ranges of pod addresses, one per family. Default: 10.88.0.0/16. UpdateRuntimeConfig replaces them.
	PodCIDRs []netip.Prefix
	// Latency is the latency of a CRI method by its name ("RunPodSandbox"). The entry "" is for CRI methods without an entry of their own.
	Latency map[string]Latency
	// Processors is the number of CPUs that the work of the runtime shares; 0: unlimited. CPU is the work of each method.
	Processors int
	// CPU is the CPU time of a method by its name, in addition to its latency.
	CPU map[string]time.Duration
	// Pull describes the pull of an image. Default: DefaultPull.
	Pull func(image string) Pull
	// Rules say what containers and images do. Behave, Exec and annotations of a pod take precedence over them. Nil: there are none. They must not be
	// modified.
	Rules *simrules.Rules
	// Images are present from the beginning.
	Images []string
	// Behave overrides the behaviour of a container. If ok is false, its annotations and command decide. It is called with the
	// runtime's lock held, so it must not call methods of the Runtime.
	Behave func(ContainerInfo) (b Behavior, ok bool)
	// Exec overrides the effect of a command in a container. If ok is false, the simple shell runs it.
	Exec func(ContainerInfo, []string) (stdout, stderr []byte, code int32, ok bool)
	// RuntimeHandlers are the handlers besides the default one.
	RuntimeHandlers []string
	// SystemdCgroups makes RuntimeConfig answer systemd instead of cgroupfs.
	SystemdCgroups bool
	// WriteLogs makes containers write log files in CRI's format, if their directory can be created.
	WriteLogs bool
	// Clock is the clock of the machine, for the times in logs and the output of date. CRI messages have instants.
	Clock nodeclock.Clock
	// KeepEnv keeps the environment of containers for exec. It is the largest part of an idle container's memory.
	KeepEnv bool
	// NoEvents makes GetContainerEvents unimplemented, as in runtimes that do not support it.
	NoEvents bool
	// NoGroupsPolicy makes Status say that the runtime does not support supplementalGroupsPolicy.
	NoGroupsPolicy bool
	// Name and Version are those of the runtime. Default: simcri and 1.0.0.
	Name, Version string
	// Lag says how late the runtime measures layers and deletes files.
	Lag Lag
	// ImageFsPath is the mount point that ImageFsInfo returns. Default: /var/lib/simcri.
	ImageFsPath string
	// Observe gets every event at the moment of the change, even if a fault loses the event. It is called with the runtime's
	// lock held, so it must be quick and must not call methods of the Runtime.
	Observe func(*runtimeapi.ContainerEventResponse)
	// Log gets one line per change at debug level. Default: no log.
	Log *slog.Logger
}

// Latency is a mean duration with a uniform jitter around it.
type Latency struct{ Mean, Jitter time.Duration }

// Runtime is a container runtime in memory. All methods may be called concurrently.
type Runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	cfg        Config
	processors processors

	mu         sync.Mutex
	closed     bool
	sandboxes  map[string]*sandbox
	containers map[string]*container
	names      map[string]string // reserved name to ID
	images     map[string]*image // by ID
	imageNames map[string]*image // by every name and digest
	pulls      map[string]int
	cidrs      []addresses
	used       map[netip.Addr]bool
	timers     due.Heap[*container]
	timer      *time.Timer
	subs       []*subscription
	faults     []*Fault
	calls      map[string]int
	conditions map[string]*runtimeapi.RuntimeCondition
	streams    streams
	last       last
	deletions  []deletion
	made       struct {
		at  time.Time
		ids map[string]bool // the IDs that newID has made at the time in the field at
	}
}

// New returns a Runtime with only the images of Config.Images. It starts nothing.
func New(cfg Config) *Runtime {
	if len(cfg.PodCIDRs) == 0 {
		cfg.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/16")}
	}
	if cfg.Pull == nil {
		cfg.Pull = DefaultPull
	}
	if cfg.Name == "" {
		cfg.Name = "simcri"
	}
	if cfg.Version == "" {
		cfg.Version = "1.0.0"
	}
	if cfg.ImageFsPath == "" {
		cfg.ImageFsPath = "/var/lib/simcri"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{
		cfg: cfg, processors: processors{count: cfg.Processors}, sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, names: map[string]string{},
		images: map[string]*image{}, imageNames: map[string]*image{}, pulls: map[string]int{},
		used: map[netip.Addr]bool{}, calls: map[string]int{},
		conditions: map[string]*runtimeapi.RuntimeCondition{
			runtimeapi.RuntimeReady: {Type: runtimeapi.RuntimeReady, Status: true},
			runtimeapi.NetworkReady: {Type: runtimeapi.NetworkReady, Status: true},
		},
	}
	r.cidrs = ranges(cfg.PodCIDRs)
	for _, name := range cfg.Images {
		r.addImage(name, r.pullOf(name))
	}
	return r
}

// Close ends the runtime's timers and event streams. After that, containers no longer change by themselves, only by calls.
func (r *Runtime) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.dropSubscribers(status.Error(codes.Unavailable, "the runtime is closed"))
}

// SetCondition changes a condition of Status: runtimeapi.RuntimeReady or NetworkReady. While the network is not ready,
// sandboxes that need it cannot be created.
func (r *Runtime) SetCondition(name string, ok bool, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conditions[name] = &runtimeapi.RuntimeCondition{Type: name, Status: ok, Reason: reason, Message: message}
}

// Calls returns how often a method was called.
func (r *Runtime) Calls(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

// AllCalls returns how often each method was called.
func (r *Runtime) AllCalls() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.calls)
}

// newID derives an ID of 64 hexadecimal digits. It never returns an ID twice. The caller holds the lock.
func (r *Runtime) newID(name string, now time.Time) string {
	if !now.Equal(r.made.at) { // IDs contain the time, so only those of the same instant could be equal
		r.made.at = now
		clear(r.made.ids)
	}
	for n := int64(0); ; n++ {
		sum := r.derive("id", name, now.UnixNano(), n)
		id := hex.EncodeToString(sum[:])
		if !r.made.ids[id] && r.containers[id] == nil && r.sandboxes[id] == nil {
			if r.made.ids == nil {
				r.made.ids = map[string]bool{}
			}
			r.made.ids[id] = true
			return id
		}
	}
}

// derive returns a hash of the seed and of the arguments, which say what the value is for. All random values come from such hashes.
func (r *Runtime) derive(what, name string, numbers ...int64) [sha256.Size]byte {
	buf := binary.LittleEndian.AppendUint64(nil, r.cfg.Seed)
	buf = append(append(append(append(buf, what...), 0), name...), 0)
	for _, n := range numbers {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(n)) //nolint:gosec // bits only
	}
	return sha256.Sum256(buf)
}

// chance returns a pseudo-random number in [0,1). The same seed and arguments always give the same number.
func (r *Runtime) chance(what, name string, n int64) float64 {
	sum := r.derive(what, name, n)
	return float64(binary.LittleEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// reserve reserves a name for an ID. It fails if the name is already reserved. The caller holds the lock.
func (r *Runtime) reserve(name, id string) error {
	if by, ok := r.names[name]; ok {
		return status.Errorf(codes.Unknown, "failed to reserve name %q: name %q is reserved for %q", name, name, by)
	}
	r.names[name] = id
	return nil
}

// find returns the object with an ID or a unique prefix of an ID.
func find[T any](all map[string]*T, id string) *T {
	if v := all[id]; v != nil {
		return v
	}
	if id == "" || len(id) >= 64 {
		return nil
	}
	var found *T
	for full, v := range all {
		if strings.HasPrefix(full, id) {
			if found != nil {
				return nil
			}
			found = v
		}
	}
	return found
}

func errNotFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "an error occurred when try to find %s %q: not found", kind, id)
}

func errInvalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf(format, args...))
}

// at sets the time of the next change of c; the zero time removes c from the heap. The caller holds the lock.
func (r *Runtime) at(c *container, at time.Time) {
	if at.IsZero() {
		r.timers.Remove(c)
	} else {
		r.timers.Put(c, at)
	}
	r.arm()
}

// arm sets the timer to the first time of the heap. The caller holds the lock.
func (r *Runtime) arm() {
	first, ok := r.timers.First()
	if r.closed || !ok {
		if r.timer != nil {
			r.timer.Stop()
		}
		return
	}
	wait := max(time.Until(first.At()), 0)
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.fire)
		return
	}
	r.timer.Reset(wait)
}

// fire performs the changes that are due.
func (r *Runtime) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for !r.closed {
		c, ok := r.timers.First()
		if !ok || c.At().After(now) {
			break
		}
		r.timers.Pop()
		r.advance(c, now)
	}
	r.arm()
}
