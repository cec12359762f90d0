package config

import "fmt"

// useState is the effect of a field or a feature gate in this agent.
type useState uint8

const (
	// stateHonoured: the field or gate has the effect that Kubernetes documents.
	stateHonoured useState = iota
	// stateMeaningless: this agent has nothing that the field or gate could change, and nothing is missing.
	stateMeaningless
	// stateNotHonoured: the field or gate has an effect in upstream's kubelet, but not in this agent.
	stateNotHonoured
	// stateRefused: the field or gate has an effect in upstream's kubelet, but not in this agent, and without that effect the node
	// would be less safe than the user believes. Setting it is an error.
	stateRefused
)

// String returns the state as the documentation names it.
func (s useState) String() string {
	switch s {
	case stateHonoured:
		return "yes"
	case stateMeaningless:
		return "nothing to do"
	case stateNotHonoured:
		return "no"
	case stateRefused:
		return "refused"
	}
	return fmt.Sprintf("useState(%d)", uint8(s))
}

// fieldUse describes the effect of a field of KubeletConfiguration in this agent.
type fieldUse struct {
	state useState
	// tests are the names of the tests that check the effect of an honoured field, as package.Test. If there are none,
	// TestHonouredFieldsReachTheAgent has to see that the field changes how the agent is built.
	tests []string
	// why is the reason, with the remedy, for a field that is not honoured or meaningless. Fields with the same reason share one notice.
	why string
	// inert are values, in addition to the default, that have no effect in upstream's kubelet either. They are written as %v prints them.
	inert []string
	// defaultActs is set if the default value has an effect in upstream's kubelet that this agent lacks.
	defaultActs bool
}

// honoured returns the table entry of a field that has its documented effect. tests names tests of the effect. It may be empty if
// TestHonouredFieldsReachTheAgent can see the effect.
func honoured(tests ...string) fieldUse { return fieldUse{tests: tests} }

// meaningless returns the table entry of a field that has no meaning in this agent. why is the reason.
func meaningless(why string) fieldUse { return fieldUse{state: stateMeaningless, why: why} }

// notHonoured returns the table entry of a field whose effect this agent lacks. A notice names the field if its value would have that
// effect.
func notHonoured(why string, inert ...string) fieldUse {
	return fieldUse{state: stateNotHonoured, why: why, inert: inert}
}

// refused returns the table entry of a field that this agent does not honour, although its effect would make the node safer. A value
// that has an effect in upstream's kubelet is an error.
func refused(why string, inert ...string) fieldUse {
	return fieldUse{state: stateRefused, why: why, inert: inert}
}

// byDefault marks the table entry u: the field has an effect in upstream's kubelet, which this agent lacks, even if it has its
// default value.
func (u fieldUse) byDefault() fieldUse {
	u.defaultActs = true
	return u
}

// These reasons are shared by several fields.
const (
	noCPUPolicy = "CPUs are shared by all containers: there is no static CPU policy"
	noNUMA      = "memory is not pinned to NUMA nodes"
	noTopology  = "topology hints are not used"
	unbuffered  = "log lines are not buffered"
	oneStream   = "all lines go to standard error"
	noTableBits = "Kubernetes no longer uses these marks"
)

// readLater is the name of the test that checks the fields which the agent reads each time it needs them.
const readLater = "agent.TestFieldsThatAreReadLater"

