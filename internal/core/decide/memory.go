package decide

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// Memory is the state that one turn of a pod passes to the next turn, and in part to the next agent. Each part has one writer; all other
// code, and Decide too, only reads it.
//
//	part                            written by                         in the checkpoint
//	Grant                           the worker                         yes
//	Stop                            Halt                               yes
//	Resize                          its methods                        yes
//	PodSettled, ContainerSettled    Remember: decisions of plans;      yes
//	                                forgive ends a back-off
//	Ends                            its methods                        yes
//	PodLearned, ContainerLearned    Note and Meet: outcomes;           yes
//	                                Remember: removals that begin
//	PodTries, ContainerTries        Note: retries and back-off         no
//
// A checkpoint has only the fields that are not zero, because most are zero. Load corrects the times that it reads from a checkpoint. The
// results of probes are not memory but input: see ProbeResults.
type Memory struct {
	Grant
	// Stop is the node's reason to end the pod; nil: the node has no reason.
	Stop   *Stop  `json:",omitzero"`
	Resize Resize `json:",omitzero"`
	PodSettled
	// Ends are the container instances that the agent ends although the pod continues to run.
	Ends Ends `json:",omitzero"`
	PodLearned
	PodTries   `json:"-"`
	Containers []ContainerMemory `json:",omitzero"`
}

// ContainerMemory is the memory of one container of the spec, by name.
type ContainerMemory struct {
	Name string
	ContainerSettled
	ContainerLearned
	ContainerTries `json:"-"`
}

// Grant is what the node has accepted about the pod: its admission, its start time and its resources.
type Grant struct {
	Admitted bool `json:",omitzero"` // the node accepted the pod
	// StartTime is when the node first saw the pod. For a pod that is not static, it is status.startTime if the API status has one.
	// activeDeadlineSeconds counts from this time.
	StartTime time.Time `json:",omitzero"`
	// Allocated has the resources that the node has accepted for the pod. Everything but admission uses these resources instead of the
	// spec's. Nil: the node has accepted all resources in the spec.
	Allocated *pod.Allocation `json:",omitzero"`
}

// PodSettled contains the decisions about the pod that a later turn must not make again.
type PodSettled struct {
	// StopBegan is when this agent first planned termination, or continued it after a restart. The grace period runs from then. StopGrace
	// is the shortest grace period that applied to this termination at any time, in this agent or an earlier one.
	StopBegan time.Time     `json:",omitzero"`
	StopGrace time.Duration `json:",omitzero"`
	// Finished: every container has ended and none will run again, even if the runtime loses the containers.
	Finished bool `json:",omitzero"`
	// Orphaned: no source had the pod when its end began. The end continues until nothing of the pod is left, even if a source
	// has the pod again meanwhile. Only then may the pod start again, with a new Memory.
	Orphaned bool `json:",omitzero"`
	// RestartingAll is set while all containers are stopped and removed because one of them ended with a RestartAllContainers rule; then
	// they start again, the first init container first. RestartedAll is set once such a restart has begun. From then on, a container that
	// the runtime does not have must start, even if the API status shows that it has ended, unless it is an ephemeral one.
	RestartingAll bool `json:",omitzero"`
	RestartedAll  bool `json:",omitzero"`
}

// ContainerSettled contains the decisions about a container that later turns use.
type ContainerSettled struct {
	// CrashDelay is how long the next restart will wait. CrashUntil is when the present wait ends, and CrashedID the container
	// instance for which it was set.
	CrashDelay time.Duration `json:",omitzero"`
	CrashUntil time.Time     `json:",omitzero"`
	CrashedID  string        `json:",omitzero"`
	// ReplacedID is a container that was ended in order to start it again, whatever its exit code. ReplacedFor is the cause.
	ReplacedID  string    `json:",omitzero"`
	ReplacedFor pod.Cause `json:",omitzero"`
}

// PodLearned is what the worker knows about the pod only from the outcomes of actions.
type PodLearned struct {
	// GroupSize is the size last given to the pod's cgroup; GroupSized says whether it is known.
	GroupSize  pod.Size `json:",omitzero"`
	GroupSized bool     `json:",omitzero"`
}

// ContainerLearned is what the worker knows about a container only from the outcomes of actions.
type ContainerLearned struct {
	// Kind is the list of the spec that has the container, and Place its index in that list, as of its last start. They are stored here
	// because they are known from nowhere else once the pod's object is gone.
	Kind  pod.Kind `json:",omitzero"`
	Place uint16   `json:",omitzero"`
	// PostStartedID is the container whose postStart hook has been done; PostStartFailed if it failed.
	PostStartedID   string `json:",omitzero"`
	PostStartFailed bool   `json:",omitzero"`
	// PreStoppedID is the container whose preStop hook has been run.
	PreStoppedID string `json:",omitzero"`
	// SizedID is the container that was last given a size, by its start or by a resize, and Size that size. Both are empty from when the agent
	// begins to remove the container of a pod that does not end.
	SizedID string   `json:",omitzero"`
	Size    pod.Size `json:",omitzero"`
	// Attempts is one more than the highest attempt that an agent may have created, for a static pod; 0: none, or the pod is not static. (Those of
	// other pods are in the API status.) The next agent counts on from it even if the runtime has lost its state, because the logs are still there.
	Attempts uint32 `json:",omitzero"`
}

