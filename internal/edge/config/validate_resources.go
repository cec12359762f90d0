package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/cpuset"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// checkSysctls rejects invalid patterns, because admission would silently ignore them.
func (c *checker) checkSysctls() {
	if err := admit.CheckSysctlPatterns(c.kc.AllowedUnsafeSysctls); err != nil {
		c.bad("allowedUnsafeSysctls", fmt.Sprintf("%q", c.kc.AllowedUnsafeSysctls), "%v", err)
	}
}

func (c *checker) checkImages() {
	kc := c.kc
	high, low := *kc.ImageGCHighThresholdPercent, *kc.ImageGCLowThresholdPercent
	c.between("imageGCHighThresholdPercent", int64(high), 0, 100)
	c.between("imageGCLowThresholdPercent", int64(low), 0, 100)
	if low >= high {
		c.bad("imageGCLowThresholdPercent", low, "must be less than imageGCHighThresholdPercent (%d)", high)
	}
	oldest, youngest := kc.ImageMaximumGCAge.Duration, kc.ImageMinimumGCAge.Duration
	c.notNegative("imageMinimumGCAge", int64(youngest))
	c.notNegative("imageMaximumGCAge", int64(oldest))
	if oldest > 0 && oldest <= youngest {
		c.bad("imageMaximumGCAge", oldest, "must be greater than imageMinimumGCAge (%s)", youngest)
	}
	if parallel := kc.MaxParallelImagePulls; parallel != nil {
		if *parallel < 1 {
			c.bad("maxParallelImagePulls", *parallel, "use 1 or more")
		} else if *parallel > 1 && *kc.SerializeImagePulls {
			c.bad("maxParallelImagePulls", *parallel, "also set serializeImagePulls: false")
		}
	}
	c.checkPullCredentials()
}

func (c *checker) checkPullCredentials() {
	kc := c.kc
	policy, list := string(kc.ImagePullCredentialsVerificationPolicy), kc.PreloadedImagesVerificationAllowlist
	const field, listField = "imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist"
	if !c.gates.Enabled("KubeletEnsureSecretPulledImages") {
		if policy != "" {
			c.bad(field, policy, "needs the feature gate KubeletEnsureSecretPulledImages")
		}
		if len(list) > 0 {
			c.bad(listField, list, "needs the feature gate KubeletEnsureSecretPulledImages")
		}
		return
	}
	c.oneOf(field, policy, "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify")
	if len(list) > 0 && policy != "NeverVerifyAllowlistedImages" {
		c.bad(listField, list, "needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages")
	} else if _, err := pullaccess.ParseAllowlist(list); err != nil {
		c.bad(listField, list, "%v", err)
	}
}

func (c *checker) checkLogs() {
	kc := c.kc
	if q, err := resource.ParseQuantity(kc.ContainerLogMaxSize); err != nil || q.Sign() == 0 {
		c.bad("containerLogMaxSize", fmt.Sprintf("%q", kc.ContainerLogMaxSize), "write a size, as in 10Mi")
	}
	if *kc.ContainerLogMaxFiles <= 1 {
		c.bad("containerLogMaxFiles", *kc.ContainerLogMaxFiles, "use 2 or more")
	}
	if *kc.ContainerLogMaxWorkers < 1 {
		c.bad("containerLogMaxWorkers", *kc.ContainerLogMaxWorkers, "use 1 or more")
	}
	if d := kc.ContainerLogMonitorInterval.Duration; d < 3*time.Second {
		c.bad("containerLogMonitorInterval", d, "use 3s or more")
	}
	if dir := kc.PodLogsDir; !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		c.bad("podLogsDir", fmt.Sprintf("%q", dir), "write an absolute path without . or .. or a slash at its end")
	} else if strings.ContainsFunc(dir, func(r rune) bool { return r > unicode.MaxASCII }) {
		c.bad("podLogsDir", fmt.Sprintf("%q", dir), "use ASCII characters only, because the path appears in metrics")
	}
	l := &kc.Logging
	c.oneOf("logging.format", l.Format, "text", "json")
	c.positive("logging.flushFrequency", l.FlushFrequency.Duration.Duration)
	c.between("logging.verbosity", int64(l.Verbosity), 0, math.MaxInt32)
	if len(l.VModule) > 0 && l.Format != logsapi.DefaultLogFormat {
		c.bad("logging.vmodule", l.Format, "only works with logging.format: text")
	}
}

// reservable are the resources that systemReserved and kubeReserved may reserve.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

