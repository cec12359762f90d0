package why

// Cause names what keeps a pod from running well. Some causes say that nothing does, for example Running.
type Cause string

// These are causes of the node itself.
const (
	RuntimeHangs     Cause = "RuntimeHangs"     // the runtime does not answer the inspection of the pod
	InspectionFailed Cause = "InspectionFailed" // the runtime answers the inspection of the pod with an error
	NotLooked        Cause = "NotLooked"        // the agent has just started and has not inspected the pod yet
	NoAnswer         Cause = "NoAnswer"         // the pod's worker did not take a turn in time, so only the status is known
)

// These are causes that end a pod or keep it from being admitted.
const (
	AdmissionWaits      Cause = "AdmissionWaits"      // the node cannot decide yet whether it takes the pod
	Refused             Cause = "Refused"             // the node did not admit the pod, for a reason that is not listed below
	DoesNotFit          Cause = "DoesNotFit"          // the node has too little of a resource for the pod
	TaintRefuses        Cause = "TaintRefuses"        // the node has a taint that the pod does not tolerate
	PortTaken           Cause = "PortTaken"           // another pod uses a port of the host that the pod wants
	LabelsDiffer        Cause = "LabelsDiffer"        // the node does not have the labels that the pod asks for
	PressureRefuses     Cause = "PressureRefuses"     // the node is short of a resource and takes no such pods
	SysctlForbidden     Cause = "SysctlForbidden"     // the pod sets a sysctl that the node does not allow
	AppArmorRefuses     Cause = "AppArmorRefuses"     // the node cannot enforce the AppArmor profile of the pod
	OSDiffers           Cause = "OSDiffers"           // the pod is for another operating system than that of the node
	GroupsPolicyRefuses Cause = "GroupsPolicyRefuses" // the runtime does not support the supplementalGroupsPolicy of the pod
	Evicted             Cause = "Evicted"             // the node ended the pod because it ran short of a resource
	Preempted           Cause = "Preempted"           // the node ended the pod to make room for a critical one
	NodeShutsDown       Cause = "NodeShutsDown"       // the machine shuts down
	DeadlineExceeded    Cause = "DeadlineExceeded"    // the pod was active for longer than activeDeadlineSeconds
	VolumeLimitReached  Cause = "VolumeLimitReached"  // the node has as many volumes of a CSI driver as it can have
	Stopped             Cause = "Stopped"             // the node ended the pod for another reason
)

// These causes say why a pod that has to end is not gone yet.
const (
	PreStopRuns      Cause = "PreStopRuns"      // a preStop hook runs
	GraceRuns        Cause = "GraceRuns"        // a container was asked to end and still runs within its grace period
	StopOverdue      Cause = "StopOverdue"      // the runtime has not ended a container although its grace period is over
	SandboxStops     Cause = "SandboxStops"     // the containers have ended and the sandbox is being stopped
	TearDownFails    Cause = "TearDownFails"    // volumes or the cgroup cannot be removed
	TearDownRuns     Cause = "TearDownRuns"     // volumes are being unmounted
	FinalizersRemain Cause = "FinalizersRemain" // nothing is left on the node; finalizers keep the object
	Removing         Cause = "Removing"         // nothing runs; what is left is being removed
	StoppedByUser    Cause = "StoppedByUser"    // somebody stopped the pod (wherry stop), and it is kept for its logs
)

