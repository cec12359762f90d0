package archtest

// These are the places in the API in which a reason can appear.
const (
	inPodEvent      = "Events of pods"
	inNodeEvent     = "Events of nodes"
	inWaiting       = "Containers that wait"
	inTerminated    = "Containers that have terminated"
	inPodStatus     = "status.reason of pods"
	inPodCondition  = "Conditions of pods"
	inNodeCondition = "Conditions of nodes"
	inAction        = "Failed actions, in the timeline of a pod"
)

// reason is a word in an event, a condition or a status of the API, for which tools may search.
type reason struct {
	name, in string
	own      bool   // upstream's kubelet does not use this reason
	not      string // why this agent never uses it; "": it does
	when     string // when the agent uses it; "": that is obvious
}

const (
	noAttach      = "while a pod waits for an attachment, and while a volume is mounted, the reason is FailedMount"
	noTopology    = "there are no CPU, memory and topology managers"
	noImageID     = "an image without an ID is left alone"
	noFeatures    = "the scheduler and the API server check pods against the features that the node declares; the node does not check again"
	noCertificate = "a certificate that cannot be renewed is logged; once it has expired, the reason is FailedMount"
)

var reasons = []reason{
	{name: "Pulling", in: inPodEvent}, {name: "Pulled", in: inPodEvent}, {name: "BackOff", in: inPodEvent}, {name: "Failed", in: inPodEvent},
	{name: "ErrImageNeverPull", in: inPodEvent}, {name: "InspectFailed", in: inPodEvent}, {name: "FailedToRetrieveImagePullSecret", in: inPodEvent},
	{name: "Created", in: inPodEvent}, {name: "Started", in: inPodEvent},
	{name: "Killing", in: inPodEvent, when: "has upstream's message; sent once for each container instance, before its preStop hook runs or when it gets TERM"},
	{name: "FailedKillPod", in: inPodEvent}, {name: "FailedCreatePodContainer", in: inPodEvent}, {name: "FailedCreatePodSandBox", in: inPodEvent},
	{name: "SandboxChanged", in: inPodEvent}, {name: "FailedMount", in: inPodEvent},
	{name: "FailedUnMount", in: inPodEvent, own: true, when: "the volumes of a pod that has ended cannot be taken down, for example because their CSI driver is away"},
	{name: "NetworkNotReady", in: inPodEvent},
	{name: "Unhealthy", in: inPodEvent}, {name: "ProbeWarning", in: inPodEvent},
	{name: "OOMKilling", in: inPodEvent, own: true, when: "the kernel killed a process of the pod because memory ran out, even if it is not the first process of its container"},
	{name: "FailedPostStartHook", in: inPodEvent}, {name: "FailedPreStopHook", in: inPodEvent}, {name: "LifecycleHTTPFallback", in: inPodEvent},
	{name: "ServiceAccountTokenExpired", in: inPodEvent, own: true, when: "a pod of a node that has started without its API server uses a token that has expired"},
	{name: "ImagePullStalled", in: inPodEvent, own: true, when: "no data of an image arrives for two minutes; the pull goes on"},
	{name: "DNSConfigForming", in: inPodEvent}, {name: "MissingClusterDNS", in: inPodEvent},
	{name: "Evicted", in: inPodEvent}, {name: "Preempting", in: inPodEvent}, {name: "DeadlineExceeded", in: inPodEvent},
	{name: "ResizeDeferred", in: inPodEvent}, {name: "ResizeInfeasible", in: inPodEvent}, {name: "ResizeStarted", in: inPodEvent},
	{name: "ResizeCompleted", in: inPodEvent}, {name: "ResizeError", in: inPodEvent},
	{name: "ExceededGracePeriod", in: inPodEvent, not: "a stop that does not end is tried again, and FailedKillPod says why"},
	{name: "FailedSync", in: inPodEvent, not: "the event PodInspectionHangs of the node reports a pod that cannot be inspected"},
	{name: "FailedPodSandBoxStatus", in: inPodEvent, not: "the status of a sandbox comes with the inspection of its pod"},
	{name: "FailedValidation", in: inPodEvent, not: "the event InvalidStaticPod of the node reports a manifest that cannot be used"},
	{name: "FailedAttachVolume", in: inPodEvent, not: noAttach}, {name: "SuccessfulAttachVolume", in: inPodEvent, not: noAttach},
	{name: "SuccessfulMountVolume", in: inPodEvent, not: noAttach}, {name: "FailedMapVolume", in: inPodEvent, not: "while a block device is made available, the reason is FailedMount"},
	{name: "AlreadyMountedVolume", in: inPodEvent, not: noAttach}, {name: "FailedMountOnFilesystemMismatch", in: inPodEvent, not: noAttach},
	{name: "VolumeResizeFailed", in: inPodEvent, when: "a CSI driver cannot expand a volume on the node"}, {name: "VolumeResizeSuccessful", in: inPodEvent, not: "this event comes from controllers"},
	{name: "FileSystemResizeFailed", in: inPodEvent, when: "a volume has grown, and the pod may only read it"}, {name: "FileSystemResizeSuccessful", in: inPodEvent, when: "a CSI driver has expanded a volume on the node"},
	{name: "VolumeConditionAbnormal", in: inPodEvent, when: "with the gate CSIVolumeHealth, when a CSI driver begins to report that something is wrong with a volume"},
	{name: "VolumePermissionChangeInProgress", in: inPodEvent, not: "the agent sends no event while it changes the group of a volume's files"},
	{name: "FailedPrepareDynamicResources", in: inPodEvent, when: "the pod has resource claims: this agent cannot prepare their devices, and the pod waits"},
	{name: "FailedNodeDeclaredFeaturesCheck", in: inPodEvent, not: noFeatures},
	{name: "HostIPsIPFamilyMismatch", in: inPodEvent, not: "no cloud provider changes the family of the node's addresses"},
	{name: "CertificateOverdueForRefresh", in: inPodEvent, not: noCertificate}, {name: "CertificateExpired", in: inPodEvent, not: noCertificate},

	{name: "FailedUnstageVolume", in: inNodeEvent, own: true, when: "no pod uses a volume any more, but its CSI driver cannot unstage it, or its disk cannot be disconnected; the node tries again"},
	{name: "Starting", in: inNodeEvent}, {name: "NodeReady", in: inNodeEvent}, {name: "NodeNotReady", in: inNodeEvent},
	{name: "NodeSchedulable", in: inNodeEvent}, {name: "NodeNotSchedulable", in: inNodeEvent}, {name: "Rebooted", in: inNodeEvent},
	{name: "NodeHasSufficientMemory", in: inNodeEvent}, {name: "NodeHasInsufficientMemory", in: inNodeEvent},
	{name: "NodeHasNoDiskPressure", in: inNodeEvent}, {name: "NodeHasDiskPressure", in: inNodeEvent},
	{name: "NodeHasSufficientPID", in: inNodeEvent}, {name: "NodeHasInsufficientPID", in: inNodeEvent},
	{name: "NodeAllocatableEnforced", in: inNodeEvent}, {name: "FailedNodeAllocatableEnforcement", in: inNodeEvent},
	{name: "CheckLimitsForResolvConf", in: inNodeEvent}, {name: "MissingClusterDNS", in: inNodeEvent},
	{name: "CgroupV1", in: inNodeEvent}, {name: "PossibleMemoryBackedVolumesOnDisk", in: inNodeEvent, when: "sent with the first such volume"},
	{name: "InvalidStaticPod", in: inNodeEvent, own: true, when: "a manifest that cannot be used; upstream's kubelet only logs it"},
	{name: "ConfigurationChanged", in: inNodeEvent, own: true, when: "fields of the configuration got new values while the agent runs; upstream's kubelet reads its configuration only at its start"},
	{name: "ConfigurationNeedsRestart", in: inNodeEvent, own: true, when: "fields of the configuration were changed and keep their values until the agent is restarted"},
	{name: "InvalidConfiguration", in: inNodeEvent, own: true, when: "the changed configuration is not valid; the one in effect stays"},
	{name: "PodInspectionHangs", in: inNodeEvent, own: true, when: "the runtime does not answer for one pod"},
	{name: "ProbesLate", in: inNodeEvent, own: true, when: "the machine is too slow for the periods of its probes, or so many checks hang that probes cannot begin"},
	{name: "KubeletSetupFailed", in: inNodeEvent, not: "an agent that cannot start ends with an error that names the setting"},
	{name: "Shutdown", in: inNodeEvent, when: "a shutdown of the machine begins or is cancelled"},
	{name: "EvictionThresholdMet", in: inNodeEvent},
	{name: "SystemOOM", in: inNodeEvent, when: "the kernel's log says that it killed a process because the machine ran out of memory"},
	{name: "ContainerGCFailed", in: inNodeEvent, not: "a removal that fails is tried again, and the pod's timeline shows it"},
	{name: "ImageGCFailed", in: inNodeEvent}, {name: "FreeDiskSpaceFailed", in: inNodeEvent},
	{name: "InvalidDiskCapacity", in: inNodeEvent}, {name: "InvalidImageID", in: inNodeEvent, not: noImageID},

	{name: "ContainerCreating", in: inWaiting}, {name: "PodInitializing", in: inWaiting}, {name: "CrashLoopBackOff", in: inWaiting},
	{name: "ImagePullBackOff", in: inWaiting}, {name: "ErrImagePull", in: inWaiting}, {name: "ErrImageNeverPull", in: inWaiting},
	{name: "InvalidImageName", in: inWaiting}, {name: "ImageInspectError", in: inWaiting}, {name: "RegistryUnavailable", in: inWaiting},
	{name: "SignatureValidationFailed", in: inWaiting}, {name: "CreateContainerConfigError", in: inWaiting},
	{name: "CreateContainerError", in: inWaiting}, {name: "RunContainerError", in: inWaiting}, {name: "PostStartHookError", in: inWaiting},
	{name: "RestartingAllContainers", in: inWaiting},
	{name: "PreCreateHookError", in: inWaiting, not: "there are no such hooks"}, {name: "PreStartHookError", in: inWaiting, not: "there are no such hooks"},

	{name: "Completed", in: inTerminated}, {name: "Error", in: inTerminated}, {name: "ContainerStatusUnknown", in: inTerminated},

	{name: "Evicted", in: inPodStatus}, {name: "Preempting", in: inPodStatus}, {name: "DeadlineExceeded", in: inPodStatus},
	{name: "UnexpectedAdmissionError", in: inPodStatus}, {name: "VolumeAttachmentLimitExceeded", in: inPodStatus}, {name: "InvalidNodeInfo", in: inPodStatus}, {name: "NodeAffinity", in: inPodStatus},
	{name: "NodeName", in: inPodStatus}, {name: "NodePorts", in: inPodStatus}, {name: "OutOf", in: inPodStatus, when: "the name of the resource follows: OutOfcpu"},
	{name: "TaintToleration", in: inPodStatus}, {name: "SysctlForbidden", in: inPodStatus}, {name: "AppArmor", in: inPodStatus},
	{name: "PodOSNotSupported", in: inPodStatus}, {name: "PodOSSelectorNodeLabelDoesNotMatch", in: inPodStatus},
	{name: "SupplementalGroupsPolicyNotSupported", in: inPodStatus},
	{name: "Removing", in: inPodStatus, own: true, when: "the user ended the pod with wherry stop or wherry rm on a node without a cluster"},
	{name: "NodeShutdown", in: inPodStatus}, {name: "Terminated", in: inPodStatus},
	{name: "TopologyAffinityError", in: inPodStatus, not: noTopology}, {name: "SMTAlignmentError", in: inPodStatus, not: noTopology},
	{name: "EmptyPodSharedPoolError", in: inPodStatus, not: noTopology},
	{name: "PodFeatureUnsupported", in: inPodStatus, not: noFeatures},
	{name: "PodLevelResourcesNotSupported", in: inPodStatus, not: "they are supported"},

	{name: "ContainersNotReady", in: inPodCondition}, {name: "ContainersNotInitialized", in: inPodCondition},
	{name: "ReadinessGatesNotReady", in: inPodCondition}, {name: "PodCompleted", in: inPodCondition}, {name: "PodFailed", in: inPodCondition},
	{name: "RestartAllContainersStarted", in: inPodCondition}, {name: "TerminationByKubelet", in: inPodCondition},
	{name: "Deferred", in: inPodCondition}, {name: "Infeasible", in: inPodCondition}, {name: "Error", in: inPodCondition},
	{name: "UnknownContainerStatuses", in: inPodCondition, not: "the status lists all containers from the beginning"},

	{name: "KubeletReady", in: inNodeCondition}, {name: "KubeletNotReady", in: inNodeCondition},
	{name: "KubeletHasSufficientMemory", in: inNodeCondition}, {name: "KubeletHasInsufficientMemory", in: inNodeCondition},
	{name: "KubeletHasNoDiskPressure", in: inNodeCondition}, {name: "KubeletHasDiskPressure", in: inNodeCondition},
	{name: "KubeletHasSufficientPID", in: inNodeCondition}, {name: "KubeletHasInsufficientPID", in: inNodeCondition},
	{name: "KubeletHasNoMemoryReading", in: inNodeCondition, own: true, when: "memory could not be measured, so the condition is Unknown"},
	{name: "KubeletHasNoDiskReading", in: inNodeCondition, own: true, when: "the disks could not be measured, so the condition is Unknown"},
	{name: "KubeletHasNoPIDReading", in: inNodeCondition, own: true, when: "the process IDs could not be counted, so the condition is Unknown"},

	{name: "KillContainerError", in: inAction}, {name: "KillPodSandboxError", in: inAction}, {name: "RemoveContainerError", in: inAction},
	{name: "RemovePodSandboxError", in: inAction, own: true}, {name: "PreStopHookError", in: inAction, own: true},
	{name: "ResizeError", in: inAction, own: true}, {name: "FailedMakePodDataDirectories", in: inAction, own: true},
	{name: "FailedUnmount", in: inAction, own: true}, {name: "FailedRemoveCgroup", in: inAction, own: true},
	{name: "FailedRemovePod", in: inAction, own: true}, {name: "FailedReleaseUserIDs", in: inAction, own: true},
	{name: "InternalError", in: inAction, own: true}, {name: "Canceled", in: inAction, own: true},
}

// noReasons has strings in the code that look like reasons of the agent but are not.
var noReasons = map[string]bool{
	"ProvisioningFailed": true, // of the provisioner that a fleet has for its simulated drivers, as in external-provisioner
}