func (c *checker) checkNodeResources() {
	kc := c.kc
	for path, list := range map[string]map[string]string{"systemReserved": kc.SystemReserved, "kubeReserved": kc.KubeReserved} {
		for name, amount := range list {
			if !slices.Contains(reservable, name) {
				c.bad(path, name, "cannot be reserved: use one of %s", strings.Join(reservable, ", "))
			}
			if q, err := resource.ParseQuantity(amount); err != nil || q.Sign() < 0 {
				c.bad(path, name+"="+amount, "write a quantity of zero or more, as in cpu=200m or memory=500Mi")
			}
		}
	}
	if list := kc.ReservedSystemCPUs; list != "" {
		if err := checkCPUs(list); err != nil {
			c.bad("reservedSystemCPUs", fmt.Sprintf("%q", list), "write a list of CPUs, as in 0-1,4")
		}
		if kc.SystemReservedCgroup != "" || kc.KubeReservedCgroup != "" {
			c.bad("reservedSystemCPUs", list, "cannot be used with systemReservedCgroup or kubeReservedCgroup")
		}
	}
	if kc.SystemCgroups != "" && kc.CgroupRoot == "" {
		c.bad("systemCgroups", kc.SystemCgroups, "also set cgroupRoot (--cgroup-root)")
	}
	period := kc.CPUCFSQuotaPeriod.Duration
	if !c.gates.Enabled("CustomCPUCFSQuotaPeriod") {
		if period != 100*time.Millisecond {
			c.bad("cpuCFSQuotaPeriod", period, "needs the feature gate CustomCPUCFSQuotaPeriod")
		}
	} else if period < time.Millisecond || period > time.Second {
		c.bad("cpuCFSQuotaPeriod", period, "use 1ms to 1s")
	}
	if f := *kc.MemoryThrottlingFactor; f <= 0 || f > 1 {
		c.bad("memoryThrottlingFactor", f, "use more than 0 and at most 1.0")
	}
	for i, r := range kc.ReservedMemory {
		for name, q := range r.Limits {
			path := fmt.Sprintf("reservedMemory[%d].limits[%s]", i, name)
			if name != v1.ResourceMemory && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				c.bad(path, q.String(), "use memory or hugepages-SIZE")
			} else if q.Sign() <= 0 {
				c.bad(path, q.String(), "must be greater than zero")
			}
		}
	}
}

func (c *checker) checkEnforcement() {
	kc := c.kc
	levels := []string{"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"}
	seen := map[string]bool{}
	for _, level := range kc.EnforceNodeAllocatable {
		if seen[level] {
			c.bad("enforceNodeAllocatable", level, "is listed twice")
			continue
		}
		seen[level] = true
		if !slices.Contains(levels, level) {
			c.bad("enforceNodeAllocatable", fmt.Sprintf("%q", level), "use %s", strings.Join(levels, ", "))
			continue
		}
		if strings.HasPrefix(level, "system-reserved") && kc.SystemReservedCgroup == "" {
			c.bad("enforceNodeAllocatable", level, "also set systemReservedCgroup (--system-reserved-cgroup)")
		}
		if strings.HasPrefix(level, "kube-reserved") && kc.KubeReservedCgroup == "" {
			c.bad("enforceNodeAllocatable", level, "also set kubeReservedCgroup (--kube-reserved-cgroup)")
		}
		if level != "none" && !*kc.CgroupsPerQOS {
			c.bad("enforceNodeAllocatable", level, "also set cgroupsPerQOS: true, or use none")
		}
	}
	if seen["none"] && len(seen) > 1 {
		c.bad("enforceNodeAllocatable", kc.EnforceNodeAllocatable, "none must stand alone")
	}
	for _, who := range []string{"system-reserved", "kube-reserved"} {
		if seen[who] && seen[who+"-compressible"] {
			c.bad("enforceNodeAllocatable", kc.EnforceNodeAllocatable, "use either %s or %s-compressible", who, who)
		}
	}
}

// signals are the signals that an eviction threshold may have.
var signals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
}

