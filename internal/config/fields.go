package config

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// fieldUse says whether a field of KubeletConfiguration has its effect here.
type fieldUse struct {
	// ignored is the reason why it has none, with the way out; empty: it is honoured.
	ignored string
	// harmless are values (as %v prints them) that change nothing, beside the default.
	harmless []string
}

var honoured = fieldUse{}

func ignored(why string, harmless ...string) fieldUse {
	return fieldUse{ignored: why, harmless: harmless}
}

// fields is every leaf field of KubeletConfiguration. Whoever makes one work moves it to honoured.
var fields = map[string]fieldUse{
	"kind": honoured, "apiVersion": honoured,

	// Sources.
	"staticPodPath": honoured, "fileCheckFrequency": honoured, "httpCheckFrequency": honoured, "staticPodURL": honoured, "staticPodURLHeader": honoured,
	"syncFrequency": ignored("a pod is looked at when something changes and when a timer is due, not periodically"),
	"runOnce":       ignored("Kubernetes has withdrawn this mode", "false"),
	"configMapAndSecretChangeDetectionStrategy": honoured,

	// Server.
	"enableServer": honoured, "address": honoured, "port": honoured, "readOnlyPort": honoured,
	"tlsCertFile": honoured, "tlsPrivateKeyFile": honoured, "tlsCipherSuites": honoured, "tlsMinVersion": honoured,
	"tlsCurvePreferences": honoured,
	"rotateCertificates":  honoured, "serverTLSBootstrap": honoured,
	"authentication.x509.clientCAFile": honoured, "authentication.webhook.enabled": honoured,
	"authentication.webhook.cacheTTL": honoured, "authentication.anonymous.enabled": honoured,
	"authorization.mode": honoured, "authorization.webhook.cacheAuthorizedTTL": honoured,
	"authorization.webhook.cacheUnauthorizedTTL": honoured,
	"enableDebuggingHandlers":                    honoured,
	"enableContentionProfiling":                  ignored("contention is not profiled yet", "false"),
	"healthzPort":                                honoured, "healthzBindAddress": honoured,
	"streamingConnectionIdleTimeout": ignored("a stream is not cut for being idle: it ends with its client, its container or the agent"),
	"enableSystemLogHandler":         honoured,
	"enableSystemLogQuery":           ignored("node log query is not served yet", "false"),
	"enableProfilingHandler":         honoured,
	"enableDebugFlagsHandler":        honoured,
	"showHiddenMetricsForVersion":    ignored("no metric is hidden here", ""),
	"tracing.endpoint":               ignored("traces are not exported yet"),
	"tracing.samplingRatePerMillion": ignored("traces are not exported yet"),

	// API server.
	"registryPullQPS": honoured, "registryBurst": honoured,
	"eventRecordQPS": honoured, "eventBurst": honoured,
	"contentType": honoured, "kubeAPIQPS": honoured, "kubeAPIBurst": honoured,
	"registerNode": honoured, "registerWithTaints": honoured, "providerID": honoured,
	"nodeStatusUpdateFrequency": honoured, "nodeStatusReportFrequency": honoured,
	"nodeLeaseDurationSeconds": honoured, "nodeStatusMaxImages": honoured,
	"maxPods": honoured, "podsPerCore": honoured, "podCIDR": honoured,
	"featureGates":                 honoured,
	"enableControllerAttachDetach": ignored("volumes that need attaching are not honoured yet", "true"),

	// Images.
	"imagePullCredentialsVerificationPolicy": ignored("pull credentials of images that are present are not verified again yet", "NeverVerify"),
	"preloadedImagesVerificationAllowlist":   ignored("pull credentials of images that are present are not verified again yet"),
	"imageMinimumGCAge":                      ignored("unused images are not collected yet"),
	"imageMaximumGCAge":                      ignored("unused images are not collected yet", "0s"),
	"imageGCHighThresholdPercent":            ignored("unused images are not collected yet", "100"),
	"imageGCLowThresholdPercent":             ignored("unused images are not collected yet"),
	"serializeImagePulls":                    honoured, "maxParallelImagePulls": honoured,

	// Resources.
	"kubeletCgroups": ignored("the agent stays in the cgroup it is started in: set Slice= in the systemd unit"),
	"systemCgroups":  ignored("processes of the machine are not moved"),
	"cgroupRoot":     honoured, "cgroupsPerQOS": honoured, "cgroupDriver": honoured,
	"singleProcessOOMKill":             honoured,
	"cpuManagerPolicy":                 ignored("CPUs are shared by all containers: no static policy yet", "none"),
	"cpuManagerPolicyOptions":          ignored("there is no static CPU policy yet"),
	"cpuManagerReconcilePeriod":        ignored("there is no static CPU policy yet"),
	"memoryManagerPolicy":              ignored("memory is not pinned to NUMA nodes yet", "None"),
	"topologyManagerPolicy":            ignored("topology hints are not honoured yet", "none"),
	"topologyManagerScope":             ignored("topology hints are not honoured yet"),
	"topologyManagerPolicyOptions":     ignored("topology hints are not honoured yet"),
	"qosReserved":                      ignored("requests are not reserved per QoS class yet"),
	"podPidsLimit":                     honoured,
	"cpuCFSQuota":                      honoured,
	"cpuCFSQuotaPeriod":                honoured,
	"systemReserved":                   honoured,
	"kubeReserved":                     honoured,
	"reservedSystemCPUs":               honoured,
	"reservedMemory":                   ignored("memory is not pinned to NUMA nodes yet"),
	"systemReservedCgroup":             honoured,
	"kubeReservedCgroup":               honoured,
	"enforceNodeAllocatable":           honoured,
	"memorySwap.swapBehavior":          honoured,
	"memoryThrottlingFactor":           ignored("the MemoryQoS gate is alpha and not honoured"),
	"memoryReservationPolicy":          ignored("the MemoryQoS gate is alpha and not honoured", "None"),
	"localStorageCapacityIsolation":    honoured,
	"evictionHard":                     honoured,
	"evictionSoft":                     honoured,
	"evictionSoftGracePeriod":          honoured,
	"evictionPressureTransitionPeriod": honoured,
	"evictionMaxPodGracePeriod":        ignored("pressure is reported; pods are not evicted for it yet"),
	"evictionMinimumReclaim":           ignored("pressure is reported; pods are not evicted for it yet"),
	"mergeDefaultEvictionSettings":     honoured,
	"kernelMemcgNotification":          ignored("memory is measured when the node's status is computed", "false"),

	// Pods.
	"podLogsDir": honoured, "clusterDomain": honoured, "clusterDNS": honoured, "resolvConf": honoured,
	"allowedUnsafeSysctls": honoured, "seccompDefault": honoured,
	"containerLogMaxSize": honoured, "containerLogMaxFiles": honoured, "containerLogMaxWorkers": honoured,
	"containerLogMonitorInterval":                honoured,
	"crashLoopBackOff.maxContainerRestartPeriod": honoured,
	"userNamespaces.idsPerPod":                   honoured,
	"volumeStatsAggPeriod":                       ignored("volumes are measured when somebody asks"),
	"volumePluginDir":                            ignored("FlexVolume is not supported: use CSI"),

	// Host.
	"containerRuntimeEndpoint": honoured, "imageServiceEndpoint": honoured, "runtimeRequestTimeout": honoured,
	"failSwapOn": honoured, "failCgroupV1": honoured, "oomScoreAdj": honoured, "maxOpenFiles": honoured,
	"hairpinMode":                      ignored("the CNI plugin decides about hairpin traffic: set hairpinMode there"),
	"protectKernelDefaults":            ignored("kernel settings are neither checked nor changed", "false"),
	"makeIPTablesUtilChains":           ignored("no iptables chains are made: nothing of Kubernetes needs them", "false"),
	"iptablesMasqueradeBit":            ignored("no iptables rules are made"),
	"iptablesDropBit":                  ignored("no iptables rules are made"),
	"shutdownGracePeriod":              ignored("shutdown of the machine is not delayed yet", "0s"),
	"shutdownGracePeriodCriticalPods":  ignored("shutdown of the machine is not delayed yet", "0s"),
	"shutdownGracePeriodByPodPriority": ignored("shutdown of the machine is not delayed yet"),

	// Logging.
	"logging.format": honoured, "logging.verbosity": honoured,
	"logging.vmodule":                     ignored("levels are per agent, not per file: use -v (logging.verbosity)"),
	"logging.flushFrequency":              ignored("no log line is held back"),
	"logging.options.text.splitStream":    ignored("all lines go to standard error", "false"),
	"logging.options.text.infoBufferSize": ignored("no log line is held back", "0"),
	"logging.options.json.splitStream":    ignored("all lines go to standard error", "false"),
	"logging.options.json.infoBufferSize": ignored("no log line is held back", "0"),
}

