package decide

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Input is all that a decision may depend on.
type Input struct {
	// Pod is the desired pod, with the resources that the node has accepted (Memory.Allocated); nil when no source has
	// it any more (the runtime still may).
	Pod *v1.Pod
	// LastGrace is used when Pod is nil: the grace period, in seconds, of the deletion that removed the pod. A worker may never
	// see the object of a forced deletion. Nil: unknown.
	LastGrace *int64
	// Observed is the newest inspection; never nil.
	Observed *pod.Observed
	// Memory is what earlier turns of this pod left; never nil. Decide does not write to it.
	Memory *Memory
	// InFlight are the actions that have begun and have no outcome yet.
	InFlight []pod.Action
	// Stale is set while Observed began before the newest outcome ended: things may be stopped, nothing started.
	// The caller says so: the stamp of an inspection is newer than Observed.Began where a relist found no change.
	Stale bool
	// Hashes are the spec hashes of the pod's containers by name (crispec.SpecHash), made once per spec. A
	// container without one here, or observed without one, is never restarted for a changed definition.
	Hashes map[string]string
	// Sizes are the resources of the pod's cgroup and of its containers (crispec.Sizes), computed once per spec. A container
	// without an entry has none.
	Sizes  []pod.NamedSize
	Node   Node
	Policy *Policy
	Now    time.Time
}

// Node is what the pod needs to know of its node at this moment.
type Node struct {
	// NetworkReady is false while the runtime says that the pod network is not set up: only host-network pods
	// may get a sandbox. NetworkMessage says why, in the runtime's words.
	NetworkReady   bool
	NetworkMessage string
	// SourcesReady is set once every configured source has answered: before that nothing is stopped or removed
	// for being unwanted.
	SourcesReady bool
	// Predecessor is set while another pod of the same full name still has something running or mounted here.
	Predecessor bool
	// Excess are dead containers of the pod that must go because the node holds too many. Only attempts that have been
	// replaced are removed for it.
	Excess []string
}

// Policy is configuration and feature gates, as values.
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
	// DeadContainerAge is how long an attempt is kept in any case after its end.
	DeadContainersPerContainer int
	DeadContainerAge           time.Duration
	// MinGrace is the smallest grace that a StopContainer gets, also when the grace period is over, shorter or zero (2 s).
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

// Stop says that a pod must end before its spec says so. A deletion in the API needs no Stop: it is in the Pod.
type Stop struct {
	// Reason and Message become the pod's status.reason and status.message, for example Evicted,
	// DeadlineExceeded, UnexpectedAdmissionError, OutOfcpu.
	Reason  string
	Message string
	// Rejected: the node never admitted the pod; nothing was started.
	Rejected bool
	// Grace overrides the spec's grace period when not nil.
	Grace *time.Duration
	Since time.Time
}

