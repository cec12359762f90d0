package config

// These reasons are shared by several gates.
const (
	noDevices  = "devices and resource claims are not handed out"
	apiDecides = "the feature is always there: the API server's gate decides whether a pod may ask for it"
)

// gateUses has every gate of upstream's kubelet that can be set. The other gates of gateFacts are locked, or belong to other
// components. docs/feature-gates.md is generated from it (make golden).
var gateUses = map[string]fieldUse{
	// Pods.
	"ContainerRestartRules":                   honoured("agent.TestGatesTakeFieldsOut"),
	"RestartAllContainersOnContainerExits":    honoured("agent.TestGatesTakeFieldsOut"),
	"ContainerStopSignals":                    meaningless(apiDecides),
	"EnvFiles":                                honoured("agent.TestGatesTakeFieldsOut"),
	"HostnameOverride":                        honoured("agent.TestGatesTakeFieldsOut"),
	"ImageVolumeWithDigest":                   notHonoured("the digest of an image volume is not in the pod's status", "false"),
	"PodReadyToStartContainersCondition":      honoured("internal/core/podstatus.TestGatesOmitParts", "agent.TestGatesReachTheirParts"),
	"PodLogsQuerySplitStreams":                meaningless(apiDecides),
	"TaintTolerationComparisonOperators":      notHonoured("a toleration with the operator Lt or Gt tolerates nothing", "false"),
	"KubeletCrashLoopBackOffMax":              honoured("internal/edge/config.TestGates"),
	"ReduceDefaultCrashLoopBackOffDecay":      notHonoured("the back-off is that of the default: 10 s to 5 minutes", "false"),
	"PreventStaticPodAPIReferences":           honoured("internal/proof/agenttest.TestStaticPodRefersToTheAPIWhereTheGateIsOff"),
	"ChangeContainerStatusOnKubeletRestart":   notHonoured("a restart of the agent changes no container's status", "false"),
	"InPlacePodVerticalScalingInitContainers": honoured("internal/core/admit.TestResizeWithGatesOff", "agent.TestGatesReachTheirParts"),
	"InPlacePodLevelResourcesVerticalScaling": honoured("internal/core/admit.TestResizeWithGatesOff", "internal/core/podstatus.TestGatesOmitParts", "agent.TestGatesReachTheirParts"),
	"PodLevelResources":                       honoured("agent.TestGatesTakeFieldsOut"),

	// Images.
	"KubeletEnsureSecretPulledImages":                  honoured("internal/proof/agenttest.TestPullCredentialsPolicies"),
	"KubeletServiceAccountTokenForCredentialProviders": honoured("internal/edge/credplugin.TestTokenAttributesNeedTheGate"),
	"KubeletSeparateDiskGC":                            meaningless("the disks of images and of writable layers are always distinguished"),

	// Resources.
	"CPUManagerPolicyAlphaOptions":             notHonoured(noCPUPolicy, "false"),
	"CPUManagerPolicyBetaOptions":              meaningless("there is no static CPU policy to give options to"),
	"DisableCPUQuotaWithExclusiveCPUs":         meaningless("no container has CPUs of its own"),
	"CustomCPUCFSQuotaPeriod":                  honoured("internal/edge/config.TestGates"),
	"InPlacePodVerticalScalingExclusiveCPUs":   notHonoured(noCPUPolicy, "false"),
	"InPlacePodVerticalScalingExclusiveMemory": notHonoured(noNUMA, "false"),
	"MemoryQoS":                                      honoured("agent.TestMemoryQoSNeedsItsGate"),
	"PodLevelResourceManagers":                       notHonoured(noCPUPolicy, "false"),
	"QOSReserved":                                    notHonoured("requests are not reserved per QoS class", "false"),
	"TopologyManagerPolicyAlphaOptions":              notHonoured(noTopology, "false"),
	"TopologyManagerPolicyBetaOptions":               meaningless("there is no topology policy to give options to"),
	"LocalStorageCapacityIsolationFSQuotaMonitoring": refused("local storage is measured by walking directories, which does not see files that are open and have no name any more: leave the gate off, and keep pods that could fill the disk so on a file system of their own", "false"),

	// Devices.
	"DRAExtendedResource":                  notHonoured(noDevices, "false").byDefault(),
	"DRAWorkloadResourceClaims":            notHonoured(noDevices, "false"),
	"ResourceHealthStatus":                 notHonoured(noDevices, "false"),
	"ResourceHealthStatusMessage":          notHonoured(noDevices, "false"),
	"KubeletPodResourcesListUseActivePods": notHonoured(noDevices, "false"),

	// Volumes.
	"ClusterTrustBundleProjection": honoured("internal/proof/agenttest.TestCredentialProjectionsNeedTheirGates"),
	"PodCertificateRequest":        honoured("internal/proof/agenttest.TestCredentialProjectionsNeedTheirGates"),
	"CSIVolumeHealth":              honoured("internal/proof/agenttest.TestVolumeHealthNeedsItsGate"),
	"SELinuxMount":                 honoured("internal/edge/volume.TestSELinuxMountGate"),

	// Server and runtime.
	"ComponentFlagz":              honoured("internal/edge/server.TestZPages"),
	"ComponentStatusz":            honoured("internal/edge/server.TestZPages"),
	"ContainerCheckpoint":         honoured("agent.TestCheckpoint"),
	"ExtendWebSocketsToKubelet":   honoured("internal/proof/agenttest.TestDeclaredFeatures"),
	"PodsAPI":                     honoured("internal/proof/agenttest.TestPodsAPINeedsItsGate"),
	"PodAndContainerStatsFromCRI": notHonoured("statistics are read from control groups", "false"),
	"CRIListStreaming":            notHonoured("lists of the runtime come in one message", "false"),
	"EventedPLEG":                 meaningless("the runtime's events are used wherever it has them"),
	"PLEGOnDemandRelist":          meaningless("pods are looked at one by one when something happens"),

	// Node and identity.
	"AllowDNSOnlyNodeCSR":                    notHonoured("a serving certificate is asked for when the node has an address", "false"),
	"GracefulNodeShutdown":                   honoured("agent.TestShutdownPolicy"),
	"GracefulNodeShutdownBasedOnPodPriority": honoured("agent.TestShutdownPolicy"),
	"KubeletInUserNamespace":                 notHonoured("what the kernel refuses in a user namespace is an error", "false"),
	"KubeletRegistrationGetOnExistsOnly":     meaningless("the Node is read before it is made, and a refusal to make it is tried again"),
	"NodeDeclaredFeatures":                   honoured("internal/proof/agenttest.TestDeclaredFeatures"),
	"ReloadKubeletClientCAFile":              honoured("internal/edge/server.TestFixedClientCAs", "agent.TestReloadGates"),
	"ReloadKubeletServerCertificateFile":     honoured("internal/edge/identity.TestFixedServingFiles", "agent.TestReloadGates"),
	"RotateKubeletServerCertificate":         honoured("internal/edge/config.TestGates"),

	// Logs.
	"LoggingAlphaOptions": notHonoured(oneStream, "false"),
	"LoggingBetaOptions":  meaningless("logging.format: json needs no gate"),
}
