package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Op is the kind of an action, also called its verb. Each kind has one file in package perform.
type Op uint8

// These are the kinds of actions, in the order in which a pod usually needs them.
const (
	OpNone            Op = iota
	OpSetUp              // pod directories, cgroup and volumes; idempotent, also refreshes volumes
	OpRunSandbox         // RunPodSandbox; Attempt is the sandbox's attempt
	OpPullImage          // ensure the image of Container; can be cancelled
	OpStartContainer     // create and start; with ID set, start a container that is already created
	OpPostStart          // run the postStart hook of container ID; can be cancelled
	OpPreStop            // run the preStop hook of container ID, which may take Grace before SIGTERM; can be cancelled
	OpStopContainer      // StopContainer of ID with Grace
	OpStopSandbox        // StopPodSandbox of ID
	OpTearDown           // unmount volumes, remove the cgroup; all containers and sandboxes must have stopped
	OpRemoveContainer    // remove a dead container and its log
	OpRemoveSandbox      // remove a stopped sandbox
	OpForget             // remove pod directories and log directory: always the last action
	OpResize             // UpdateContainerResources of ID to Size; without a Container, resize the pod's cgroup to Size
)

var opNames = [...]string{
	"none", "set-up", "run-sandbox", "pull-image", "start-container", "post-start", "pre-stop",
	"stop-container", "stop-sandbox", "tear-down", "remove-container", "remove-sandbox", "forget", "resize",
}

// String returns the word used in scripts, logs and timelines.
func (op Op) String() string {
	if int(op) < len(opNames) {
		return opNames[op]
	}
	return fmt.Sprintf("op(%d)", op)
}

// MarshalText returns the word that String returns.
func (op Op) MarshalText() ([]byte, error) { return []byte(op.String()), nil }

// UnmarshalText sets op to the kind of action that the word names. It returns an error for an unknown word.
func (op *Op) UnmarshalText(text []byte) error {
	i := slices.Index(opNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("verb %q is unknown", text)
	}
	*op = Op(i)
	return nil
}

// Starts reports whether the action creates or starts something. While a pod terminates, or while the last inspection is older
// than the last outcome, no such action may be planned.
func (op Op) Starts() bool {
	switch op {
	case OpSetUp, OpRunSandbox, OpPullImage, OpStartContainer, OpPostStart, OpResize:
		return true
	case OpNone, OpPreStop, OpStopContainer, OpStopSandbox, OpTearDown, OpRemoveContainer, OpRemoveSandbox, OpForget:
		return false
	}
	return false
}

// Why is the reason of a decision, as text that people read in the timeline. No code decides by it; decisions depend on a Cause
// or another typed value. The values are constants, so that the plan of a pod with nothing to do allocates no memory.
type Why string

// Action is one thing to do to one pod. It is comparable. As a map key, use Key: it leaves out the fields that are only for
// people, so that equal work has equal keys.
type Action struct {
	Op        Op
	Container string // name of the container, for an action on a container
	ID        string // ID of the sandbox or container acted upon; empty for an action that creates one
	Attempt   uint32 // the attempt of the sandbox or container that is created
	Grace     time.Duration
	// Size is the size with which a container starts or to which it is resized (OpStartContainer, OpResize), or the new size of
	// the pod's cgroup (OpSetUp, OpResize without a Container).
	Size Size
	// Renews: the volumes are set up already, and only their content may be old (OpSetUp). Nothing waits for the action.
	Renews bool
	// Cause is why a container is ended (OpPreStop, OpStopContainer).
	Cause Cause
	Why   Why // the reason, as text for people
}

// Key returns the action without its reasons: two actions with equal keys are the same work.
func (a Action) Key() Action {
	a.Cause, a.Why = "", ""
	return a
}

// String prints the action as scripts show it: op, target, attempt, grace, why.
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(a.Op.String())
	if a.Container != "" {
		b.WriteString(" " + a.Container)
	}
	if a.ID != "" {
		b.WriteString(" id=" + a.ID)
	}
	if a.Op == OpRunSandbox || (a.Op == OpStartContainer && a.ID == "") {
		fmt.Fprintf(&b, " attempt=%d", a.Attempt)
	}
	if a.Op == OpStopContainer || a.Op == OpPreStop {
		fmt.Fprintf(&b, " grace=%s", a.Grace)
	}
	if a.Op == OpResize {
		fmt.Fprintf(&b, " to %s", a.Size)
	}
	if text := string(a.Why); text != "" {
		b.WriteString(" (" + text + ")")
	}
	return b.String()
}

// Outcome is how an action went. A failed action is not an error that someone returns: it is input to the next
// decision.
type Outcome struct {
	Action Action
	Began  time.Time
	Ended  time.Time
	// Err is nil if the action succeeded. Canceled is set if the action was cancelled.
	Err      error
	Canceled bool
	// Unknown is set if it is not known whether the runtime carried the action out (after a deadline or a lost connection).
	Unknown bool
	// Reason is the word for the failure that Kubernetes shows in a waiting state or an event: ErrImagePull, InvalidImageName,
	// ErrImageNeverPull, CreateContainerConfigError, CreateContainerError, RunContainerError, FailedCreatePodSandBox,
	// FailedMount, PostStartHookError.
	Reason  string
	Message string // a success may have one too: the size and duration of a pull
	Lack    Lack   // for a failed OpSetUp: what the pod's volumes need and do not have
	// ID is the sandbox or container that was created, or the reference of the image that was pulled, or the image whose pull
	// failed.
	ID string
}

// Job is one action with the data that it needs. Pod is nil if no source has the pod any more; then only actions that stop or
// remove something are possible.
type Job struct {
	Ref      Ref
	Pod      *v1.Pod
	Observed *Observed
	Action   Action
	// Kind is the kind of the action's container, from the memory of the worker. It is needed if Pod is nil.
	Kind Kind
	// ImageRef is the image reference that the runtime gave for the container's image; empty: unknown.
	ImageRef string
}

// TouchesRuntime reports whether the action changes what an inspection of the runtime shows.
func (op Op) TouchesRuntime() bool {
	switch op {
	case OpRunSandbox, OpStartContainer, OpStopContainer, OpStopSandbox, OpRemoveContainer, OpRemoveSandbox, OpResize:
		return true
	case OpNone, OpSetUp, OpPullImage, OpPostStart, OpPreStop, OpTearDown, OpForget:
		return false
	}
	return false
}
