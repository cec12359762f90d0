package pod

import (
	"fmt"
	"time"
)

// These are labels of every sandbox and container. Kubernetes fixes their names: crictl, log collectors and other node agents
// read them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// These are annotations of containers. They contain what the agent needs to stop and report a container whose pod object is gone.
const (
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPodGracePeriod           = "io.kubernetes.pod.terminationGracePeriod" // grace period in seconds
	AnnotationPreStop                  = "io.kubernetes.container.preStopHandler"   // JSON of v1.LifecycleHandler
	AnnotationPorts                    = "io.kubernetes.container.ports"            // JSON of []v1.ContainerPort
	AnnotationSpecHash                 = "wherry.dev/spec-hash"                     // hash of the container's spec; absent: another agent made the container
)

// AnnotationStopped marks a pushed pod that was stopped but not removed (wherry stop): its containers stay for their logs.
const AnnotationStopped = "wherry.dev/stopped"

// Observed is the result of one inspection of a pod in the runtime. If it has nothing but a Ref, the pod was never inspected
// (Began is zero) or the runtime has nothing of it (Began is set).
type Observed struct {
	Ref Ref
	// Began is when the inspection began, with a monotonic reading. The value contains everything that happened in the runtime
	// before that time, and may contain what happened after it.
	Began time.Time
	// Sandboxes has all attempts of the pod's sandbox, the newest first.
	Sandboxes []Sandbox
	// Containers has all attempts of all containers. Of the attempts with the same name, the newest comes first.
	Containers []Container
}

// Sandbox is a pod sandbox of the runtime.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	CreatedAt   time.Time
	IPs         []string // addresses as the runtime reports them; empty for a host-network pod
	HostNetwork bool
	Handler     string // runtime handler, which a RuntimeClass selects
}

// ContainerState is the state of a container in the runtime.
//
//	Created ──► Running ──► Exited
//	   └───────────────────────┘      Unknown: the runtime lost track of it
type ContainerState uint8

// These are the states of a container, as in CRI.
const (
	StateCreated ContainerState = iota
	StateRunning
	StateExited
	StateUnknown
)

// String returns the word used in scripts and logs.
func (s ContainerState) String() string {
	switch s {
	case StateCreated:
		return "created"
	case StateRunning:
		return "running"
	case StateExited:
		return "exited"
	case StateUnknown:
		return "unknown"
	}
	return "invalid"
}

// MarshalText returns the word that String returns.
func (s ContainerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s to the state that the word names. It returns an error for an unknown word.
func (s *ContainerState) UnmarshalText(text []byte) error {
	for state := StateCreated; state <= StateUnknown; state++ {
		if state.String() == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("container state %q is unknown", text)
}

// ExitLost is the exit code that the agent reports for a container whose end nobody saw. Such a container counts as killed.
const ExitLost = 137

// Container is one attempt of one container.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	Attempt   uint32
	ExitCode  int32
	State     ContainerState
	// CutShort is set if the call that started the container ended early, so that the runtime gave up the start. The container never ran
	// and cannot be started; its state is StateCreated.
	CutShort bool
	PreStop  bool // AnnotationPreStop is present

	CreatedAt  time.Time
	StartedAt  time.Time // when the container started; zero: never
	FinishedAt time.Time // when the container ended; zero: not yet

	// Said has the reason and the message of the container's end; nil: there is neither.
	Said *Said

	Image    string // image as in the spec
	ImageRef string // image reference with digest, or image ID
	ImageID  string
	// ImageVolumes are the images that the container has mounted as volumes, as the runtime names them; nil: none.
	ImageVolumes []string `json:",omitempty"`

	SpecHash string        // value of AnnotationSpecHash
	Grace    time.Duration // value of AnnotationPodGracePeriod; negative: the annotation is missing
	LogPath  string
	// StopSignal is the signal that stops the container, in the API's form (SIGTERM, SIGRTMIN+1); empty: the runtime does not report it.
	StopSignal string
	// User is the user of the container's first process; nil: the runtime does not report it.
	User *User
	// Actual has the resources that the runtime reports. A part is zero if the runtime does not report it. (Runtimes do not know
	// memory requests.)
	Actual Size
	// LeastCPULimit is the smallest CPU limit that the kernel can enforce in the container's period (cpuCFSQuotaPeriod), in thousandths: a smaller
	// one has this effect, and is reported as this one. 0: the runtime does not report the period.
	LeastCPULimit int64 `json:",omitzero"`
}

// Said is the reason and the message with which a container ended.
type Said struct {
	Reason  string // reason as the runtime reports it, for example OOMKilled
	Message string // the termination message if the container wrote one, or else the runtime's message
}

// SaidOf returns a Said with this reason and message, or nil if both are empty.
func SaidOf(reason, message string) *Said {
	if reason == "" && message == "" {
		return nil
	}
	return &Said{Reason: reason, Message: message}
}

// User has the numeric IDs with which a process runs.
type User struct {
	UID, GID int64
	Groups   []int64 // supplementary group IDs
}

// Alive reports whether the container still needs to be stopped, because it runs or the runtime does not know its state.
func (c *Container) Alive() bool { return c.State == StateRunning || c.State == StateUnknown }

// NewestSandbox returns the sandbox of the highest attempt, or nil.
func (o *Observed) NewestSandbox() *Sandbox {
	if o == nil || len(o.Sandboxes) == 0 {
		return nil
	}
	return &o.Sandboxes[0]
}

// Newest returns the newest attempt of a container, or nil.
func (o *Observed) Newest(name string) *Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if o.Containers[i].Name == name {
			return &o.Containers[i]
		}
	}
	return nil
}

// ByID returns the container with this ID, or nil.
func (o *Observed) ByID(id string) *Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}

// AnyAlive reports whether any container of the pod is alive.
func (o *Observed) AnyAlive() bool {
	if o == nil {
		return false
	}
	for i := range o.Containers {
		if o.Containers[i].Alive() {
			return true
		}
	}
	return false
}

// Empty reports whether the runtime has nothing of this pod.
func (o *Observed) Empty() bool {
	return o == nil || (len(o.Sandboxes) == 0 && len(o.Containers) == 0)
}
