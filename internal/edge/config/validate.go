package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	kubelet "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// checker collects the problems of a configuration, each with its path, its flag and the remedy.
type checker struct {
	kc    *kubelet.KubeletConfiguration
	gates Gates
	flag  map[string]string // the flag that sets a field, by the field's path
	errs  []error
}

// bad adds a problem in the form `path (--flag): value: remedy`.
func (c *checker) bad(path string, value any, way string, args ...any) {
	subject := path
	if f, ok := c.flag[fieldOf(path)]; ok {
		subject += " (--" + f + ")"
	}
	c.errs = append(c.errs, &fieldError{path, fmt.Sprintf("%s: %v: %s", subject, value, fmt.Sprintf(way, args...))})
}

func (c *checker) between(path string, value, low, high int64) {
	if value < low || value > high {
		c.bad(path, value, "use %d to %d", low, high)
	}
}

func (c *checker) notNegative(path string, value int64) {
	if value < 0 {
		c.bad(path, value, "must not be negative: use 0 or more")
	}
}

func (c *checker) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.bad(path, fmt.Sprintf("%q", value), "use one of %s", strings.Join(allowed, ", "))
	}
}

func (c *checker) ip(path, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		c.bad(path, fmt.Sprintf("%q", value), "is not an IP address")
	}
}

func (c *checker) positive(path string, d time.Duration) {
	if d <= 0 {
		c.bad(path, d, "use a time greater than zero, as in 10s")
	}
}

// validate checks a whole configuration. flags maps paths to the flags that set them.
func validate(cfg *Config, flags map[string]string) []error {
	c := &checker{kc: &cfg.Kubelet, gates: cfg.Gates, flag: flags}
	c.checkNames(cfg)
	c.checkServer()
	c.checkTracing()
	c.checkTLS()
	c.checkAPI()
	c.checkTimes()
	c.checkImages()
	c.checkHost()
	c.checkRuntime()
	c.checkLogs()
	c.checkSysctls()
	c.checkNodeResources()
	c.checkEnforcement()
	c.checkEviction()
	c.checkPolicies()
	c.checkShutdown()
	return c.errs
}

func (c *checker) checkNames(cfg *Config) {
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(cfg.NodeLabels)) {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			c.bad("--node-labels", fmt.Sprintf("key %q", key), "%s", strings.Join(errs, "; "))
		} else if reservedLabel(key) && !kubeletapis.IsKubeletLabel(key) {
			unknown = append(unknown, key)
		}
		if errs := validation.IsValidLabelValue(cfg.NodeLabels[key]); len(errs) > 0 {
			c.bad("--node-labels", fmt.Sprintf("%s=%q", key, cfg.NodeLabels[key]), "%s", strings.Join(errs, "; "))
		}
	}
	if len(unknown) > 0 {
		c.bad("--node-labels", strings.Join(unknown, ", "),
			"a node may not set these labels of kubernetes.io or k8s.io itself: have an administrator label the Node, or use a prefix of %s or one of %s",
			strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "), strings.Join(kubeletapis.KubeletLabels(), ", "))
	}
	if name := strings.ToLower(strings.TrimSpace(cfg.HostnameOverride)); name != "" {
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			c.bad("--hostname-override", fmt.Sprintf("%q", name), "cannot be the name of a Node: %s", strings.Join(errs, "; "))
		}
	}
	c.oneOf("--cloud-provider", cfg.CloudProvider, "", "external")
	for flag, dir := range map[string]string{"--root-dir": cfg.RootDir, "--cert-dir": cfg.CertDir} {
		if dir == "" {
			c.bad(flag, `""`, "name a directory")
		}
	}
	if cfg.BootstrapKubeconfig != "" && cfg.Kubeconfig == "" {
		c.bad("--bootstrap-kubeconfig", cfg.BootstrapKubeconfig, "also give --kubeconfig: the file to write when the node has its certificate")
	}
	for i, taint := range c.kc.RegisterWithTaints {
		if err := CheckTaint(taint); err != nil {
			c.bad(fmt.Sprintf("registerWithTaints[%d]", i), taint.Key, "%v", err)
		}
		if taint.TimeAdded != nil {
			c.bad(fmt.Sprintf("registerWithTaints[%d].timeAdded", i), taint.TimeAdded, "may not be set: remove it")
		}
	}
}

func reservedLabel(key string) bool {
	ns, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}
	for _, owned := range []string{"kubernetes.io", "k8s.io"} {
		if ns == owned || strings.HasSuffix(ns, "."+owned) {
			return true
		}
	}
	return false
}