// These causes keep a pod from starting its first container.
const (
	PredecessorRemains Cause = "PredecessorRemains" // an earlier pod of the same name is still on the node
	Queued             Cause = "Queued"             // the pod waits until other pods have started
	NetworkNotReady    Cause = "NetworkNotReady"    // the node has no pod network
	SetUpRuns          Cause = "SetUpRuns"          // directories, cgroup and volumes are being made
	SetUpFails         Cause = "SetUpFails"         // directories, cgroup or volumes cannot be made, for a reason that is not listed below
	ConfigMapMissing   Cause = "ConfigMapMissing"   // a volume needs a ConfigMap that does not exist
	SecretMissing      Cause = "SecretMissing"      // a volume needs a Secret that does not exist
	KeyMissing         Cause = "KeyMissing"         // a volume needs a key that a ConfigMap or Secret does not have
	ClaimMissing       Cause = "ClaimMissing"       // a volume's claim does not exist
	ClaimNotBound      Cause = "ClaimNotBound"      // a volume's claim is not bound to a persistent volume
	ClaimInUse         Cause = "ClaimInUse"         // a claim may be used by one pod only, and another pod uses it
	VolumeNotAttached  Cause = "VolumeNotAttached"  // a volume is not attached to the node yet
	AttachFails        Cause = "AttachFails"        // a volume cannot be attached to the node
	DriverMissing      Cause = "DriverMissing"      // the CSI driver of a volume has not registered on the node
	MountHangs         Cause = "MountHangs"         // the mount of a volume does not end in time, because its server or CSI driver does not answer
	BundleMissing      Cause = "BundleMissing"      // a volume needs a ClusterTrustBundle that does not exist
	CertificateAwaited Cause = "CertificateAwaited" // a volume needs a certificate that its signer has not issued
	ObjectForbidden    Cause = "ObjectForbidden"    // the API server does not let the node read an object of a volume
	APIServerAway      Cause = "APIServerAway"      // a volume needs an object, and the API server does not answer
	VolumeUnsupported  Cause = "VolumeUnsupported"  // this agent does not support this kind of volume
	DevicesUnsupported Cause = "DevicesUnsupported" // this agent cannot prepare the devices of resource claims
	SandboxStarts      Cause = "SandboxStarts"      // the runtime makes the sandbox
	SandboxFails       Cause = "SandboxFails"       // the runtime cannot make the sandbox
)

// These are causes of a container that does not run.
const (
	Pulling            Cause = "Pulling"            // the image of a container is being pulled
	ImageNotFound      Cause = "ImageNotFound"      // the registry has no such image
	ImageDenied        Cause = "ImageDenied"        // the registry does not give the image to these credentials
	RegistryAway       Cause = "RegistryAway"       // the registry cannot be reached
	PullFails          Cause = "PullFails"          // the pull fails for another reason
	ImageNameInvalid   Cause = "ImageNameInvalid"   // the image's name cannot be parsed
	ImageNeverPulled   Cause = "ImageNeverPulled"   // the image is not on the node, and imagePullPolicy is Never
	ImageUnverified    Cause = "ImageUnverified"    // the signature of the image is not valid
	ConfigInvalid      Cause = "ConfigInvalid"      // the container's configuration cannot be made, for example because a Secret is missing
	CommandNotFound    Cause = "CommandNotFound"    // the image has no such command
	CommandDenied      Cause = "CommandDenied"      // the command may not be executed
	CreateFails        Cause = "CreateFails"        // the runtime cannot create the container
	StartFails         Cause = "StartFails"         // the runtime cannot start the container
	ContainerStarts    Cause = "ContainerStarts"    // the container is being started
	PostStartRuns      Cause = "PostStartRuns"      // the postStart hook of a container runs
	PostStartFails     Cause = "PostStartFails"     // the postStart hook of a container failed
	OutOfMemory        Cause = "OutOfMemory"        // a container used more memory than its limit, and waits for its next start
	CrashLoop          Cause = "CrashLoop"          // a container ends again and again, and waits for its next start
	EndedRestarts      Cause = "EndedRestarts"      // a container has ended and is about to start again
	InitRuns           Cause = "InitRuns"           // an init container runs and has to complete first
	InitFailed         Cause = "InitFailed"         // an init container failed, and it is not started again
	LivenessRestarts   Cause = "LivenessRestarts"   // the liveness probe of a container failed, so the container is restarted
	StartupRestarts    Cause = "StartupRestarts"    // the startup probe of a container failed, so the container is restarted
	DefinitionRestarts Cause = "DefinitionRestarts" // the definition of a container changed, so the container is restarted
)

