package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// removedFlag is a flag that upstream's kubelet once had. The agent accepts it, so that a node's old files still work, but it
// has no effect. One notice names its successor.
type removedFlag struct {
	since     string // the first release of Kubernetes without it; "": long ago
	successor string // text that says what to use instead of the flag
	boolean   bool   // the flag may be given without a value
}

const (
	dockershim = "the container runtime does this now: remove the flag"
	logFlag    = "logs go to standard error: let systemd (journalctl -u kubelet) or the shell (2>>file) keep them, and set how much by -v or logging.verbosity"
)

var removedFlags = map[string]removedFlag{
	// Networking and dockershim.
	"network-plugin":                         {"1.24", "the container runtime sets up pod networks by CNI: configure it there (/etc/cni/net.d)", false},
	"network-plugin-mtu":                     {"1.24", "set the MTU in the CNI configuration (/etc/cni/net.d)", false},
	"cni-bin-dir":                            {"1.24", "set the directory in the container runtime: bin_dir of containerd's CRI plugin, plugin_dirs of CRI-O", false},
	"cni-conf-dir":                           {"1.24", "set the directory in the container runtime: conf_dir of containerd's CRI plugin, network_dir of CRI-O", false},
	"cni-cache-dir":                          {"1.24", "the container runtime keeps the CNI cache: remove the flag", false},
	"non-masquerade-cidr":                    {"1.24", "the CNI plugin decides about masquerading (ipMasq): remove the flag", false},
	"docker-endpoint":                        {"1.24", "use --container-runtime-endpoint with a CRI runtime (cri-dockerd for Docker)", false},
	"image-pull-progress-deadline":           {"1.24", dockershim, false},
	"experimental-dockershim":                {"1.24", dockershim, true},
	"experimental-dockershim-root-directory": {"1.24", dockershim, false},
	"docker":                                 {"1.24", dockershim, false},
	"docker-env-metadata-whitelist":          {"1.24", dockershim, false},
	"docker-only":                            {"1.24", dockershim, true},
	"docker-root":                            {"1.24", dockershim, false},
	"docker-tls":                             {"1.24", dockershim, true},
	"docker-tls-ca":                          {"1.24", dockershim, false},
	"docker-tls-cert":                        {"1.24", dockershim, false},
	"docker-tls-key":                         {"1.24", dockershim, false},
	"redirect-container-streaming":           {"", dockershim, true},
	"container-runtime":                      {"1.27", "every runtime is remote now: --container-runtime-endpoint names its socket", false},
	"pod-infra-container-image":              {"", "set the sandbox image in the container runtime: sandbox of containerd's CRI plugin, pause_image of CRI-O", false},

	// Logging.
	"log-dir":           {"1.26", logFlag, false},
	"log-file":          {"1.26", logFlag, false},
	"log-file-max-size": {"1.26", logFlag, false},
	"logtostderr":       {"1.26", logFlag, true},
	"alsologtostderr":   {"1.26", logFlag, true},
	"stderrthreshold":   {"1.26", logFlag, false},
	"log-backtrace-at":  {"1.26", logFlag, false},
	"add-dir-header":    {"1.26", logFlag, true},
	"skip-headers":      {"1.26", logFlag, true},
	"skip-log-headers":  {"1.26", logFlag, true},
	"one-output":        {"1.26", logFlag, true},

	// Joining and the node.
	"api-servers":                       {"", "name the server in --kubeconfig", false},
	"require-kubeconfig":                {"", "--kubeconfig alone is enough: remove the flag", true},
	"experimental-bootstrap-kubeconfig": {"", "use --bootstrap-kubeconfig", false},
	"register-schedulable":              {"", "use --register-with-taints=node.kubernetes.io/unschedulable=:NoSchedule", true},
	"master-service-namespace":          {"", "remove the flag", false},
	"cloud-config":                      {"", "the cloud controller has the configuration: use --cloud-provider=external", false},
	"azure-container-registry-config":   {"", "use --image-credential-provider-config", false},
	"dynamic-config-dir":                {"1.24", "use --config and --config-dir", false},
	"bootstrap-checkpoint-path":         {"", "use staticPodPath", false},
	"keep-terminated-pod-volumes":       {"", "volumes of ended pods are torn down: remove the flag", true},
	"node-status-report-frequency":      {"", "set nodeStatusReportFrequency in the file of --config", false},

	// Security and resources.
	"allow-privileged":                                  {"1.15", "Pod Security admission decides about privileged pods: remove the flag", true},
	"host-network-sources":                              {"", "Pod Security admission decides about host namespaces: remove the flag", false},
	"host-pid-sources":                                  {"", "Pod Security admission decides about host namespaces: remove the flag", false},
	"host-ipc-sources":                                  {"", "Pod Security admission decides about host namespaces: remove the flag", false},
	"seccomp-profile-root":                              {"1.23", "profiles are read from seccomp/ in --root-dir: remove the flag", false},
	"experimental-fail-swap-on":                         {"", "use failSwapOn (--fail-swap-on)", true},
	"experimental-allowed-unsafe-sysctls":               {"", "use allowedUnsafeSysctls (--allowed-unsafe-sysctls)", false},
	"experimental-qos-reserved":                         {"", "use qosReserved (--qos-reserved)", false},
	"experimental-kernel-memcg-notification":            {"", "use kernelMemcgNotification (--kernel-memcg-notification)", true},
	"experimental-check-node-capabilities-before-mount": {"", "remove the flag", true},
	"experimental-logging-sanitization":                 {"", "remove the flag", true},
	"iptables-masquerade-bit":                           {"", "set iptablesMasqueradeBit in the file of --config", false},
	"iptables-drop-bit":                                 {"", "set iptablesDropBit in the file of --config", false},
	"low-diskspace-threshold-mb":                        {"", "use evictionHard (--eviction-hard)", false},
	"outofdisk-transition-frequency":                    {"", "use evictionPressureTransitionPeriod (--eviction-pressure-transition-period)", false},
	"cadvisor-port":                                     {"1.12", "read /metrics/cadvisor of the kubelet's own port", false},
	"enable-cadvisor-json-endpoints":                    {"1.21", "read /metrics/cadvisor or /stats/summary", true},
	"chaos-chance":                                      {"", "remove the flag", false},
	"really-crash-for-testing":                          {"", "remove the flag", true},
	"containerized":                                     {"", "remove the flag", true},
}

