package config

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// setDefaults sets the empty fields of a KubeletConfiguration to their documented defaults
// (https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/). It is idempotent.
func setDefaults(kc *kubelet.KubeletConfiguration, gates Gates) {
	defaultSources(kc)
	defaultServer(kc)
	defaultNode(kc)
	defaultResources(kc)
	defaultImages(kc)
	defaultHost(kc)
	defaultPods(kc, gates)
	logsapi.SetRecommendedLoggingConfiguration(&kc.Logging)
}

func orValue[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func orPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func orDuration(field *metav1.Duration, d time.Duration) {
	if field.Duration == 0 {
		field.Duration = d
	}
}

func defaultSources(kc *kubelet.KubeletConfiguration) {
	orDuration(&kc.SyncFrequency, time.Minute)
	orDuration(&kc.FileCheckFrequency, 20*time.Second)
	orDuration(&kc.HTTPCheckFrequency, 20*time.Second)
	orValue(&kc.ConfigMapAndSecretChangeDetectionStrategy, kubelet.WatchChangeDetectionStrategy)
	orValue(&kc.ContentType, "application/vnd.kubernetes.protobuf")
	orPointer(&kc.KubeAPIQPS, 50)
	orValue(&kc.KubeAPIBurst, 100)
	orPointer(&kc.EventRecordQPS, 50)
	orValue(&kc.EventBurst, 100)
}

func defaultServer(kc *kubelet.KubeletConfiguration) {
	orPointer(&kc.EnableServer, true)
	orValue(&kc.Address, "0.0.0.0")
	orValue(&kc.Port, 10250)
	orPointer(&kc.Authentication.Anonymous.Enabled, false)
	orPointer(&kc.Authentication.Webhook.Enabled, true)
	orDuration(&kc.Authentication.Webhook.CacheTTL, 2*time.Minute)
	orValue(&kc.Authorization.Mode, kubelet.KubeletAuthorizationModeWebhook)
	orDuration(&kc.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDuration(&kc.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	orPointer(&kc.EnableDebuggingHandlers, true)
	orPointer(&kc.HealthzPort, 10248)
	orValue(&kc.HealthzBindAddress, "127.0.0.1")
	orDuration(&kc.StreamingConnectionIdleTimeout, 4*time.Hour)
	orPointer(&kc.EnableSystemLogHandler, true)
	orPointer(&kc.EnableProfilingHandler, true)
	orPointer(&kc.EnableDebugFlagsHandler, true)
}

func defaultNode(kc *kubelet.KubeletConfiguration) {
	if kc.NodeStatusReportFrequency.Duration == 0 {
		// If nodeStatusUpdateFrequency is set, it is also the default of nodeStatusReportFrequency, as Kubernetes documents for
		// compatibility.
		kc.NodeStatusReportFrequency.Duration = 5 * time.Minute
		if kc.NodeStatusUpdateFrequency.Duration != 0 {
			kc.NodeStatusReportFrequency = kc.NodeStatusUpdateFrequency
		}
	}
	orDuration(&kc.NodeStatusUpdateFrequency, 10*time.Second)
	orValue(&kc.NodeLeaseDurationSeconds, 40)
	orPointer(&kc.NodeStatusMaxImages, 50)
	orValue(&kc.MaxPods, 110)
	orPointer(&kc.RegisterNode, true)
	orPointer(&kc.LocalStorageCapacityIsolation, true)
	orPointer(&kc.EnableControllerAttachDetach, true)
}

func defaultResources(kc *kubelet.KubeletConfiguration) {
	orPointer(&kc.CgroupsPerQOS, true)
	orValue(&kc.CgroupDriver, "cgroupfs")
	orValue(&kc.CPUManagerPolicy, "none")
	orDuration(&kc.CPUManagerReconcilePeriod, 10*time.Second)
	orValue(&kc.MemoryManagerPolicy, kubelet.NoneMemoryManagerPolicy)
	orValue(&kc.TopologyManagerPolicy, kubelet.NoneTopologyManagerPolicy)
	orValue(&kc.TopologyManagerScope, kubelet.ContainerTopologyManagerScope)
	if kc.PodPidsLimit == nil || *kc.PodPidsLimit < 0 {
		unlimited := int64(-1)
		kc.PodPidsLimit = &unlimited
	}
	orPointer(&kc.CPUCFSQuota, true)
	orPointer(&kc.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	if kc.EnforceNodeAllocatable == nil {
		kc.EnforceNodeAllocatable = []string{"pods"}
	}
	orPointer(&kc.MemoryThrottlingFactor, 0.9)
	orValue(&kc.MemoryReservationPolicy, kubelet.NoneMemoryReservationPolicy)
	orDuration(&kc.EvictionPressureTransitionPeriod, 5*time.Minute)
	orPointer(&kc.MergeDefaultEvictionSettings, false)
}

func defaultImages(kc *kubelet.KubeletConfiguration) {
	orPointer(&kc.RegistryPullQPS, 5)
	orValue(&kc.RegistryBurst, 10)
	orDuration(&kc.ImageMinimumGCAge, 2*time.Minute)
	orPointer(&kc.ImageGCHighThresholdPercent, 85)
	orPointer(&kc.ImageGCLowThresholdPercent, 80)
	// Pulls are serial unless a parallel limit is set, so that nobody has to set both fields.
	orPointer(&kc.SerializeImagePulls, kc.MaxParallelImagePulls == nil || *kc.MaxParallelImagePulls < 2)
}

func defaultHost(kc *kubelet.KubeletConfiguration) {
	orPointer(&kc.OOMScoreAdj, -999)
	orValue(&kc.MaxOpenFiles, 1000000)
	orPointer(&kc.MakeIPTablesUtilChains, true)
	orPointer(&kc.IPTablesMasqueradeBit, 14)
	orPointer(&kc.IPTablesDropBit, 15)
	orPointer(&kc.FailSwapOn, true)
	orPointer(&kc.FailCgroupV1, true)
	orValue(&kc.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	orDuration(&kc.VolumeStatsAggPeriod, time.Minute)
	orDuration(&kc.RuntimeRequestTimeout, 2*time.Minute)
	orValue(&kc.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	orValue(&kc.HairpinMode, kubelet.PromiscuousBridge)
}

func defaultPods(kc *kubelet.KubeletConfiguration, gates Gates) {
	orPointer(&kc.ResolverConfig, "/etc/resolv.conf")
	orPointer(&kc.SeccompDefault, false)
	orValue(&kc.PodLogsDir, defaultPodLogsDir)
	orValue(&kc.ContainerLogMaxSize, "10Mi")
	orPointer(&kc.ContainerLogMaxFiles, 5)
	orPointer(&kc.ContainerLogMaxWorkers, 1)
	orPointer(&kc.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	if gates.Enabled("KubeletCrashLoopBackOffMax") {
		orPointer(&kc.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
	}
	if gates.Enabled("KubeletEnsureSecretPulledImages") {
		orValue(&kc.ImagePullCredentialsVerificationPolicy, kubelet.NeverVerifyPreloadedImages)
	}
}

// defaultEviction sets the documented hard thresholds of Linux if none is set. With mergeDefaultEvictionSettings it adds them
// to those that are set.
func defaultEviction(kc *kubelet.KubeletConfiguration) {
	given := kc.EvictionHard
	if given != nil && !*kc.MergeDefaultEvictionSettings {
		return
	}
	kc.EvictionHard = map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		"imagefs.available": "15%", "imagefs.inodesFree": "5%",
	}
	maps.Copy(kc.EvictionHard, given)
}