// These are causes of a pod whose containers run, or have ended for good.
const (
	StartupPending   Cause = "StartupPending"   // the startup probe has not succeeded yet
	ReadinessPending Cause = "ReadinessPending" // the readiness probe has not succeeded yet, and has failed less often than its threshold
	ReadinessFails   Cause = "ReadinessFails"   // the readiness probe fails
	GateMissing      Cause = "GateMissing"      // a readiness gate of the pod is not true
	ResizeWaits      Cause = "ResizeWaits"      // the pod runs, but a resize is not done yet, or cannot be done
	Running          Cause = "Running"          // everything is as the spec says
	Completed        Cause = "Completed"        // all containers have ended with success
	Failed           Cause = "Failed"           // a container has ended with an error, and nothing is started again
)

// Causes lists every cause, in the order of the tables above.
var Causes = [...]Cause{
	RuntimeHangs, InspectionFailed, NotLooked, NoAnswer,
	AdmissionWaits, Refused, DoesNotFit, TaintRefuses, PortTaken, LabelsDiffer, PressureRefuses, SysctlForbidden,
	AppArmorRefuses, OSDiffers, GroupsPolicyRefuses, Evicted, Preempted, NodeShutsDown, DeadlineExceeded, VolumeLimitReached, Stopped,
	PreStopRuns, GraceRuns, StopOverdue, SandboxStops, TearDownFails, TearDownRuns, FinalizersRemain, Removing, StoppedByUser,
	PredecessorRemains, Queued, NetworkNotReady, SetUpRuns, SetUpFails,
	ConfigMapMissing, SecretMissing, KeyMissing, ClaimMissing, ClaimNotBound, ClaimInUse, VolumeNotAttached, AttachFails, DriverMissing,
	MountHangs, BundleMissing, CertificateAwaited, ObjectForbidden, APIServerAway, VolumeUnsupported, DevicesUnsupported, SandboxStarts, SandboxFails,
	Pulling, ImageNotFound, ImageDenied, RegistryAway, PullFails, ImageNameInvalid, ImageNeverPulled, ImageUnverified,
	ConfigInvalid, CommandNotFound, CommandDenied, CreateFails, StartFails, ContainerStarts, PostStartRuns, PostStartFails,
	OutOfMemory, CrashLoop, EndedRestarts, InitRuns, InitFailed, LivenessRestarts, StartupRestarts, DefinitionRestarts,
	StartupPending, ReadinessPending, ReadinessFails, GateMissing, ResizeWaits, Running, Completed, Failed,
}

// Level says how healthy a pod is. Lists are sorted by it, and commands derive their exit code from it.
type Level uint8

// These are the levels, best first.
const (
	Well     Level = iota // the pod is as it should be
	Progress              // the pod is not yet as it should be, and nothing has failed
	Trouble               // something has failed or takes too long
)

// String returns the name of the level, as it appears in JSON.
func (l Level) String() string {
	switch l {
	case Well:
		return "well"
	case Progress:
		return "progress"
	case Trouble:
		return "trouble"
	}
	return "invalid"
}

// MarshalText returns the name of the level, as String does.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses the name of a level. An unknown name, for example from a newer agent, becomes Trouble.
func (l *Level) UnmarshalText(text []byte) error {
	for *l = Well; *l < Trouble && l.String() != string(text); *l++ {
	}
	return nil
}

// Level returns the level of a pod with this cause.
func (c Cause) Level() Level {
	switch c {
	case Running, Completed, StoppedByUser:
		return Well
	case NotLooked, PreStopRuns, GraceRuns, SandboxStops, TearDownRuns, Removing, Queued, SetUpRuns, SandboxStarts, Pulling,
		ContainerStarts, PostStartRuns, EndedRestarts, InitRuns, DefinitionRestarts, StartupPending, ReadinessPending, ResizeWaits, AdmissionWaits:
		return Progress
	}
	return Trouble
}
