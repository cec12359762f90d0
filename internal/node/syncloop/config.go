package syncloop

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/podworker"
	"github.com/wherry-node/wherry/internal/node/resizes"
)

// Pods is the set of desired pods.
type Pods interface {
	podworker.Desired
	List() []*v1.Pod
	Mirror(p *v1.Pod) *v1.Pod
	// Ready is true once every source has answered. Known is true once the pods of every source are known: from its answer, or from the
	// record on disk of its last answer.
	Ready() bool
	Known() bool
	// Unwanted reports whether a pod may be stopped because no source has it.
	Unwanted(ref pod.Ref) bool
	// Forget is called when nothing is left of a pod that no source has.
	Forget(uid types.UID)
}

// Cache is the pod cache, which has the newest inspection of every pod.
type Cache interface {
	podworker.Cache
	// List returns every pod that the runtime holds, also those not inspected yet.
	List() []*pod.Observed
	// Synced is true once the runtime has been listed.
	Synced() bool
}

// Prober runs the probes of a pod's containers.
type Prober interface {
	// Sync starts and stops probes so that they match the pod's running containers, and sets results to their present results. It
	// only reads the memory m.
	Sync(p *v1.Pod, obs *pod.Observed, m *decide.Memory, results *decide.ProbeResults)
	Forget(uid types.UID)
}

// Recorder records events on pods. It must not block.
type Recorder interface {
	Event(p *v1.Pod, container, eventType, reason, message string)
}

// Meter counts turns, rejections, evictions and restarts of pods. Calls may be concurrent and must not block.
type Meter interface {
	// WorkerStarted is called with the time that a new pod waited for its worker's first turn.
	WorkerStarted(waited time.Duration)
	// Turn is called after each turn; operation is "create" (the first turn), "sync", "kill" (the pod ends) or "terminated".
	Turn(operation string, took time.Duration)
	Rejected(reason string)
	// Evicted is called when the node evicts a pod, with the eviction signal.
	Evicted(signal string)
	// Restarted is called when a source has a pod again while the pod ends.
	Restarted(static bool)
	// PodSeen is called once for each pod, with the number of the containers in its spec; 0: only the runtime has the pod, no
	// source has it.
	PodSeen(containers int)
	// Orphans is called after each search for orphans. An orphan is a pod that is gone but left something on the node. all is the number of
	// orphans. remain is the number of orphans that a search found at least a housekeeping period ago: their removal fails or takes long.
	Orphans(all, remain int)
	// Preempted is called for each pod that is ended to make room, with the scarce resource.
	Preempted(resource string)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) WorkerStarted(time.Duration) {}
func (noMeter) Turn(string, time.Duration)  {}
func (noMeter) Rejected(string)             {}
func (noMeter) Evicted(string)              {}
func (noMeter) Restarted(bool)              {}
func (noMeter) PodSeen(int)                 {}
func (noMeter) Orphans(int, int)            {}
func (noMeter) Preempted(string)            {}

// Objects tracks the ConfigMaps, Secrets and tokens that pods refer to. Both calls are idempotent and cheap.
type Objects interface {
	Track(p *v1.Pod)
	Forget(uid types.UID)
}

// Network is the state of the pod network as the runtime reports it.
type Network struct {
	Ready   bool
	Message string
}

// Config configures a Loop.
type Config struct {
	Pods        Pods
	Cache       Cache
	Performer   podworker.Performer
	Checkpoints podworker.Checkpoints
	Prober      Prober
	Reporter    podworker.Reporter
	Recorder    Recorder
	// Meter and Resizes may be nil.
	Meter   Meter
	Resizes resizes.Meter
	Objects Objects
	// Policy returns the policy of the node. It is called in every turn, and the value is never changed; a new policy replaces
	// it.
	Policy func() *decide.Policy
	Hash   func(p *v1.Pod, c *v1.Container) string
	// Refresh reads again the facts that Admit and Resize use; nil: they are always up to date. A worker calls it before it
	// takes the admission lock, so it may do IO.
	Refresh func(ctx context.Context)
	// Admit decides whether the node accepts a pod beside the pods that it has admitted. It is called with the admission lock
	// held, so it must do no IO.
	Admit func(p *v1.Pod, others []*v1.Pod) admit.Result
	// Resize decides whether the node accepts the resources that a pod asks for beyond those allocated to it, beside the other
	// pods that it has admitted. It is called with the admission lock held, so it must do no IO. Nil: the node accepts every
	// resize.
	Resize func(p, allocated *v1.Pod, others []*v1.Pod) admit.ResizeResult
	// NodeKnown reports whether the Node object that admission uses is known; until then pods wait. Nil: it always is.
	NodeKnown func() bool
	// NodeSince reports whether the Node object that admission uses was read after t. If not, it starts to read the object
	// again. Nil: the known object is always the newest. It must not block.
	NodeSince func(t time.Time) bool
	// Leftovers lists the pods that left directories or cgroups behind, without those for which known returns true.
	Leftovers func(known func(types.UID) bool) ([]types.UID, error)
	// Holds is called with the pods that hold resources of the node, when they have changed and periodically, so that the
	// weights of the cgroups above pods can follow. There is one call at a time, and it may be slow. May be nil.
	Holds func(ctx context.Context, pods []*v1.Pod)
	// Clock is the node's clock, for the times of objects.
	Clock nodeclock.Clock
	// WentWrong is called with each turn in which something of a pod went wrong (see podworker.Config.WentWrong).
	WentWrong func(*replay.Turn)
	// StartSlots is the minimum and MostStarts the maximum of how many pods may start at the same time. Between them the number adapts
	// to how many starts the machine can do at once. If MostStarts is below StartSlots, the number is always StartSlots.
	StartSlots, MostStarts int
	// Storage measures what a pod uses on disk; nil: storage limits are not enforced. It may be slow.
	Storage func(ctx context.Context, p *v1.Pod) (StorageUse, error)
	// PodFiles measures the files that the agent makes for a pod's containers, and truncates them where they are too long; nil: there are
	// no such files.
	PodFiles func(uid types.UID) (volume.FilesUsage, error)
	// EvictedEvent records the event of an evicted pod with annotations; nil: Recorder records it without them. It must not block.
	EvictedEvent func(p *v1.Pod, message string, annotations map[string]string)
	// MaxDeadContainers is how many dead containers, beyond the newest of each container, the node keeps; nil: no limit.
	MaxDeadContainers *int
	// Housekeeping is the period of the housekeeping (1 min).
	Housekeeping time.Duration
	Log          *slog.Logger
}