// leaves walks the fields of a configuration type down to those that hold a value, as paths of the file.
func leaves(t reflect.Type) iter.Seq2[string, reflect.Type] {
	return func(yield func(string, reflect.Type) bool) { walkType(t, "", yield) }
}

func walkType(t reflect.Type, prefix string, yield func(string, reflect.Type) bool) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		path := prefix + name
		if name == "" && strings.Contains(options, "inline") {
			path = strings.TrimSuffix(prefix, ".")
		}
		if isBranch(ft) {
			below := path + "."
			if path == "" {
				below = ""
			}
			if !walkType(ft, below, yield) {
				return false
			}
			continue
		}
		if !yield(path, ft) {
			return false
		}
	}
	return true
}

// isBranch reports whether a type is a map of further fields, rather than a value with a form of its own.
func isBranch(t reflect.Type) bool {
	marshals := reflect.TypeFor[json.Marshaler]()
	return t.Kind() == reflect.Struct && !t.Implements(marshals) && !reflect.PointerTo(t).Implements(marshals)
}

// lookup is the value at a path; ok is false where a pointer on the way is nil.
func lookup(v reflect.Value, path string) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return reflect.Value{}, false
		}
		v = v.Elem()
	}
	if path == "" {
		return v, true
	}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" && strings.Contains(options, "inline") {
			if found, ok := lookup(v.Field(i), path); ok {
				return found, true
			}
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		if name == path {
			return lookup(v.Field(i), "")
		}
		if rest, ok := strings.CutPrefix(path, name+"."); ok {
			return lookup(v.Field(i), rest)
		}
	}
	return reflect.Value{}, false
}

// fieldNotices names the fields that a user set to something that has no effect here. set maps paths to the flag that
// set them, or to nothing for the file.
func fieldNotices(kc *kubelet.KubeletConfiguration, set map[string]string) []Notice {
	defaults := baseConfig().Kubelet
	var notices []Notice
	for _, path := range slices.Sorted(maps.Keys(set)) {
		use := fields[path]
		value, ok := lookup(reflect.ValueOf(kc), path)
		if use.ignored == "" || !ok {
			continue
		}
		text := printed(value)
		if usual, ok := lookup(reflect.ValueOf(&defaults), path); ok && printed(usual) == text {
			continue
		}
		if slices.Contains(use.harmless, text) || (value.Kind() == reflect.Map || value.Kind() == reflect.Slice) && value.Len() == 0 {
			continue
		}
		subject := path
		if set[path] != "" {
			subject += " (--" + set[path] + ")"
		}
		notices = append(notices, Notice{NoticeNotHonoured, subject, fmt.Sprintf("%s has no effect: %s", text, use.ignored)})
	}
	return notices
}

// printed is a value as the file writes it, without quotation marks.
func printed(v reflect.Value) string {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return strings.Trim(string(data), `"`)
}
