package config

import (
	"maps"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// flagSet reads one command line. A flag that corresponds to a field of KubeletConfiguration sets that field in Config.Kubelet. Every other
// flag sets a field of Config itself.
type flagSet struct {
	*pflag.FlagSet
	cfg *Config
	// field maps a flag to the path in KubeletConfiguration that it sets.
	field map[string]string

	configFile, configDir string
	wherryFile            string
	nodeIP                string
	lockFile              string
	exitOnLock            bool
	mounterPath           string
	version               string
	help                  bool
	removed               map[string]*removedValue
}

// newFlagSet binds every flag of upstream's kubelet to cfg. The KubeletConfiguration of cfg must have its defaults.
func newFlagSet(cfg *Config) *flagSet {
	f := &flagSet{
		FlagSet: pflag.NewFlagSet("kubelet", pflag.ContinueOnError),
		cfg:     cfg, field: map[string]string{}, removed: map[string]*removedValue{},
	}
	f.SortFlags = true
	f.Usage = func() {}
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	kc := &cfg.Kubelet
	f.addNodeFlags()
	f.addSourceFlags(kc)
	f.addServerFlags(kc)
	f.addTLSFlags(kc)
	f.addAPIFlags(kc)
	f.addRuntimeFlags(kc)
	f.addImageFlags(kc)
	f.addResourceFlags(kc)
	f.addManagerFlags(kc)
	f.addEvictionFlags(kc)
	f.addPodFlags(kc)
	f.addHostFlags(kc)
	f.addLogFlags(kc)
	f.addRemovedFlags()
	return f
}

// of records which field of KubeletConfiguration a flag sets.
func (f *flagSet) of(flag, path string) { f.field[flag] = path }

func (f *flagSet) addNodeFlags() {
	c := f.cfg
	f.StringVar(&f.configFile, "config", "", "file with a KubeletConfiguration; flags override its fields")
	f.StringVar(&f.configDir, "config-dir", "", "directory of drop-in files (*.conf), which override --config in the order of their names")
	f.StringVar(&f.wherryFile, "wherry-config", "", "file with a WherryConfiguration: the settings that Kubernetes has no field for")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig that reaches the API server; without it the node is standalone")
	f.StringVar(&c.BootstrapKubeconfig, "bootstrap-kubeconfig", "", "kubeconfig with a bootstrap token, with which the node requests its client certificate if --kubeconfig does not exist yet")
	f.StringVar(&c.HostnameOverride, "hostname-override", "", "name of the node, if it differs from the host's name")
	f.StringVar(&f.nodeIP, "node-ip", "", "address of the node, or an IPv4 and an IPv6 address, separated by a comma; default: the one that the name of the host has, or else the one on the default route")
	f.StringVar(&c.CertDir, "cert-dir", c.CertDir, "directory for keys and certificates; default of a simulated node: pki in --root-dir")
	f.StringVar(&c.RootDir, "root-dir", c.RootDir, "directory for the state of pods")
	f.StringVar(&c.CloudProvider, "cloud-provider", "", "\"external\" if a cloud controller initializes the node")
	labels := cliflag.ConfigurationMap(c.NodeLabels)
	f.Var(&labels, "node-labels", "labels of the Node, key=value, separated by commas")
	f.StringVar(&c.RuntimeCgroups, "runtime-cgroups", "", "cgroup of the container runtime")
	f.StringVar(&c.ImageCredentialProviderConfig, "image-credential-provider-config", "", "CredentialProviderConfig, or a directory of such files: plugins that return registry credentials")
	f.StringVar(&c.ImageCredentialProviderBinDir, "image-credential-provider-bin-dir", "", "directory of the credential provider plugins")
	f.StringVar(&f.lockFile, "lock-file", "", "no effect: the agent locks its root directory")
	f.BoolVar(&f.exitOnLock, "exit-on-lock-contention", false, "no effect: the agent locks its root directory")
	f.DurationVar(&c.MinimumContainerTTL, "minimum-container-ttl-duration", 0, "shortest time for which an ended container is kept")
	f.Int32Var(&c.MaxDeadPerContainer, "maximum-dead-containers-per-container", c.MaxDeadPerContainer, "how many ended instances of one container are kept")
	f.Int32Var(&c.MaxDeadContainers, "maximum-dead-containers", c.MaxDeadContainers, "how many ended containers are kept on the node; negative: no limit")
	f.StringVar(&f.mounterPath, "experimental-mounter-path", "", "no effect: the agent mounts by system calls, without a program: remove the flag")
	f.BoolVar(&c.IgnoreEvictionThreshold, "experimental-allocatable-ignore-eviction", false, "leave --eviction-hard out of node allocatable")
	f.StringVar(&f.version, "version", "", "print the version and end; raw: print all its parts")
	f.Lookup("version").NoOptDefVal = "true"
	f.BoolVarP(&f.help, "help", "h", false, "print this help and end")
}

func (f *flagSet) addSourceFlags(kc *kubelet.KubeletConfiguration) {
	f.StringVar(&kc.StaticPodPath, "pod-manifest-path", kc.StaticPodPath, "directory or file with static pods")
	f.of("pod-manifest-path", "staticPodPath")
	f.DurationVar(&kc.SyncFrequency.Duration, "sync-frequency", kc.SyncFrequency.Duration, "longest time between two checks of a pod")
	f.of("sync-frequency", "syncFrequency")
	f.DurationVar(&kc.FileCheckFrequency.Duration, "file-check-frequency", kc.FileCheckFrequency.Duration, "time between two reads of static pod files")
	f.of("file-check-frequency", "fileCheckFrequency")
	f.DurationVar(&kc.HTTPCheckFrequency.Duration, "http-check-frequency", kc.HTTPCheckFrequency.Duration, "time between two reads of --manifest-url")
	f.of("http-check-frequency", "httpCheckFrequency")
	f.StringVar(&kc.StaticPodURL, "manifest-url", kc.StaticPodURL, "URL with static pods")
	f.of("manifest-url", "staticPodURL")
	f.Var(cliflag.NewColonSeparatedMultimapStringString(&kc.StaticPodURLHeader), "manifest-url-header", "HTTP headers for --manifest-url, a:hello,b:again")
	f.of("manifest-url-header", "staticPodURLHeader")
	f.StringVar(&f.cfg.PushSocket, "push-socket", "", "Unix socket on which clients push pods; only root and its owner may use it; default: "+SystemSocket+" for a standalone node (another name in that directory with another --root-dir), wherry.sock in --root-dir for a simulated node, no socket for a node of a cluster; none: no socket")
	f.BoolVar(&f.cfg.PushAPI, "push-api", false, "also accept pushed pods over the HTTPS API, from clients with the right to use nodes/proxy")
	f.BoolVar(&kc.RunOnce, "runonce", kc.RunOnce, "no longer possible")
	f.of("runonce", "runOnce")
}

func (f *flagSet) addServerFlags(kc *kubelet.KubeletConfiguration) {
	f.BoolVar(kc.EnableServer, "enable-server", *kc.EnableServer, "serve the kubelet's API")
	f.of("enable-server", "enableServer")
	f.StringVar(&kc.Address, "address", kc.Address, "address to serve on")
	f.of("address", "address")
	f.Int32Var(&kc.Port, "port", kc.Port, "port to serve on")
	f.of("port", "port")
	f.Int32Var(&kc.ReadOnlyPort, "read-only-port", kc.ReadOnlyPort, "port without authentication; 0: none")
	f.of("read-only-port", "readOnlyPort")
	f.Int32Var(kc.HealthzPort, "healthz-port", *kc.HealthzPort, "port of /healthz; 0: none")
	f.of("healthz-port", "healthzPort")
	f.StringVar(&kc.HealthzBindAddress, "healthz-bind-address", kc.HealthzBindAddress, "address of /healthz")
	f.of("healthz-bind-address", "healthzBindAddress")
	f.BoolVar(kc.EnableDebuggingHandlers, "enable-debugging-handlers", *kc.EnableDebuggingHandlers, "serve logs, exec, attach, port-forward")
	f.of("enable-debugging-handlers", "enableDebuggingHandlers")
	f.BoolVar(&kc.EnableContentionProfiling, "contention-profiling", kc.EnableContentionProfiling, "profile lock contention")
	f.of("contention-profiling", "enableContentionProfiling")
	f.DurationVar(&kc.StreamingConnectionIdleTimeout.Duration, "streaming-connection-idle-timeout", kc.StreamingConnectionIdleTimeout.Duration, "longest idle time of a streaming connection; 0: no limit")
	f.of("streaming-connection-idle-timeout", "streamingConnectionIdleTimeout")
}

func (f *flagSet) addTLSFlags(kc *kubelet.KubeletConfiguration) {
	authn, authz := &kc.Authentication, &kc.Authorization
	f.BoolVar(authn.Anonymous.Enabled, "anonymous-auth", *authn.Anonymous.Enabled, "accept requests without credentials as system:anonymous")
	f.of("anonymous-auth", "authentication.anonymous.enabled")
	f.BoolVar(authn.Webhook.Enabled, "authentication-token-webhook", *authn.Webhook.Enabled, "ask the API server about bearer tokens (TokenReview)")
	f.of("authentication-token-webhook", "authentication.webhook.enabled")
	f.DurationVar(&authn.Webhook.CacheTTL.Duration, "authentication-token-webhook-cache-ttl", authn.Webhook.CacheTTL.Duration, "how long the result of a TokenReview is cached")
	f.of("authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL")
	f.StringVar(&authn.X509.ClientCAFile, "client-ca-file", authn.X509.ClientCAFile, "file with the certificate authorities of clients")
	f.of("client-ca-file", "authentication.x509.clientCAFile")
	f.StringVar((*string)(&authz.Mode), "authorization-mode", string(authz.Mode), "AlwaysAllow or Webhook")
	f.of("authorization-mode", "authorization.mode")
	f.DurationVar(&authz.Webhook.CacheAuthorizedTTL.Duration, "authorization-webhook-cache-authorized-ttl", authz.Webhook.CacheAuthorizedTTL.Duration, "how long a positive SubjectAccessReview is cached")
	f.of("authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL")
	f.DurationVar(&authz.Webhook.CacheUnauthorizedTTL.Duration, "authorization-webhook-cache-unauthorized-ttl", authz.Webhook.CacheUnauthorizedTTL.Duration, "how long a negative SubjectAccessReview is cached")
	f.of("authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL")
	f.StringVar(&kc.TLSCertFile, "tls-cert-file", kc.TLSCertFile, "serving certificate; without it the node creates one in --cert-dir")
	f.of("tls-cert-file", "tlsCertFile")
	f.StringVar(&kc.TLSPrivateKeyFile, "tls-private-key-file", kc.TLSPrivateKeyFile, "key of --tls-cert-file")
	f.of("tls-private-key-file", "tlsPrivateKeyFile")
	f.BoolVar(&kc.ServerTLSBootstrap, "rotate-server-certificates", kc.ServerTLSBootstrap, "ask the API server for the serving certificate, and rotate it")
	f.of("rotate-server-certificates", "serverTLSBootstrap")
	f.StringSliceVar(&kc.TLSCipherSuites, "tls-cipher-suites", kc.TLSCipherSuites, "cipher suites, separated by commas")
	f.of("tls-cipher-suites", "tlsCipherSuites")
	f.StringVar(&kc.TLSMinVersion, "tls-min-version", kc.TLSMinVersion, "VersionTLS12 or VersionTLS13 (or older)")
	f.of("tls-min-version", "tlsMinVersion")
	f.BoolVar(&kc.RotateCertificates, "rotate-certificates", kc.RotateCertificates, "renew the client certificate before it expires")
	f.of("rotate-certificates", "rotateCertificates")
}

func (f *flagSet) addAPIFlags(kc *kubelet.KubeletConfiguration) {
	f.StringVar(&kc.ContentType, "kube-api-content-type", kc.ContentType, "content type of requests")
	f.of("kube-api-content-type", "contentType")
	f.Int32Var(kc.KubeAPIQPS, "kube-api-qps", *kc.KubeAPIQPS, "requests per second to the API server; as many writes of pod statuses besides")
	f.of("kube-api-qps", "kubeAPIQPS")
	f.Int32Var(&kc.KubeAPIBurst, "kube-api-burst", kc.KubeAPIBurst, "burst of requests to the API server")
	f.of("kube-api-burst", "kubeAPIBurst")
	f.Int32Var(kc.EventRecordQPS, "event-qps", *kc.EventRecordQPS, "events per second; 0: no limit")
	f.of("event-qps", "eventRecordQPS")
	f.Int32Var(&kc.EventBurst, "event-burst", kc.EventBurst, "burst of events")
	f.of("event-burst", "eventBurst")
	f.BoolVar(kc.RegisterNode, "register-node", *kc.RegisterNode, "create the Node object")
	f.of("register-node", "registerNode")
	f.Var(&taintsValue{to: &kc.RegisterWithTaints}, "register-with-taints", "taints of a Node when it is created, key=value:Effect, separated by commas")
	f.of("register-with-taints", "registerWithTaints")
	f.StringVar(&kc.ProviderID, "provider-id", kc.ProviderID, "identity of the machine at its cloud")
	f.of("provider-id", "providerID")
	f.DurationVar(&kc.NodeStatusUpdateFrequency.Duration, "node-status-update-frequency", kc.NodeStatusUpdateFrequency.Duration, "time between two computations of the node's status")
	f.of("node-status-update-frequency", "nodeStatusUpdateFrequency")
	f.Int32Var(kc.NodeStatusMaxImages, "node-status-max-images", *kc.NodeStatusMaxImages, "images in the node's status; -1: all")
	f.of("node-status-max-images", "nodeStatusMaxImages")
	f.Int32Var(&kc.MaxPods, "max-pods", kc.MaxPods, "how many pods may run on the node")
	f.of("max-pods", "maxPods")
	f.Int32Var(&kc.PodsPerCore, "pods-per-core", kc.PodsPerCore, "how many pods may run per CPU core; 0: only --max-pods counts")
	f.of("pods-per-core", "podsPerCore")
	f.StringVar(&kc.PodCIDR, "pod-cidr", kc.PodCIDR, "addresses of pods in standalone mode")
	f.of("pod-cidr", "podCIDR")
	f.BoolVar(kc.EnableControllerAttachDetach, "enable-controller-attach-detach", *kc.EnableControllerAttachDetach, "leave attaching volumes to the controller")
	f.of("enable-controller-attach-detach", "enableControllerAttachDetach")
	f.Var(cliflag.NewMapStringBool(&kc.FeatureGates), "feature-gates", "feature gates, Name=true, separated by commas")
	f.of("feature-gates", "featureGates")
}

// parsedFields returns the paths of the fields that this command line sets, each with the flag that sets it.
func (f *flagSet) parsedFields() map[string]string {
	set := map[string]string{}
	f.Visit(func(flag *pflag.Flag) {
		if path, ok := f.field[flag.Name]; ok {
			set[path] = flag.Name
		}
	})
	return set
}

// values returns all flags with their effective values. It leaves out removed flags and masks credentials.
func (f *flagSet) values() map[string]string {
	values := map[string]string{}
	safe := Masked(&f.cfg.Kubelet)
	f.VisitAll(func(flag *pflag.Flag) {
		if _, gone := f.removed[flag.Name]; gone {
			return
		}
		values[flag.Name] = flag.Value.String()
	})
	values["manifest-url"] = safe.StaticPodURL
	values["manifest-url-header"] = cliflag.NewColonSeparatedMultimapStringString(&safe.StaticPodURLHeader).String()
	return values
}

// flagOf returns the inverse of field: the flag that sets a path.
func (f *flagSet) flagOf() map[string]string {
	flags := make(map[string]string, len(f.field))
	for flag, path := range maps.All(f.field) {
		flags[path] = flag
	}
	return flags
}

func (f *flagSet) addLogFlags(kc *kubelet.KubeletConfiguration) {
	l := &kc.Logging
	f.VarP(logsapi.VerbosityLevelPflag(&l.Verbosity), "v", "v", "how much is logged: 0 has each action of a pod with its reason; 2 has events too, 4 details for debugging")
	f.of("v", "logging.verbosity")
	f.Var(logsapi.VModuleConfigurationPflag(&l.VModule), "vmodule", "verbosity per source file, pattern=N, separated by commas")
	f.of("vmodule", "logging.vmodule")
	f.StringVar(&l.Format, "logging-format", l.Format, "text or json")
	f.of("logging-format", "logging.format")
	f.DurationVar(&l.FlushFrequency.Duration.Duration, "log-flush-frequency", l.FlushFrequency.Duration.Duration, "longest time that log lines are buffered")
	f.of("log-flush-frequency", "logging.flushFrequency")
	f.BoolVar(&l.Options.Text.SplitStream, "log-text-split-stream", l.Options.Text.SplitStream, "errors to stderr, the rest to stdout")
	f.of("log-text-split-stream", "logging.options.text.splitStream")
	f.Var(&l.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "buffer of the info stream")
	f.of("log-text-info-buffer-size", "logging.options.text.infoBufferSize")
	f.BoolVar(&l.Options.JSON.SplitStream, "log-json-split-stream", l.Options.JSON.SplitStream, "errors to stderr, the rest to stdout")
	f.of("log-json-split-stream", "logging.options.json.splitStream")
	f.Var(&l.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "buffer of the info stream")
	f.of("log-json-info-buffer-size", "logging.options.json.infoBufferSize")
}
