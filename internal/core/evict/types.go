package evict

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Policy is the configuration of eviction.
type Policy struct {
	Thresholds       []pressure.Threshold
	TransitionPeriod time.Duration // evictionPressureTransitionPeriod
	MaxPodGrace      time.Duration // evictionMaxPodGracePeriod: the longest grace period of a pod that is evicted for a soft threshold
	// MemoryRate is how fast the machine may fill its memory, in bytes per second. Interval depends on it. 0 means 2 GiB per second.
	MemoryRate int64
}

// Layout says which file systems contain images, layers and pod directories.
type Layout struct {
	// ImagesApart: images are not on the file system of the agent's directory (nodefs).
	ImagesApart bool
	// LayersWithPods: with ImagesApart, the writable layers of containers are on nodefs and not with the images.
	LayersWithPods bool
	// Unknown: the runtime has not yet said where it keeps images and layers, so Decide plans nothing for disks.
	Unknown bool
}

// Input contains everything that a decision depends on.
type Input struct {
	Policy  *Policy
	Signals pressure.Signals
	Layout  Layout
	// Pods are the pods that use resources of the node. Measured says which kinds of use have been measured and are in Pod.Usage. If
	// Decide needs another kind, it sets Plan.Measure.
	Pods     []Pod
	Measured Use
	// Busy is set while the node still carries out a Reclaim or a measurement of disks that an earlier plan asked for. Both may take
	// long. A shortage of memory does not wait for them.
	Busy bool
	// Tried contains what all Reclaims have removed since the last plan that set Forget; nil: there was no Reclaim.
	Tried *Tried
	// Removed is when the last Reclaim ended that removed anything; the zero value: none has.
	Removed time.Time
	// Hold is set while the node does not know its pods yet. Decide then evicts none, because one that it does not know may use more. It
	// plans nothing at all; only the conditions change. Spare is set beside Hold once the node has waited long for its pods: Decide then plans the
	// removal of dead containers, and of images that no container uses.
	Hold, Spare bool
	// VictimEnded is set once the pod that was evicted last uses no resources of the node any more. The caller measures Signals after
	// that.
	VictimEnded bool
	Previous    State
	Now         time.Time
}

// Pod is a pod that uses resources of the node.
type Pod struct {
	Pod   *v1.Pod // the pod, with the resources that are allocated to it
	Usage *Usage  // nil: what the pod uses could not be measured
	// EndsBy is when the grace period of a pod that is already ending is over; zero: it is not ending.
	EndsBy time.Time
}

// Use is a set of kinds of resources that pods use, for example MemoryUse|DiskUse.
type Use uint8

// These are the kinds of use.
const (
	MemoryUse Use = 1 << iota
	ProcessUse
	DiskUse
)

// useOf returns the kind of use that a signal measures.
func useOf(s pressure.Signal) Use {
	switch s {
	case pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable:
		return MemoryUse
	case pressure.PIDAvailable:
		return ProcessUse
	case pressure.NodefsAvailable, pressure.NodefsInodesFree, pressure.ImagefsAvailable, pressure.ImagefsInodesFree,
		pressure.ContainerfsAvailable, pressure.ContainerfsInodesFree:
	}
	return DiskUse
}

// Usage is the measured resource usage of one pod.
type Usage struct {
	// Memory is in bytes, without page cache that the kernel can reclaim.
	Memory    uint64
	Processes uint64
	// Volumes is the use of emptyDirs on disk and of the files that the agent created. Logs is the use of container logs. Layers
	// is the use of the containers' writable layers.
	Volumes, Logs, Layers Disk
	// NoLayers: the writable layers could not be measured, so Layers is too small. NoVolumes: the volumes could be measured in part only,
	// so Volumes is too small. NoLogs: the same about the logs.
	NoLayers, NoVolumes, NoLogs bool
	// LayersAt is when the runtime measured the layers; of several containers, the time that is longest ago. A runtime may measure them only from
	// time to time: containerd does so every 10 s. For a layer that it has not measured yet, it is when the container started. Zero: not known.
	LayersAt time.Time
	// Evades, with NoVolumes: the directories in a volume lie too deep in each other, or were moved all the time during the measurement. Only
	// the pod itself can have made them so.
	Evades     bool
	Containers []ContainerUsage // containers sorted by name
}

// Disk is an amount of disk space.
type Disk struct{ Bytes, Inodes uint64 }

// ContainerUsage is the measured resource usage of one container, in bytes. A field is nil if it was not measured.
type ContainerUsage struct {
	Name   string
	Memory *uint64
	Disk   *uint64 // writable layer and logs
}

// Step is something that the node removes before it evicts a pod.
type Step uint8

// These are the steps, in the order in which they are carried out.
const (
	DeadContainers Step = 1 << iota // containers that have ended and are kept for their logs
	UnusedImages                    // images that no container uses, and with which no pod may start a container
)

// String returns the names of the steps.
func (s Step) String() string {
	switch s {
	case DeadContainers:
		return "dead containers"
	case UnusedImages:
		return "unused images"
	case DeadContainers | UnusedImages:
		return "dead containers and unused images"
	}
	return "nothing"
}