// cadvisorFlags are the flags of upstream's kubelet that come from the cAdvisor library. This agent does not have that library.
var cadvisorFlags = []string{
	"housekeeping-interval", "global-housekeeping-interval", "application-metrics-count-limit", "boot-id-file",
	"container-hints", "containerd", "containerd-namespace", "enable-load-reader", "event-storage-age-limit",
	"event-storage-event-limit", "log-cadvisor-usage", "machine-id-file", "storage-driver-user", "storage-driver-password",
	"storage-driver-host", "storage-driver-db", "storage-driver-table", "storage-driver-secure", "storage-driver-buffer-duration",
}

// restricting has the removed flags that excluded some pods, each with the value that excludes none. Any other value is an error, because
// a node that ignored it would run pods that its owner wants to exclude.
var restricting = map[string]string{"allow-privileged": "true", "host-network-sources": "*", "host-pid-sources": "*", "host-ipc-sources": "*"}

// removedErrors returns errors for the removed flags that the agent must not ignore.
func (f *flagSet) removedErrors() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(restricting)) {
		if v := f.removed[name]; v.given && !sameValue(v.value, restricting[name]) {
			errs = append(errs, fmt.Errorf("--%s: Kubernetes has removed this flag, so the node would also run the pods that the value %q is to exclude: %s",
				name, v.value, removedFlags[name].successor))
		}
	}
	return errs
}

// sameValue reports whether two values of a flag are the same text or the same boolean.
func sameValue(a, b string) bool {
	x, errA := strconv.ParseBool(a)
	y, errB := strconv.ParseBool(b)
	return a == b || errA == nil && errB == nil && x == y
}

// removedValue is the value of a removed flag: it accepts any text.
type removedValue struct {
	given bool
	value string
}

func (*removedValue) Type() string         { return "string" }
func (*removedValue) String() string       { return "" }
func (v *removedValue) Set(s string) error { v.given, v.value = true, s; return nil }

// addRemovedFlags adds the flags that are accepted without effect: removedFlags and cadvisorFlags. The text of --help does not show them.
func (f *flagSet) addRemovedFlags() {
	add := func(name string, boolean bool) {
		v := &removedValue{}
		f.removed[name] = v
		f.Var(v, name, "")
		flag := f.Lookup(name)
		flag.Hidden = true
		if boolean {
			flag.NoOptDefVal = strconv.FormatBool(true)
		}
	}
	for name, r := range removedFlags {
		add(name, r.boolean)
	}
	for _, name := range cadvisorFlags {
		add(name, name == "enable-load-reader" || name == "log-cadvisor-usage" || name == "storage-driver-secure")
	}
}

// removedNotices returns a notice for each removed flag of the command line, in the order of their names.
func (f *flagSet) removedNotices() []Notice {
	var notices []Notice
	for _, name := range slices.Sorted(maps.Keys(f.removed)) {
		if !f.removed[name].given {
			continue
		}
		r, gone := removedFlags[name]
		if !gone {
			notices = append(notices, Notice{NoticeNotHonoured, "--" + name,
				"a flag of the cAdvisor inside Kubernetes' kubelet; statistics are read on demand here: remove it"})
			continue
		}
		message := "removed from Kubernetes"
		if r.since != "" {
			message += " in " + r.since
		}
		notices = append(notices, Notice{NoticeRemoved, "--" + name, message + ", no effect: " + r.successor})
	}
	return notices
}