// Memory is what one pod's decisions leave for the next, and what a checkpoint keeps across agents. Fields
// marked (kept) are in the checkpoint; the others are found again.
type Memory struct {
	Admitted bool  // (kept) the node accepted the pod
	Stop     *Stop // (kept) it must end for a reason of the node's
	// StopBegan is when termination was first planned: the grace period runs from here. (kept)
	StopBegan time.Time
	// StopGrace is the shortest grace period that this termination was ever given, from StopBegan. (kept)
	StopGrace time.Duration
	// Finished: every container has run to its end. It is never run again, whatever the runtime loses. (kept)
	Finished bool
	// Orphaned: no source had the pod when its end began. It ends until nothing of it is left, even if a source names it
	// again meanwhile; only after that may it start again, with a new Memory. (kept)
	Orphaned bool
	// RestartingAll: a container ended with a RestartAllContainers rule; all are stopped and removed, and begin
	// again with the first init container. (kept)
	RestartingAll bool
	// RestartedAll: all containers were restarted in that way once. A container that is missing in the runtime then has to
	// start, whatever the API status says of it. (kept)
	RestartedAll bool
	// StartTime is when the node first knew the pod: status.startTime, from which activeDeadlineSeconds runs.
	// The worker sets it, from the API status where that has one. (kept)
	StartTime time.Time
	// Allocated is what the node has accepted of the pod's resources: everything but admission goes by it, not by the
	// spec. Nil: all. (kept)
	Allocated *pod.Allocation
	// Resize is the state of a resize that is pending or in progress. (kept)
	Resize Resize
	// GroupSize is the size last given to the pod's cgroup; GroupSized says whether it is known. (kept)
	GroupSize  pod.Size
	GroupSized bool
	// Ends are the container instances that end while the pod goes on. (kept)
	Ends []End
	// SetUp is set while the last volume set-up succeeded and nothing has changed since; TornDown after a
	// successful tear-down. Forgotten: the last act succeeded.
	SetUp     bool
	TornDown  bool
	Forgotten bool
	// Retry holds the back-off of pod-level verbs that failed: SetUp, RunSandbox, TearDown, StopSandbox...
	Retry      []Retry
	Containers []ContainerMemory
	// LastOutcome is when the newest outcome ended that may have changed what the runtime holds of this pod;
	// Observed older than this is stale. (Volumes, pulls and hooks change nothing there.)
	LastOutcome time.Time
	// SandboxAttempt is the highest sandbox attempt that may exist in the runtime.
	SandboxAttempt      uint32
	SandboxAttemptKnown bool
	// StoppedSandboxes are the sandboxes for which StopPodSandbox succeeded. A sandbox that is only not ready may have died.
	StoppedSandboxes []string
}

// Resize is a change of a pod's resources on its way:
//
//	asked for ──► Pending (Deferred, Infeasible) ──► InProgress (Error) ──► done
//	          └──────── it fits now ────────────────┘
//
// Both may be true: the change before is still being made while the next has to wait.
type Resize struct {
	// Pending is the reason why the node has not accepted what the spec asks for: Deferred or Infeasible; empty: it
	// has. Generation is the pod's that was judged, Since when this reason began.
	Pending           string
	PendingMessage    string
	PendingGeneration int64
	PendingSince      time.Time
	// InProgress: accepted, and not all containers have what they should. Error is why, where it was tried and failed.
	InProgress bool
	Error      string
	Generation int64
	Since      time.Time
}

// Retry is a failed verb and when it may be tried again.
type Retry struct {
	Op      pod.Op
	ID      string
	Delay   time.Duration
	Until   time.Time
	Reason  string
	Message string
}

// ContainerMemory is the memory of one container of the spec, by name.
type ContainerMemory struct {
	Name string
	// Kind is the list of the spec that it stands in and Place its place there, from its last start: of a pod whose object is
	// gone nothing else says so. (kept)
	Kind  pod.Kind
	Place uint16
	// CrashDelay is the wait that the next restart gets; CrashUntil when the wait that runs now ends. (kept)
	CrashDelay time.Duration
	CrashUntil time.Time
	// CrashedID is the container instance for which CrashUntil was set. (kept)
	CrashedID string
	// Pulled: the image is known to be present for the next start. ImageRef is the reference the runtime gave.
	// PulledImage is the image, as the spec asks for it, to which these and the back-off belong.
	// PullDelay is the ImagePullBackOff that runs until PullUntil.
	Pulled      bool
	PulledImage string
	ImageRef    string
	PullDelay   time.Duration
	PullUntil   time.Time
	// PullFailed is the image that could not be pulled: the container's, or that of a volume.
	PullFailed string
	// WaitingReason and WaitingMessage say why the container does not run: the reason and message of the last failure.
	WaitingReason  string
	WaitingMessage string
	// StartDelay and StartUntil are the back-off after a create or start that failed: no new attempt before StartUntil.
	StartDelay time.Duration
	StartUntil time.Time
	// StartFailedID is a container that was created and could not be started: it is not tried again.
	StartFailedID string
	// HighestAttempt is the highest attempt that may exist in the runtime (a create whose result is unknown keeps its name
	// reserved). AttemptKnown tells whether any create was tried.
	HighestAttempt uint32
	AttemptKnown   bool
	// ProbedID is the container to which Started, Ready and Unhealthy belong.
	ProbedID         string // (kept by the API status)
	Started          bool
	Ready            bool
	Unhealthy        bool // liveness or startup failed: it must be restarted
	UnhealthyMessage string
	// PostStartedID is the container whose postStart hook has been done; PostStartFailed if it failed. (kept)
	PostStartedID   string
	PostStartFailed bool
	// PreStoppedID is the container whose preStop hook has been run. (kept)
	PreStoppedID string
	// StopID is the container that StopContainer was last done for; Stopped if it succeeded. The next one waits
	// until StopUntil.
	StopID    string
	Stopped   bool
	StopDelay time.Duration
	StopUntil time.Time
	// ReplacedID is a container that was ended to start again whatever it ends with, and ReplacedFor why. (kept)
	ReplacedID  string
	ReplacedFor pod.Cause
	// SizedID is the container that was last given a size, by its start or by a resize, and Size that size. (kept)
	SizedID string
	Size    pod.Size
	// SizeGiven says whether this agent gave that size. The size that an earlier agent noted may not be the last one that it
	// gave, because its disk may have been full.
	SizeGiven bool
}

