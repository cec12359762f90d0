package config

import (
	"reflect"
	"slices"
	"strings"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// These texts say when a change of a field takes effect on a running agent.
const (
	atOnce        = "at once"
	nextRound     = "from the next collection of images"
	nextPull      = "for pulls that begin afterwards; running pulls continue"
	newPods       = "for pods that start or are resized afterwards"
	newContainers = "for containers that start afterwards"
)

// These texts say why a change of a field waits for a restart of the agent.
const (
	listeners   = "ports, certificates and endpoints are opened at the start"
	accessRules = "the parts that decide who may use the API are built at the start"
	connections = "the clients of the API server and the runtime are made at the start"
	periods     = "the loops of the node's status and lease read it when they start"
	sourcesSet  = "a pod is unwanted only if no source has it, so the set of sources is fixed at the start"
	nodeCgroups = "the cgroups above the pods, and the reserved resources, are set up at the start"
	podFiles    = "running pods have files or user IDs that depend on it"
	atRegister  = "it is part of the node's registration"
	process     = "it is a setting of the process or the kernel, which the agent makes at its start"
	shutdowns   = "the agent asks logind at its start for the length of the shutdown delay"
	gatesBuilt  = "the parts of the agent are built at the start, according to the gates"
)

// change says when a change of a field takes effect: while the agent runs if live is set, or else at the agent's next start.
type change struct {
	live bool
	text string // when the change takes effect, or why it waits for a restart
}

// String returns the change in the words of the documentation.
func (c change) String() string {
	switch {
	case c.text == "":
		return ""
	case c.live:
		return "live: " + c.text
	}
	return "restart: " + c.text
}

func live(when string) change   { return change{true, when} }
func restart(why string) change { return change{false, why} }

// changes has every field of KubeletConfiguration that is honoured. It decides what Compare applies, and docs/configuration.md
// shows it. A field that becomes live here must reach the running agent; agent.TestLiveFields checks that.
var changes = map[string]change{
	"kind": restart(process), "apiVersion": restart(process),

	"staticPodPath":      live("as soon as the new path exists; until then the pods of the old path stay. A change to or from an empty path needs a restart"),
	"fileCheckFrequency": live(atOnce), "httpCheckFrequency": restart(sourcesSet), "staticPodURL": restart(sourcesSet), "staticPodURLHeader": restart(sourcesSet),
	"configMapAndSecretChangeDetectionStrategy": restart(connections),

	"enableServer": restart(listeners), "address": restart(listeners), "port": restart(listeners), "readOnlyPort": restart(listeners),
	"tlsCertFile": restart(listeners), "tlsPrivateKeyFile": restart(listeners), "tlsCipherSuites": restart(listeners), "tlsMinVersion": restart(listeners),
	"tlsCurvePreferences": restart(listeners), "rotateCertificates": restart(connections), "serverTLSBootstrap": restart(listeners),
	"authentication.x509.clientCAFile": restart(accessRules), "authentication.webhook.enabled": restart(accessRules),
	"authentication.webhook.cacheTTL": restart(accessRules), "authentication.anonymous.enabled": restart(accessRules),
	"authorization.mode": restart(accessRules), "authorization.webhook.cacheAuthorizedTTL": restart(accessRules),
	"authorization.webhook.cacheUnauthorizedTTL": restart(accessRules),
	"enableDebuggingHandlers":                    restart(listeners), "healthzPort": restart(listeners), "healthzBindAddress": restart(listeners),
	"streamingConnectionIdleTimeout": restart(listeners), "enableSystemLogHandler": restart(listeners), "enableSystemLogQuery": restart(listeners), "enableContentionProfiling": restart(process), "enableProfilingHandler": restart(listeners),
	"enableDebugFlagsHandler": restart(listeners), "tracing.endpoint": restart(connections), "tracing.samplingRatePerMillion": restart(connections),

	"registryPullQPS": live(atOnce), "registryBurst": live(atOnce), "eventRecordQPS": live(atOnce), "eventBurst": live(atOnce),
	"contentType": restart(connections), "kubeAPIQPS": restart(connections), "kubeAPIBurst": restart(connections),
	"registerNode": restart(atRegister), "registerWithTaints": restart(atRegister), "providerID": restart(atRegister),
	"nodeStatusUpdateFrequency": restart(periods), "nodeStatusReportFrequency": restart(periods), "nodeLeaseDurationSeconds": restart(periods),
	"nodeStatusMaxImages": live("with the node's next status"), "maxPods": live("with the node's next status"), "podsPerCore": live("with the node's next status"),
	"podCIDR": restart(connections), "featureGates": restart(gatesBuilt),

	"imagePullCredentialsVerificationPolicy": live(newContainers), "preloadedImagesVerificationAllowlist": live(newContainers),
	"imageMinimumGCAge": live(nextRound), "imageMaximumGCAge": live(nextRound),
	"imageGCHighThresholdPercent": live(nextRound), "imageGCLowThresholdPercent": live(nextRound),
	"serializeImagePulls": live(nextPull), "maxParallelImagePulls": live(nextPull),

	"cgroupRoot": restart(nodeCgroups), "cgroupsPerQOS": restart(nodeCgroups), "cgroupDriver": restart(nodeCgroups),
	"singleProcessOOMKill": live(newContainers), "podPidsLimit": live(newPods), "cpuCFSQuota": live(newPods), "cpuCFSQuotaPeriod": live(newPods),
	"systemReserved": restart(nodeCgroups), "kubeReserved": restart(nodeCgroups), "reservedSystemCPUs": restart(nodeCgroups),
	"systemReservedCgroup": restart(nodeCgroups), "kubeReservedCgroup": restart(nodeCgroups), "enforceNodeAllocatable": restart(nodeCgroups),
	"memoryThrottlingFactor": live(newContainers), "memoryReservationPolicy": restart(nodeCgroups),
	"memorySwap.swapBehavior": live(newContainers), "localStorageCapacityIsolation": restart(nodeCgroups),
	"evictionHard": live(atOnce), "evictionSoft": live(atOnce), "evictionSoftGracePeriod": live(atOnce), "evictionPressureTransitionPeriod": live(atOnce),
	"evictionMaxPodGracePeriod": live(atOnce), "evictionMinimumReclaim": live(atOnce), "mergeDefaultEvictionSettings": live(atOnce),

	"podLogsDir": restart(podFiles), "clusterDomain": live(newPods), "clusterDNS": live(newPods), "resolvConf": live(newPods),
	"allowedUnsafeSysctls": live("for pods that are admitted afterwards"), "seccompDefault": live(newContainers),
	"containerLogMaxSize": live(atOnce), "containerLogMaxFiles": live(atOnce), "containerLogMaxWorkers": live(atOnce), "containerLogMonitorInterval": live(atOnce),
	"crashLoopBackOff.maxContainerRestartPeriod": live("for containers that end afterwards; a back-off that has begun keeps its length"), "userNamespaces.idsPerPod": restart(podFiles),

	"containerRuntimeEndpoint": restart(connections), "imageServiceEndpoint": restart(connections), "runtimeRequestTimeout": restart(connections),
	"failSwapOn": restart(process), "failCgroupV1": restart(process), "oomScoreAdj": restart(process), "maxOpenFiles": restart(process),
	"protectKernelDefaults": restart(process), "makeIPTablesUtilChains": restart(process),
	"shutdownGracePeriod": restart(shutdowns), "shutdownGracePeriodCriticalPods": restart(shutdowns), "shutdownGracePeriodByPodPriority": restart(shutdowns),
	"logging.format": restart(process), "logging.verbosity": live(atOnce),
}

// LiveFields returns the fields that can change while the agent runs.
func LiveFields() (paths []string) {
	for path, c := range changes {
		if c.live {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// Difference says which fields a new configuration changes.
type Difference struct {
	// Live are the fields that differ from the configuration in effect and can change without a restart.
	Live []string
	// Waiting are the fields that differ from the configuration that the agent was started with, and wait for a restart, each
	// with the reason.
	Waiting []Waiting
}

// Waiting is a field that waits for a restart.
type Waiting struct{ Field, Why string }

// Compare compares a new configuration with the one that the agent was started with, and returns the configuration to use: inEffect with
// the new values of the fields that can change live. It changes none of its arguments. Fields that are not honoured are ignored.
func Compare(started, inEffect, next *kubelet.KubeletConfiguration) (kubelet.KubeletConfiguration, Difference) {
	out, d := *inEffect.DeepCopy(), Difference{}
	next = next.DeepCopy()
	for path := range leaves(reflect.TypeFor[kubelet.KubeletConfiguration]()) {
		c, honoured := changes[path]
		switch {
		case !honoured:
		case c.live && !(path == "staticPodPath" && (started.StaticPodPath == "") != (next.StaticPodPath == "")):
			if !same(inEffect, next, path) {
				d.Live = append(d.Live, path)
				assign(reflect.ValueOf(&out), reflect.ValueOf(next), path)
			}
		case !same(started, next, path):
			why := c.text
			if c.live {
				why = sourcesSet
			}
			d.Waiting = append(d.Waiting, Waiting{path, why})
		}
	}
	slices.Sort(d.Live)
	inorder.Sort(d.Waiting, func(a, b Waiting) int {
		if a.Field < b.Field {
			return -1
		}
		return 1
	})
	return out, d
}

// same reports whether a field has the same value in two configurations. A pointer to the zero value differs from nil.
func same(a, b *kubelet.KubeletConfiguration, path string) bool {
	x, okX := lookup(reflect.ValueOf(a), path)
	y, okY := lookup(reflect.ValueOf(b), path)
	return okX == okY && (!okX || printed(x) == printed(y))
}

// assign copies a field of one configuration to another, and creates the pointers on its path.
func assign(to, from reflect.Value, path string) {
	to, from = to.Elem(), from.Elem()
	for i := range to.NumField() {
		name, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
		first, rest, _ := strings.Cut(path, ".")
		if name != first {
			continue
		}
		dst, src := to.Field(i), from.Field(i)
		switch {
		case rest == "":
			dst.Set(src)
		case dst.Kind() == reflect.Pointer && (src.IsNil() || dst.IsNil()):
			dst.Set(src)
		case dst.Kind() == reflect.Pointer:
			assign(dst, src, rest)
		default:
			assign(dst.Addr(), src.Addr(), rest)
		}
		return
	}
}