func (c *checker) checkEviction() {
	kc := c.kc
	for path, thresholds := range map[string]map[string]string{
		"evictionHard": kc.EvictionHard, "evictionSoft": kc.EvictionSoft, "evictionMinimumReclaim": kc.EvictionMinimumReclaim,
	} {
		for signal, amount := range thresholds {
			c.oneOfSignals(path, signal)
			if !validThreshold(amount) {
				c.bad(path+"["+signal+"]", fmt.Sprintf("%q", amount), "write a quantity as in 100Mi, or a percentage from 0%% to 100%%")
			}
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(kc.EvictionSoft)) {
		if _, ok := kc.EvictionSoftGracePeriod[signal]; !ok {
			c.bad("evictionSoft["+signal+"]", kc.EvictionSoft[signal], "also set evictionSoftGracePeriod[%s]", signal)
		}
	}
	for signal, grace := range kc.EvictionSoftGracePeriod {
		c.oneOfSignals("evictionSoftGracePeriod", signal)
		if d, err := time.ParseDuration(grace); err != nil || d < 0 {
			c.bad("evictionSoftGracePeriod["+signal+"]", fmt.Sprintf("%q", grace), "write a time, as in 1m30s")
		}
	}
}

func (c *checker) oneOfSignals(path, signal string) {
	if !slices.Contains(signals, signal) {
		c.bad(path, fmt.Sprintf("signal %q%s", signal, didYouMean(signal, slices.Clone(signals))), "use one of %s", strings.Join(signals, ", "))
	}
}

func validThreshold(s string) bool {
	if number, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.ParseFloat(number, 64)
		return err == nil && p >= 0 && p <= 100
	}
	q, err := resource.ParseQuantity(s)
	return err == nil && q.Sign() >= 0
}

func (c *checker) checkPolicies() {
	kc := c.kc
	c.oneOf("cgroupDriver", kc.CgroupDriver, "cgroupfs", "systemd")
	c.oneOf("cpuManagerPolicy", kc.CPUManagerPolicy, "none", "static")
	c.oneOf("memoryManagerPolicy", kc.MemoryManagerPolicy, "None", "Static")
	c.oneOf("topologyManagerPolicy", kc.TopologyManagerPolicy, "none", "best-effort", "restricted", "single-numa-node")
	c.oneOf("topologyManagerScope", kc.TopologyManagerScope, "container", "pod")
	c.oneOf("memorySwap.swapBehavior", kc.MemorySwap.SwapBehavior, "", "LimitedSwap", "NoSwap")
	c.oneOf("configMapAndSecretChangeDetectionStrategy", string(kc.ConfigMapAndSecretChangeDetectionStrategy), "Get", "Cache", "Watch")
	c.oneOf("memoryReservationPolicy", string(kc.MemoryReservationPolicy), "None", "TieredReservation")
	if kc.MemoryReservationPolicy == "TieredReservation" && !c.gates.Enabled("MemoryQoS") {
		c.bad("memoryReservationPolicy", kc.MemoryReservationPolicy, "needs the feature gate MemoryQoS")
	}
}

func (c *checker) checkShutdown() {
	kc := c.kc
	all, critical := kc.ShutdownGracePeriod.Duration, kc.ShutdownGracePeriodCriticalPods.Duration
	for path, d := range map[string]time.Duration{"shutdownGracePeriod": all, "shutdownGracePeriodCriticalPods": critical} {
		if d != 0 && d < time.Second {
			c.bad(path, d, "use 0, or 1s and more")
		}
	}
	if critical > all {
		c.bad("shutdownGracePeriodCriticalPods", critical, "must not be greater than shutdownGracePeriod (%s)", all)
	}
	if len(kc.ShutdownGracePeriodByPodPriority) > 0 && (all > 0 || critical > 0) {
		c.bad("shutdownGracePeriodByPodPriority", "set", "cannot be used with shutdownGracePeriod")
	}
	// Without its gate such a time would have no effect, and nobody would notice before the machine shuts down.
	if (all > 0 || critical > 0) && !c.gates.Enabled("GracefulNodeShutdown") {
		c.bad("shutdownGracePeriod", all, "needs the feature gate GracefulNodeShutdown")
	}
	for _, gate := range []string{"GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"} {
		if len(kc.ShutdownGracePeriodByPodPriority) > 0 && !c.gates.Enabled(gate) {
			c.bad("shutdownGracePeriodByPodPriority", "set", "needs the feature gate %s", gate)
		}
	}
}

// longCPU matches a number that no CPU has. Linux has at most 8192 CPUs.
var longCPU = regexp.MustCompile(`[0-9]{6}`)

// checkCPUs checks a list of CPUs. A range with large numbers would fill the memory.
func checkCPUs(list string) error {
	if longCPU.MatchString(list) {
		return errors.New("a CPU has a number of at most five digits")
	}
	_, err := cpuset.Parse(list)
	return err
}