// Container returns the memory of a container, or nil.
func (m *Memory) Container(name string) *ContainerMemory {
	for i := range m.Containers {
		if m.Containers[i].Name == name {
			return &m.Containers[i]
		}
	}
	return nil
}

// end returns the end of a container instance that was told to end while the pod went on, or nil.
func (m *Memory) end(id string) *End {
	for i := range m.Ends {
		if m.Ends[i].ID == id {
			return &m.Ends[i]
		}
	}
	return nil
}

// Ensure returns the memory of a container, made when missing. Only the worker and Note call it.
func (m *Memory) Ensure(name string) *ContainerMemory {
	if c := m.Container(name); c != nil {
		return c
	}
	m.Containers = append(m.Containers, ContainerMemory{Name: name})
	return &m.Containers[len(m.Containers)-1]
}

// Plan is what to do now.
type Plan struct {
	// Do are actions to begin: none of them is in flight, all may begin at once and in any order.
	Do []pod.Action
	// Cancel are keys of in-flight actions to cut short.
	Cancel []pod.Action
	// WakeAt is when to look again though nothing has happened; zero: never.
	WakeAt time.Time
	// Phase is where the pod is on its way.
	Phase Phase
	// Why is the reason for Phase, or for waiting: one line for the timeline.
	Why pod.Why

	// What this decision settles beyond this turn: Remember stores it in Memory.

	// Stop is set in the turn in which the pod's own deadline has passed.
	Stop *Stop
	// Ending is set while the pod ends; StopBegan and StopGrace are the clock of its grace period.
	Ending    bool
	StopBegan time.Time
	StopGrace time.Duration
	// Ended: the pod ends, and nothing of it runs or can begin to run: a terminal phase may be reported.
	Ended    bool
	Finished bool
	Orphaned bool
	// RestartingAll is the new value of Memory.RestartingAll.
	RestartingAll bool
	// Resized: the change of resources that was in progress is done.
	Resized bool
	// Ends are containers that this turn begins to end while the pod goes on.
	Ends []End
	// Replaced are containers that this turn begins to end so that they start again.
	Replaced []Replacement
	// Crashes are container ends, with the wait that each gets. One may stand here twice, and in the turns after.
	Crashes []Crash
}

// Crash is the end of one container instance that has to be started again.
type Crash struct {
	Name  string
	ID    string
	Until time.Time     // when it may start again
	Next  time.Duration // the wait that the end after this one will get
}

// Phase is the way of a pod through the agent.
//
//	Starting/Running ──► Stopping ──► Stopped ──► Clearing ──► Gone
//	(desired)            (containers   (nothing    (no source   (nothing is left
//	                      end)          runs, torn  has it)      anywhere)
//	                                    down)
type Phase uint8

// The phases.
const (
	PhaseActive   Phase = iota // it should run, or has run to its end by itself with things still to do
	PhaseStopping              // containers are being ended
	PhaseStopped               // nothing runs, volumes and cgroup are gone; containers stay for their logs
	PhaseClearing              // dead containers, sandboxes and directories are being removed
	PhaseGone                  // nothing is left: the worker may be dropped
)

// String is the word used in scripts.
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
