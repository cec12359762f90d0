package pod

import "time"

// Labels that every sandbox and container carries. They are the field's names: crictl, log collectors and
// other node agents read them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// Annotations on containers: all that is needed to stop and report a container whose pod object is gone.
const (
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPodGracePeriod           = "io.kubernetes.pod.terminationGracePeriod" // seconds
	AnnotationPreStop                  = "io.kubernetes.container.preStopHandler"   // JSON of v1.LifecycleHandler
	AnnotationPorts                    = "io.kubernetes.container.ports"            // JSON of []v1.ContainerPort
	AnnotationSpecHash                 = "wherry.dev/spec-hash"                     // absent: made by another agent
)

// Observed is what one inspection of the runtime found of one pod. The zero value with a Ref means: inspected
// never (Began zero) or nothing there (Began set).
type Observed struct {
	Ref Ref
	// Began is when the inspection began, with a monotonic reading. Everything that happened in the runtime
	// before it is contained in this value; nothing after it is promised.
	Began time.Time
	// Sandboxes, newest attempt first.
	Sandboxes []Sandbox
	// Containers of all attempts, newest attempt first within a name.
	Containers []Container
}

// Sandbox is a pod sandbox of the runtime.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	CreatedAt   time.Time
	IPs         []string // as the runtime reports them; empty for a host-network pod
	HostNetwork bool
	Handler     string // runtime class handler
}

// ContainerState is the state of a container in the runtime.
//
//	Created ──► Running ──► Exited
//	   └───────────────────────┘      Unknown: the runtime lost track of it
type ContainerState uint8

// The states of a container, as CRI has them.
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

// ExitLost is the exit code of a container whose end nobody saw: it counts as killed.
const ExitLost = 137

// Container is one attempt of one container.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	Attempt   uint32
	ExitCode  int32
	State     ContainerState
	// CutShort: nobody waited any more for its start, so the runtime gave it up. It never ran and cannot be started; its
	// state is StateCreated.
	CutShort bool
	PreStop  bool // AnnotationPreStop is present

	CreatedAt  time.Time
	StartedAt  time.Time // zero: never started
	FinishedAt time.Time // zero: not finished

	// Said has the reason and the message of its end; nil: it has neither.
	Said *Said

	Image    string // as asked for
	ImageRef string // image reference with digest, or image ID
	ImageID  string

	SpecHash string        // AnnotationSpecHash
	Grace    time.Duration // AnnotationPodGracePeriod; negative: not said
	LogPath  string
	// StopSignal is the signal that ends it, as the API writes it (SIGTERM, SIGRTMIN+1); empty: the runtime does not report it.
	StopSignal string
	// User is the user of its first process; nil: the runtime does not report it.
	User *User
	// Actual has the resources that the runtime reports. A part is zero if the runtime does not report it. (Runtimes know no
	// memory requests.)
	Actual Size
}

// Said is the reason and the message with which a container ended.
type Said struct {
	Reason  string // as the runtime says, for example OOMKilled
	Message string // the termination message where the container wrote one, else the runtime's message
}

// SaidOf returns nil if both are empty.
func SaidOf(reason, message string) *Said {
	if reason == "" && message == "" {
		return nil
	}
	return &Said{Reason: reason, Message: message}
}

// User is whom a process runs as, by number.
type User struct {
	UID, GID int64
	Groups   []int64 // supplementary
}

// Alive reports whether the container still needs to be stopped: it runs, or the runtime does not know.
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

// Empty reports whether the runtime holds nothing of this pod.
func (o *Observed) Empty() bool {
	return o == nil || (len(o.Sandboxes) == 0 && len(o.Containers) == 0)
}