// PodTries is what this agent has tried: which actions succeeded and need no repetition, and when failed ones may be tried again.
type PodTries struct {
	// SetUp is set if the volumes are set up. Outdated is set if they have to be set up again, because they may show old content; containers
	// start and restart meanwhile. TornDown is set after a successful tear-down, and Forgotten after a successful OpForget, which is the
	// last action.
	SetUp     bool
	Outdated  bool
	TornDown  bool
	Forgotten bool
	// Retry holds the back-off of failed actions on the whole pod or a sandbox: SetUp, RunSandbox, TearDown, StopSandbox...
	Retry []Retry
	// LastOutcome is the end of the newest action that may have changed the pod in the runtime. An older Observed is stale.
	// (Volumes, pulls and hooks change nothing in the runtime.)
	LastOutcome time.Time
	// SandboxAttempt is the highest sandbox attempt that may exist in the runtime.
	SandboxAttempt      uint32
	SandboxAttemptKnown bool
	// StoppedSandboxes are the sandboxes for which StopPodSandbox succeeded. A sandbox that is not ready need not be in this
	// list, because it may have died by itself.
	StoppedSandboxes []string
}

// ContainerTries is what this agent has tried with a container, and when failed actions may be tried again.
type ContainerTries struct {
	// Pulled is set if the image is known to be present for the next start. ImageRef is the reference that the runtime returned for the
	// image. PulledImage is the image in the spec at the time of the last pull; if the spec now has another image, the other fields do not
	// apply. PullDelay is the length of the ImagePullBackOff, which ends at PullUntil.
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
	// StartFailedID is a container that was created but could not be started. Its start is not tried again.
	StartFailedID string
	// HighestAttempt is the highest attempt that may exist in the runtime (after a create with an unknown result, the name may be
	// taken). AttemptKnown is set once this agent may have created an attempt.
	HighestAttempt uint32
	AttemptKnown   bool
	// StopID is the container of the last StopContainer, and Stopped is set if that call succeeded. The next call waits until StopUntil.
	StopID    string
	Stopped   bool
	StopDelay time.Duration
	StopUntil time.Time
	// SizeGiven says whether this agent gave the container its Size. The size in the checkpoint may not be the last one that an
	// earlier agent gave, because the disk may have been full.
	SizeGiven bool
}

// Retry is the kind of a failed action, and when such an action may be tried again.
type Retry struct {
	Op      pod.Op
	ID      string
	Delay   time.Duration
	Until   time.Time
	Reason  string
	Message string
	Lack    pod.Lack
}

// Stop is the reason why the node ends a pod, for example an eviction. A deletion in the API is not a Stop: the Pod itself shows it.
type Stop struct {
	// Reason and Message become the pod's status.reason and status.message, for example Evicted,
	// DeadlineExceeded, UnexpectedAdmissionError, OutOfcpu.
	Reason  string
	Message string
	// Detail is what is behind the message, for people; it may be empty.
	Detail string
	// Disruption is the message of the pod's condition DisruptionTarget. It is empty for a pod that caused its own end, for example by
	// exceeding its storage limit; such a pod does not have the condition.
	Disruption string
	// Rejected: the node never admitted the pod; nothing was started.
	Rejected bool
	// Grace overrides the spec's grace period when not nil.
	Grace *time.Duration
	// AtOnce: every container is killed without a grace period and without its preStop hook, whatever the other fields say: "When a hard
	// eviction threshold is met, the kubelet kills pods immediately without graceful termination". The node sets it only if the time that a
	// container may take to end would cost other pods their lives.
	AtOnce bool `json:",omitzero"`
	Since  time.Time
}

// Sooner returns a copy of s with the grace period of other, if the period of other is shorter than that of s, and with AtOnce of other, if
// other sets it. Otherwise it returns s itself. The result keeps the reason in s, but a second reason to stop the pod may require that the
// pod ends sooner.
func (s *Stop) Sooner(other *Stop) *Stop {
	shorter := other.Grace != nil && (s.Grace == nil || *s.Grace > *other.Grace)
	if !shorter && (s.AtOnce || !other.AtOnce) {
		return s
	}
	sooner := *s
	if shorter {
		sooner.Grace = new(*other.Grace)
	}
	sooner.AtOnce = s.AtOnce || other.AtOnce
	return &sooner
}