// Tried counts the dead containers and unused images that were removed in one Reclaim (a removal that a Plan asks for), or in several.
type Tried struct {
	Containers, Images int
	Bytes              uint64 // size of the images
	// More: the last Reclaim ran out of time, so unused images may be left.
	More bool
	Err  string // the error of the last Reclaim; "": none
}

// After returns the sum of t and before, the removals before t; before may be nil. More and Err are those of t.
func (t *Tried) After(before *Tried) *Tried {
	if before == nil {
		return t
	}
	sum := *t
	sum.Containers, sum.Images, sum.Bytes = t.Containers+before.Containers, t.Images+before.Images, t.Bytes+before.Bytes
	return &sum
}

// State passes information from one decision to the next. The agent starts with the zero value, and State is not stored for the
// next agent.
type State struct {
	pressure pressure.State
	victim   *victim
	tried    map[pressure.Signal]attempt   // the attempts to reclaim since the last eviction
	stuck    map[pressure.Signal]dead      // shortages for which the node has found no pod to evict, by signal
	blind    map[pressure.Signal]blindness // since when pods could not be measured completely, by signal
	levels   map[pressure.Signal]level     // how much was available on disks in the last seconds
	held     bool                          // the node did not know its pods
}

// dead describes a dead end: a shortage for which nothing could be removed and no pod could be evicted.
type dead struct {
	at      time.Time     // when the node last found that
	wait    time.Duration // time until the node tries again
	removed int           // how many containers and images were removed until then
}

// attempt records how often a plan had a Reclaim, and how much was available at the last one.
type attempt struct {
	times     int
	available int64
}

// blindness contains the time since which pods could not be measured completely, and the time of the last measurement.
type blindness struct{ since, last time.Time }

// victim is the last evicted pod.
type victim struct {
	uid    types.UID
	name   string
	signal pressure.Signal
	at     time.Time
	grace  time.Duration
	soft   bool // the pod was evicted for a soft threshold
	atOnce bool // the pod's containers were killed at once
	// before is the pod that was evicted earlier, and that had not ended when this pod was evicted for a threshold that pressed (Plan.presses); nil:
	// there is none.
	before    *victim
	available int64 // value of the signal when the pod was evicted
	used      int64 // amount that the pod's end should free
	endedAt   time.Time
}

// Victim returns the last evicted pod while the node waits until what it used is available again. It returns "" if there is no
// such pod.
func (s State) Victim() types.UID {
	if s.victim == nil {
		return ""
	}
	return s.victim.uid
}

// Pause is what the node waits for before it does more about a shortage.
type Pause uint8

// These are the pauses.
const (
	NoPause    Pause = iota
	ForWork          // the work that an earlier plan asked for has not ended
	ForRemoved       // containers and images were removed a moment ago, and the runtime may not have deleted their files yet
	ForLayout        // the runtime has not said where it keeps images and layers
	ForUsage         // what pods have on the disk could be measured in part only, and is measured again
	ForEnding        // pods end anyway
	ForEvicted       // the pod that was evicted last has not ended, or what it used is not available again
)

// Plan is the result of a decision.
type Plan struct {
	// Pressure contains the node's conditions.
	Pressure pressure.Result
	// For is the threshold that caused the rest of the plan, except Stuck; the zero value: nothing is done about any threshold.
	For pressure.Crossing
	// At most one of Reclaim, Measure and Evict is set.

	// Reclaim contains the steps to carry out now, in the order of the constants. The caller then calls Decide again with new
	// signals and Tried.
	Reclaim Step
	// Measure is the kind of use that the caller has to measure; 0: none.
	Measure Use
	// Evict is the pod to evict; nil: none.
	Evict *Eviction
	// Forget: the caller has to forget Input.Tried, because it says nothing about what follows. No disk is short any more, a pod is evicted, or the
	// wait for one has ended.
	Forget bool
	// Pause is what the node waits for. It is set only if Reclaim, Measure and Evict are not.
	Pause Pause
	// Stuck lists the thresholds that are due and for which no pod can be evicted. The node tries again later.
	Stuck []pressure.Crossing
	// WakeAt is the latest time of the next measurement, even if Interval says later; zero: Interval alone decides.
	WakeAt time.Time
	// Why explains to people what the node does, or what it waits for; "": nothing is short.
	Why   string
	State State
}

// Eviction says which pod the node evicts, and how.
type Eviction struct {
	Pod *v1.Pod
	// Grace is the grace period of the pod: 0 for a hard threshold.
	Grace time.Duration
	// AtOnce: the containers are killed without being asked to end. It is set for a hard threshold of memory: while a container takes the
	// time to end, it can use up the memory that is left, and then the kernel kills any process. A pod that fills a disk or uses up the
	// process IDs kills no other pod, so its containers are asked first.
	AtOnce bool
	// Message is the message of the pod's status and of the event, in upstream's words.
	Message string
	// Annotations are the annotations of the event, under upstream's names.
	Annotations map[string]string
	// Why explains what was measured, which threshold it met, why this pod was chosen, and what was tried before.
	Why string
}
