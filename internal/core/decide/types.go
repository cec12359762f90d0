package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Input contains everything that a decision depends on.
type Input struct {
	// Pod is the desired pod, with the resources that the node has accepted (Memory.Allocated); nil if no source has the pod any
	// more (the runtime may still have it).
	Pod *v1.Pod
	// LastGrace is used when Pod is nil: the grace period, in seconds, of the deletion that removed the pod. A worker may never
	// see the object of a forced deletion. Nil: unknown.
	LastGrace *int64
	// Observed is the newest inspection; never nil.
	Observed *pod.Observed
	// Memory is what earlier turns of this pod have stored; never nil. Decide does not write to it.
	Memory *Memory
	// Probed contains the results of the probes of the pod's containers.
	Probed ProbeResults
	// InFlight are the actions that have begun and have no outcome yet.
	InFlight []pod.Action
	// Stale is set while Observed is older than the newest outcome. Decide may then stop containers but starts nothing. The caller
	// compares the outcome with the stamp of the cache entry, which is newer than Observed.Began if a relist found no change.
	Stale bool
	// Hashes are the spec hashes of the pod's containers by name (crispec.SpecHash), made once per spec. A container that has no hash
	// here, or was created with a hash of another version or with none, is never restarted for a changed definition.
	Hashes map[string]string
	// Sizes are the resources of the pod's cgroup and of its containers (crispec.Sizes), computed once per spec. A container
	// without an entry has none.
	Sizes  []pod.NamedSize
	Node   Node
	Policy *Policy
	Now    time.Time
}

// Node is the state of the node, as far as it matters for the pod.
type Node struct {
	// NetworkReady is false while the runtime says that the pod network is not set up: then only pods on the host's network may
	// get a sandbox. NetworkMessage says why, in the runtime's words.
	NetworkReady   bool
	NetworkMessage string
	// SourcesReady is set once every configured source has answered. Before that, no pod counts as unwanted.
	SourcesReady bool
	// Predecessor is set while containers or mounts of another pod with the same full name are still on this node.
	Predecessor bool
	// Excess are dead containers of the pod that must be removed because the node has too many of them, or is short of disk
	// space. The newest attempt of a container is removed for this only once the API server knows the end of the pod (EndReported), or the
	// node has ended the pod (Memory.Stop) and nothing of it is left to end.
	Excess []string
}

// Policy has the settings that come from configuration and feature gates.
type Policy struct {
	// BackOffInitial and BackOffMax bound CrashLoopBackOff ("10s, 20s, 40s, ... capped at 300 seconds").
	// BackOffReset is how long a container must run for its back-off to start over (10 minutes).
	BackOffInitial, BackOffMax, BackOffReset time.Duration
	// PullBackOffInitial and PullBackOffMax bound ImagePullBackOff.
	PullBackOffInitial, PullBackOffMax time.Duration
	// RetryInitial and RetryMax bound the back-off after a failed action that has no back-off of its own, for example
	// RunSandbox or SetUp. The wait doubles up to RetryMax.
	RetryInitial, RetryMax time.Duration
	// DeadContainersPerContainer is how many dead attempts of one container are kept for its logs; negative: all.
	// DeadContainerAge is the time after its end for which every attempt is kept.
	DeadContainersPerContainer int
	DeadContainerAge           time.Duration
	// MinGrace is the smallest grace period of a StopContainer, even if the pod's grace period is over, shorter or zero (2 s). It does not
	// apply to a pod that the node kills at once (Stop.AtOnce).
	MinGrace time.Duration
}

// DefaultPolicy has the values that Kubernetes documents.
func DefaultPolicy() Policy {
	return Policy{
		BackOffInitial: 10 * time.Second, BackOffMax: 5 * time.Minute, BackOffReset: 10 * time.Minute,
		PullBackOffInitial: 10 * time.Second, PullBackOffMax: 5 * time.Minute,
		RetryInitial: 500 * time.Millisecond, RetryMax: 2 * time.Minute,
		DeadContainersPerContainer: 1,
		MinGrace:                   2 * time.Second,
	}
}

// Plan is what to do now.
type Plan struct {
	// Do are actions to begin: none of them is in flight, all may begin at once and in any order.
	Do []pod.Action
	// Cancel has the keys (Action.Key) of the actions in flight to cancel.
	Cancel []pod.Action
	// WakeAt is when Decide has to be called again if nothing has changed before; zero: never.
	WakeAt time.Time
	// Phase is the pod's new phase.
	Phase Phase
	// Why is the reason for Phase, or for waiting: one line for the timeline.
	Why pod.Why

	// Remember stores the fields below in Memory, for later turns.

	// Stop is set by the decision that finds that the pod's activeDeadlineSeconds are over.
	Stop *Stop
	// Ending is set while the pod ends; StopBegan is when its grace period began, and StopGrace how long that is.
	Ending    bool
	StopBegan time.Time
	StopGrace time.Duration
	// Ended: the pod ends, and no container of it runs or can begin to run. A terminal phase may be reported.
	Ended    bool
	Finished bool
	Orphaned bool
	// RestartingAll is the new value of Memory.RestartingAll.
	RestartingAll bool
	// Resized is set when the resize in progress is complete.
	Resized bool
	// Ends are containers that this turn begins to end although the pod continues to run.
	Ends []End
	// Replaced are containers that this turn begins to end so that they start again.
	Replaced []Replacement
	// Crashes lists containers that have ended, each with its back-off. The same end may be listed twice, and again in later turns.
	Crashes []Crash
}

// Crash is the end of one container instance, after which its container has to start again.
type Crash struct {
	Name  string
	ID    string
	Until time.Time     // when the container may start again
	Next  time.Duration // the back-off after the next end
}

// Phase says which part of its life on this node a pod has reached.
//
//	Starting/Running ──► Stopping ──► Stopped ──► Clearing ──► Gone
//	(desired)            (containers   (nothing    (no source   (nothing is left
//	                      end)          runs, torn  has it)      anywhere)
//	                                    down)
type Phase uint8

// These are the phases.
const (
	PhaseActive   Phase = iota // the pod should run, or has completed and something is left to do
	PhaseStopping              // containers are being ended
	PhaseStopped               // nothing runs, volumes and cgroup are gone; containers stay for their logs
	PhaseClearing              // dead containers, sandboxes and directories are being removed
	PhaseGone                  // nothing is left: the worker may be dropped
)

// String returns the word for a phase in test scripts.
func (p Phase) String() string {
	switch p {
	case PhaseActive:
		return "active"
	case PhaseStopping:
		return "stopping"
	case PhaseStopped:
		return "stopped"
	case PhaseClearing:
		return "clearing"
	case PhaseGone:
		return "gone"
	}
	return "invalid"
}