// Event returns the type and the message of the event about a Stop of a Plan: about a pod that is out of time, or that cannot have its volume.
func (s *Stop) Event() (eventType, message string) {
	if s.Reason == ReasonVolumeLimit {
		return v1.EventTypeWarning, strings.TrimPrefix(s.Message, messageVolumeLimit)
	}
	return v1.EventTypeNormal, s.Message
}

// Halt records that the node ends the pod, and why. The first reason stays; a later one can only shorten the grace period. A nil s
// changes nothing. Halt reports whether the checkpoint has to be written.
func (m *Memory) Halt(s *Stop) (kept bool) {
	if s == nil {
		return false
	}
	was := m.Stop
	if was == nil {
		m.Stop = s
	} else {
		m.Stop = was.Sooner(s)
	}
	return m.Stop != was
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

// Ensure returns the memory of a container. If there is none, it makes one. Its callers are the writers of the memory of containers (Note,
// Meet and Remember), and Next, which makes a new Memory.
func (m *Memory) Ensure(name string) *ContainerMemory {
	if c := m.Container(name); c != nil {
		return c
	}
	m.Containers = append(m.Containers, ContainerMemory{Name: name})
	return &m.Containers[len(m.Containers)-1]
}

// Kept returns a copy of the part of memory that a checkpoint keeps across agents. Later changes of m do not change the copy.
func (m *Memory) Kept() Memory {
	out := Memory{
		Grant: m.Grant, Stop: m.Stop.clone(), Resize: m.Resize, PodSettled: m.PodSettled, Ends: slices.Clone(m.Ends), PodLearned: m.PodLearned,
	}
	for i := range m.Containers {
		c := &m.Containers[i]
		out.Containers = append(out.Containers, ContainerMemory{Name: c.Name, ContainerSettled: c.ContainerSettled, ContainerLearned: c.ContainerLearned})
	}
	return out
}

// Load returns the memory of a checkpoint for an agent that begins now. A container or pod that was ending gets its whole grace
// period once more, from now: "If the kubelet or the container runtime's management service is restarted while waiting for
// processes to terminate, the cluster retries from the start including the full original grace period." Times that lie in the
// future, because the clock was set back, are corrected: without this a back-off could last too long.
func Load(kept *Memory, now time.Time, pol *Policy) *Memory {
	m := kept.Kept()
	if !m.StopBegan.IsZero() {
		m.StopBegan = now
	}
	for i := range m.Ends {
		if m.Ends[i].Began = now; m.Ends[i].Decided.After(now) {
			m.Ends[i].Decided = time.Time{}
		}
	}
	if m.StartTime.After(now) {
		m.StartTime = now
	}
	for i := range m.Containers {
		if c := &m.Containers[i]; c.CrashUntil.After(now.Add(pol.BackOffMax)) {
			c.CrashUntil = now.Add(pol.BackOffMax)
		}
	}
	return &m
}

// Rebooted tells the memory of a checkpoint that the machine has been booted since. The containers did not end for a fault of their own, and what
// they crashed for before may be gone, so they start at once, and their back-off starts over. (Upstream's kubelet
// keeps no back-off on disk.)
func (m *Memory) Rebooted() {
	for i := range m.Containers {
		c := &m.Containers[i]
		c.forgive()
		c.CrashUntil = time.Time{}
	}
}

// Revive returns the memory with which the next agent starts a static pod. A pod that ended, or was refused, because the machine shut down
// begins its next life, because its manifest is still there. The memory of any other pod stays as it is.
func (m *Memory) Revive() *Memory {
	if m.Stop != nil && (m.Stop.Reason == shutdown.ReasonTerminated || m.Stop.Reason == shutdown.ReasonRefused) {
		return m.Next()
	}
	return m
}

// Clone returns a copy for an export or a test. Later changes of m do not change the copy.
func (m *Memory) Clone() Memory {
	out := *m
	out.Stop = m.Stop.clone()
	out.Ends = slices.Clone(m.Ends)
	out.Retry = slices.Clone(m.Retry)
	out.Containers = slices.Clone(m.Containers)
	out.StoppedSandboxes = slices.Clone(m.StoppedSandboxes)
	return out
}

// Next returns the memory of a pod that a source has again after nothing of the pod was left on the node. It keeps only the highest
// attempts of the containers.
func (m *Memory) Next() *Memory {
	next := &Memory{}
	for i := range m.Containers {
		if c := &m.Containers[i]; c.AttemptKnown || c.Attempts > 0 {
			cm := next.Ensure(c.Name)
			cm.HighestAttempt, cm.AttemptKnown, cm.Attempts = c.HighestAttempt, c.AttemptKnown, c.Attempts
		}
	}
	return next
}

func (s *Stop) clone() *Stop {
	if s == nil {
		return nil
	}
	out := *s
	if s.Grace != nil {
		grace := *s.Grace
		out.Grace = &grace
	}
	return &out
}