func (c *checker) checkServer() {
	kc := c.kc
	c.ip("address", kc.Address)
	c.ip("healthzBindAddress", kc.HealthzBindAddress)
	c.between("port", int64(kc.Port), 1, 65535)
	c.between("readOnlyPort", int64(kc.ReadOnlyPort), 0, 65535)
	c.between("healthzPort", int64(*kc.HealthzPort), 0, 65535)
	c.oneOf("authorization.mode", string(kc.Authorization.Mode), "AlwaysAllow", "Webhook")
	c.notNegative("authentication.webhook.cacheTTL", int64(kc.Authentication.Webhook.CacheTTL.Duration))
	c.notNegative("authorization.webhook.cacheAuthorizedTTL", int64(kc.Authorization.Webhook.CacheAuthorizedTTL.Duration))
	c.notNegative("authorization.webhook.cacheUnauthorizedTTL", int64(kc.Authorization.Webhook.CacheUnauthorizedTTL.Duration))
	if kc.StaticPodURL != "" {
		if u, err := url.Parse(kc.StaticPodURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			c.bad("staticPodURL", fmt.Sprintf("%q", maskURL(kc.StaticPodURL)), "write http://host/path or https://host/path")
		}
	}
	if q := kc.EnableSystemLogQuery; q != nil && *q {
		if !c.gates.Enabled("NodeLogQuery") {
			c.bad("enableSystemLogQuery", true, "needs the feature gate NodeLogQuery")
		}
		if !*kc.EnableSystemLogHandler {
			c.bad("enableSystemLogQuery", true, "needs enableSystemLogHandler: true")
		}
	}
}

func (c *checker) checkTLS() {
	kc := c.kc
	if (kc.TLSCertFile == "") != (kc.TLSPrivateKeyFile == "") {
		c.bad("tlsCertFile", fmt.Sprintf("%q with tlsPrivateKeyFile %q", kc.TLSCertFile, kc.TLSPrivateKeyFile), "set both or neither")
	}
	if _, err := cliflag.TLSVersion(kc.TLSMinVersion); err != nil {
		c.oneOf("tlsMinVersion", kc.TLSMinVersion, cliflag.TLSPossibleVersions()...)
	}
	for i, suite := range kc.TLSCipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{suite}); err != nil {
			c.bad(fmt.Sprintf("tlsCipherSuites[%d]", i), fmt.Sprintf("%q", suite), "use names such as %s",
				strings.Join(cliflag.PreferredTLSCipherNames(), ", "))
		}
	}
	if _, err := cliflag.TLSCurvePreferences(kc.TLSCurvePreferences); err != nil {
		c.bad("tlsCurvePreferences", kc.TLSCurvePreferences, "%v", err)
	}
	if kc.ServerTLSBootstrap && !c.gates.Enabled("RotateKubeletServerCertificate") {
		c.bad("serverTLSBootstrap", true, "needs the feature gate RotateKubeletServerCertificate")
	}
}

func (c *checker) checkAPI() {
	kc := c.kc
	c.notNegative("kubeAPIQPS", int64(*kc.KubeAPIQPS))
	c.notNegative("kubeAPIBurst", int64(kc.KubeAPIBurst))
	c.notNegative("eventRecordQPS", int64(*kc.EventRecordQPS))
	c.notNegative("eventBurst", int64(kc.EventBurst))
	c.notNegative("registryPullQPS", int64(*kc.RegistryPullQPS))
	c.notNegative("registryBurst", int64(kc.RegistryBurst))
	c.notNegative("maxPods", int64(kc.MaxPods))
	c.notNegative("podsPerCore", int64(kc.PodsPerCore))
	if *kc.NodeStatusMaxImages < -1 {
		c.bad("nodeStatusMaxImages", *kc.NodeStatusMaxImages, "use -1 for all images, or 0 and more")
	}
	if kc.NodeLeaseDurationSeconds <= 0 {
		c.bad("nodeLeaseDurationSeconds", kc.NodeLeaseDurationSeconds, "use 1 or more")
	}
	if kc.RunOnce {
		c.bad("runOnce", true, "Kubernetes has withdrawn this mode: remove it")
	}
	if kc.PodCIDR != "" {
		for part := range strings.SplitSeq(kc.PodCIDR, ",") {
			if _, err := netip.ParsePrefix(part); err != nil {
				c.bad("podCIDR", fmt.Sprintf("%q", part), "write an address and a length, as in 10.244.0.0/24")
			}
		}
	}
	for i, server := range kc.ClusterDNS {
		c.ip(fmt.Sprintf("clusterDNS[%d]", i), server)
	}
	if kc.ClusterDomain != "" {
		if errs := validation.IsDNS1123Subdomain(strings.TrimSuffix(kc.ClusterDomain, ".")); len(errs) > 0 {
			c.bad("clusterDomain", fmt.Sprintf("%q", kc.ClusterDomain), "%s", strings.Join(errs, "; "))
		}
	}
}

