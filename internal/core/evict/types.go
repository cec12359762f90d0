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
	MaxPodGrace      time.Duration // evictionMaxPodGracePeriod: the longest grace period of a pod that goes for a soft threshold
	// MemoryRate is how fast the machine may fill its memory, in bytes per second: Interval follows from it. 0: 2 GiB.
	MemoryRate int64
}

// Layout says on which file systems the node keeps what.
type Layout struct {
	// ImagesApart: images are not on the file system of the agent's directory (nodefs).
	ImagesApart bool
	// LayersWithPods: with ImagesApart, the writable layers of containers are on nodefs and not with the images.
	LayersWithPods bool
}

// Input is all that a decision depends on.
type Input struct {
	Policy  *Policy
	Signals pressure.Signals
	Layout  Layout
	// Pods are the pods that hold resources of the node. Measured says which uses of theirs are known; Decide asks for others.
	Pods     []Pod
	Measured Use
	// Busy is set while a Reclaim, or a measurement of disks, that an earlier plan asked for still goes on: it may take long, and
	// a shortage of memory does not wait for it.
	Busy bool
	// Tried is the result of the last Reclaim; nil: none was asked for since the last victim.
	Tried *Tried
	// Hold is set while the node does not know its pods yet: nothing is done, and only the conditions follow.
	Hold bool
	// VictimEnded is set once the pod that was evicted last holds nothing of the node any more. Signals were read after that.
	VictimEnded bool
	Previous    State
	Now         time.Time
}

// Pod is a pod that holds resources of the node.
type Pod struct {
	Pod   *v1.Pod // with the resources that are allocated to it
	Usage *Usage  // nil: it could not be measured
	// EndsBy is when the grace period of a pod that ends already is over; zero: it does not end.
	EndsBy time.Time
}

// Use is a kind of use of pods, or several.
type Use uint8

// The uses.
const (
	MemoryUse Use = 1 << iota
	ProcessUse
	DiskUse
)

// useOf returns the use that a signal is about.
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

// Usage is what a pod uses.
type Usage struct {
	// Memory is in bytes, without page cache that the kernel can reclaim.
	Memory    uint64
	Processes uint64
	// Volumes are the emptyDirs on disk and the files that the agent made, Logs the logs of containers, Layers what containers
	// wrote to their root file systems.
	Volumes, Logs, Layers Disk
	Containers            []ContainerUsage // by name
}

// Disk is an amount of disk space.
type Disk struct{ Bytes, Inodes uint64 }

// ContainerUsage is what a container uses, in bytes; nil: not measured.
type ContainerUsage struct {
	Name   string
	Memory *uint64
	Disk   *uint64 // its layer and its logs
}

// Step is something that the node removes of its own before it evicts a pod.
type Step uint8

// The steps, in the order in which they are done.
const (
	DeadContainers Step = 1 << iota // containers that have ended and are kept for their logs
	UnusedImages                    // images that no pod uses or may start again with
)

// String names the steps.
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

// Tried is what a Reclaim has removed.
type Tried struct {
	Containers, Images int
	Bytes              uint64 // of the images
	Err                string // "": none
}

// State passes information from one decision to the next. The zero value is the start: nothing in it outlives the agent.
type State struct {
	pressure pressure.State
	victim   *victim
	tried    map[pressure.Signal]time.Time // when Reclaim was last asked for since the last victim
	stuck    map[pressure.Signal]time.Time // when no pod could be evicted for the signal
}

// victim is the pod that was evicted last.
type victim struct {
	uid       types.UID
	name      string
	signal    pressure.Signal
	at        time.Time
	grace     time.Duration
	available int64 // of the signal, when it was evicted
	used      int64 // what its end should bring
	endedAt   time.Time
}

// Victim returns the pod that was evicted last while the node waits for what it used; "": there is none.
func (s State) Victim() types.UID {
	if s.victim == nil {
		return ""
	}
	return s.victim.uid
}

// Plan is the decision.
type Plan struct {
	// Pressure has the node's conditions.
	Pressure pressure.Result
	// For is the threshold that the rest is about; the zero value while none is due.
	For pressure.Crossing
	// At most one of the next three is set.

	// Reclaim are steps to do now, in the order of the constants. Then Decide is called again with new signals and Tried.
	Reclaim Step
	// Measure is the use of the pods that Decide needs to know; 0: none.
	Measure Use
	// Evict is the pod to evict; nil: none.
	Evict *Eviction
	// WakeAt is when to measure again at the latest, whatever Interval says; zero: no such time.
	WakeAt time.Time
	// Why says for people what the node does, or what it waits for; "": nothing is short.
	Why   string
	State State
}

// Eviction is a pod that has to go.
type Eviction struct {
	Pod   *v1.Pod
	Grace time.Duration // how long its containers have to end
	// Message is the message of its status and event, in upstream's words.
	Message string
	// Annotations are those of the event, under upstream's names.
	Annotations map[string]string
	// Why says what was measured, against which threshold, why this pod, and what was tried before.
	Why string
}