// fields has every leaf field of KubeletConfiguration. When a field starts to work, make it honoured here.
// docs/configuration.md is generated from it (make golden).
var fields = map[string]fieldUse{
	"kind": honoured("internal/edge/config.TestKindOfTheFile"), "apiVersion": honoured("internal/edge/config.TestKindOfTheFile"),

	// Sources.
	"staticPodPath": honoured(), "fileCheckFrequency": honoured(readLater), "httpCheckFrequency": honoured(readLater), "staticPodURL": honoured(), "staticPodURLHeader": honoured(readLater),
	"syncFrequency": meaningless("the agent checks a pod when something changes and when a timer is due, not periodically"),
	"runOnce":       meaningless("Kubernetes has withdrawn this mode: true is an error"),
	"configMapAndSecretChangeDetectionStrategy": honoured(),

	// Server.
	"enableServer": honoured(), "address": honoured(), "port": honoured(), "readOnlyPort": honoured(),
	"tlsCertFile": honoured(), "tlsPrivateKeyFile": honoured(), "tlsCipherSuites": honoured(), "tlsMinVersion": honoured(),
	"tlsCurvePreferences": honoured(),
	"rotateCertificates":  honoured(), "serverTLSBootstrap": honoured(),
	"authentication.x509.clientCAFile": honoured(), "authentication.webhook.enabled": honoured(),
	"authentication.webhook.cacheTTL": honoured(), "authentication.anonymous.enabled": honoured(),
	"authorization.mode": honoured(), "authorization.webhook.cacheAuthorizedTTL": honoured(),
	"authorization.webhook.cacheUnauthorizedTTL": honoured(),
	"enableDebuggingHandlers":                    honoured(),
	"enableContentionProfiling":                  honoured("internal/cli/launch.TestContentionProfiling"),
	"healthzPort":                                honoured(), "healthzBindAddress": honoured(),
	"streamingConnectionIdleTimeout": honoured("internal/edge/server.TestIdleStreamsAreCut"),
	"enableSystemLogHandler":         honoured(),
	"enableSystemLogQuery":           honoured(),
	"enableProfilingHandler":         honoured(),
	"enableDebugFlagsHandler":        honoured("agent.TestVerbosityCanBeSet"),
	"showHiddenMetricsForVersion":    meaningless("no metric is hidden"),
	"tracing.endpoint":               honoured("internal/edge/trace.TestSend"),
	"tracing.samplingRatePerMillion": honoured("internal/proof/agenttest.TestTraces"),

	// API server.
	"registryPullQPS": honoured(), "registryBurst": honoured(),
	"eventRecordQPS": honoured(), "eventBurst": honoured(),
	"contentType": honoured(), "kubeAPIQPS": honoured(), "kubeAPIBurst": honoured(),
	"registerNode": honoured(), "registerWithTaints": honoured(), "providerID": honoured(),
	"nodeStatusUpdateFrequency": honoured(), "nodeStatusReportFrequency": honoured(),
	"nodeLeaseDurationSeconds": honoured(), "nodeStatusMaxImages": honoured(),
	"maxPods": honoured(), "podsPerCore": honoured(), "podCIDR": honoured("internal/proof/agenttest.TestPodCIDRStandalone"),
	"featureGates":                 honoured(),
	"enableControllerAttachDetach": notHonoured("the agent never attaches volumes: leave that to the controller", "true"),

	// Images.
	"imagePullCredentialsVerificationPolicy": honoured("internal/proof/agenttest.TestPullCredentialsPolicies"),
	"preloadedImagesVerificationAllowlist":   honoured("internal/proof/agenttest.TestPullCredentialsPolicies"),
	"imageMinimumGCAge":                      honoured(),
	"imageMaximumGCAge":                      honoured(),
	"imageGCHighThresholdPercent":            honoured(),
	"imageGCLowThresholdPercent":             honoured(),
	"serializeImagePulls":                    honoured(), "maxParallelImagePulls": honoured(),

	// Resources.
	"kubeletCgroups": notHonoured("the agent stays in the cgroup that it is started in: set Slice= in the systemd unit"),
	"systemCgroups":  notHonoured("the agent does not move the machine's processes"),
	"cgroupRoot":     honoured(), "cgroupsPerQOS": honoured(), "cgroupDriver": honoured(),
	"singleProcessOOMKill":             honoured(readLater),
	"cpuManagerPolicy":                 notHonoured(noCPUPolicy, "none"),
	"cpuManagerPolicyOptions":          notHonoured(noCPUPolicy),
	"cpuManagerReconcilePeriod":        notHonoured(noCPUPolicy),
	"memoryManagerPolicy":              notHonoured(noNUMA, "None"),
	"topologyManagerPolicy":            notHonoured(noTopology, "none"),
	"topologyManagerScope":             notHonoured(noTopology),
	"topologyManagerPolicyOptions":     notHonoured(noTopology),
	"qosReserved":                      notHonoured("requests are not reserved per QoS class"),
	"podPidsLimit":                     honoured(),
	"cpuCFSQuota":                      honoured(),
	"cpuCFSQuotaPeriod":                honoured(),
	"systemReserved":                   honoured(),
	"kubeReserved":                     honoured(),
	"reservedSystemCPUs":               honoured(),
	"reservedMemory":                   notHonoured(noNUMA),
	"systemReservedCgroup":             honoured(),
	"kubeReservedCgroup":               honoured(),
	"enforceNodeAllocatable":           honoured(),
	"memorySwap.swapBehavior":          honoured(readLater),
	"memoryThrottlingFactor":           honoured(readLater),
	"memoryReservationPolicy":          honoured(),
	"localStorageCapacityIsolation":    honoured(),
	"evictionHard":                     honoured(),
	"evictionSoft":                     honoured(),
	"evictionSoftGracePeriod":          honoured(),
	"evictionPressureTransitionPeriod": honoured(),
	"evictionMaxPodGracePeriod":        honoured(),
	"evictionMinimumReclaim":           honoured(),
	"mergeDefaultEvictionSettings":     honoured(),
	"kernelMemcgNotification":          meaningless("the agent measures memory more often the closer it is to the threshold, with and without this setting"),

	// Pods.
	"podLogsDir": honoured(), "clusterDomain": honoured(), "clusterDNS": honoured(readLater), "resolvConf": honoured(),
	"allowedUnsafeSysctls": honoured(readLater), "seccompDefault": honoured(readLater),
	"containerLogMaxSize": honoured(readLater), "containerLogMaxFiles": honoured(readLater), "containerLogMaxWorkers": honoured(readLater),
	"containerLogMonitorInterval":                honoured(readLater),
	"crashLoopBackOff.maxContainerRestartPeriod": honoured(),
	"userNamespaces.idsPerPod":                   honoured(),
	"volumeStatsAggPeriod":                       meaningless("volumes are measured when somebody asks for the statistics"),
	"volumePluginDir":                            notHonoured("FlexVolume is not supported: use CSI"),

	// Host.
	"containerRuntimeEndpoint": honoured(), "imageServiceEndpoint": honoured(), "runtimeRequestTimeout": honoured(),
	"failSwapOn": honoured("internal/edge/config.TestCheckHost"), "failCgroupV1": honoured("internal/edge/config.TestCheckHost"), "oomScoreAdj": honoured("agent.TestLimitsOfTheProcess"), "maxOpenFiles": honoured("agent.TestLimitsOfTheProcess"),
	"hairpinMode":                      meaningless("the CNI plugin decides about hairpin traffic, as with Kubernetes' kubelet"),
	"protectKernelDefaults":            honoured("internal/edge/config.TestCheckHostKernel", "agent.TestKernelSettings"),
	"makeIPTablesUtilChains":           honoured("agent.TestMakeIPTablesUtilChains"),
	"iptablesMasqueradeBit":            meaningless(noTableBits),
	"iptablesDropBit":                  meaningless(noTableBits),
	"shutdownGracePeriod":              honoured("agent.TestShutdownPolicy"),
	"shutdownGracePeriodCriticalPods":  honoured("agent.TestShutdownPolicy"),
	"shutdownGracePeriodByPodPriority": honoured("agent.TestShutdownPolicy"),

	// Logging.
	"logging.format": honoured("internal/edge/config.TestLogger"), "logging.verbosity": honoured("internal/edge/config.TestLogger"),
	"logging.vmodule":                     notHonoured("levels are per agent, not per file: use -v (logging.verbosity)"),
	"logging.flushFrequency":              meaningless(unbuffered),
	"logging.options.text.splitStream":    notHonoured(oneStream, "false"),
	"logging.options.text.infoBufferSize": meaningless(unbuffered),
	"logging.options.json.splitStream":    notHonoured(oneStream, "false"),
	"logging.options.json.infoBufferSize": meaningless(unbuffered),
}

// Honoured returns the fields of KubeletConfiguration that work. The value for a field is the list of tests of its effect.
func Honoured() map[string][]string {
	works := map[string][]string{}
	for path, use := range fields {
		if use.state == stateHonoured {
			works[path] = use.tests
		}
	}
	return works
}