func (c *checker) checkTimes() {
	kc := c.kc
	c.positive("nodeStatusUpdateFrequency", kc.NodeStatusUpdateFrequency.Duration)
	c.positive("nodeStatusReportFrequency", kc.NodeStatusReportFrequency.Duration)
	c.positive("fileCheckFrequency", kc.FileCheckFrequency.Duration)
	c.positive("httpCheckFrequency", kc.HTTPCheckFrequency.Duration)
	c.positive("syncFrequency", kc.SyncFrequency.Duration)
	c.positive("runtimeRequestTimeout", kc.RuntimeRequestTimeout.Duration)
	c.notNegative("streamingConnectionIdleTimeout", int64(kc.StreamingConnectionIdleTimeout.Duration)) // 0, only by the flag: no limit
	back := kc.CrashLoopBackOff.MaxContainerRestartPeriod
	switch on := c.gates.Enabled("KubeletCrashLoopBackOffMax"); {
	case back == nil:
	case !on:
		c.bad("crashLoopBackOff.maxContainerRestartPeriod", back.Duration, "needs the feature gate KubeletCrashLoopBackOffMax")
	case back.Duration < time.Second || back.Duration > 5*time.Minute:
		c.bad("crashLoopBackOff.maxContainerRestartPeriod", back.Duration, "use 1s to 300s")
	}
}

func (c *checker) checkHost() {
	kc := c.kc
	c.between("oomScoreAdj", int64(*kc.OOMScoreAdj), -1000, 1000)
	c.notNegative("maxOpenFiles", kc.MaxOpenFiles)
	c.between("iptablesMasqueradeBit", int64(*kc.IPTablesMasqueradeBit), 0, 31)
	c.between("iptablesDropBit", int64(*kc.IPTablesDropBit), 0, 31)
	c.oneOf("hairpinMode", kc.HairpinMode, kubelet.PromiscuousBridge, kubelet.HairpinVeth, kubelet.HairpinNone)
	if u := kc.UserNamespaces; u != nil && u.IDsPerPod != nil {
		const unit = 65536
		if ids := *u.IDsPerPod; ids < unit || ids%unit != 0 || ids > 1<<32-1 {
			c.bad("userNamespaces.idsPerPod", ids, "use a multiple of %d below 2^32", unit)
		}
	}
}

func (c *checker) checkRuntime() {
	c.endpoint("containerRuntimeEndpoint", c.kc.ContainerRuntimeEndpoint, false)
	c.endpoint("imageServiceEndpoint", c.kc.ImageServiceEndpoint, true)
}

func (c *checker) endpoint(path, value string, optional bool) {
	socket, unix := strings.CutPrefix(value, "unix://")
	switch {
	case value == "" && optional:
	case unix && filepath.IsAbs(socket), filepath.IsAbs(value):
	case strings.HasPrefix(value, simulatedScheme) && !optional:
	default:
		c.bad(path, fmt.Sprintf("%q", value), "write unix:///run/containerd/containerd.sock, or simulated:// for a runtime in memory")
	}
}

// checkTracing checks the endpoint of traces and the rate of kept traces.
func (c *checker) checkTracing() {
	t := c.kc.Tracing
	if t == nil {
		return
	}
	if r := t.SamplingRatePerMillion; r != nil && (*r < 0 || *r > 1_000_000) {
		c.bad("tracing.samplingRatePerMillion", *r, "use a number from 0 to 1000000")
	}
	if t.Endpoint == nil || *t.Endpoint == "" {
		return
	}
	scheme, _, named := strings.Cut(*t.Endpoint, "//")
	if named && !slices.Contains([]string{"dns:", "unix:", "unix-abstract:"}, scheme) {
		c.bad("tracing.endpoint", *t.Endpoint, "name a host and port, as in localhost:4317, or use the scheme dns, unix or unix-abstract")
	}
}
