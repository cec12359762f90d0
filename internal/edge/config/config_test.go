package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wherry-node/wherry/internal/edge/config"
	v1 "k8s.io/api/core/v1"
)

// write creates a configuration file that begins with apiVersion and kind.
func write(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	head := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	if err := os.WriteFile(path, []byte(head+body), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, args ...string) (config.Config, []config.Notice) {
	t.Helper()
	cfg, notices, err := config.Load(args)
	if err != nil {
		t.Fatalf("Load(%q): %v", args, err)
	}
	return cfg, notices
}

func noticed(notices []config.Notice) string {
	var b strings.Builder
	for _, n := range notices {
		b.WriteString(string(n.Kind) + " " + n.String() + "\n")
	}
	return b.String()
}

// The files and the drop-in arguments of kubeadm work without changes.
func TestKubeadm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", `authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`)
	cfg, notices := load(t,
		"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--config="+file,
		"--container-runtime=remote", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
		"--fail-swap-on=false", "--node-ip=172.18.0.3", "--node-labels=", "--pod-infra-container-image=registry.k8s.io/pause:3.9",
		"--provider-id=kind://docker/kubelet/kubelet-worker")
	if cfg.Kubeconfig != "/etc/kubernetes/kubelet.conf" || cfg.NodeIPs[0].String() != "172.18.0.3" || *cfg.Kubelet.FailSwapOn {
		t.Errorf("flags lost: %+v", cfg)
	}
	kc := cfg.Kubelet
	if kc.CgroupDriver != "systemd" || kc.NodeStatusReportFrequency.Duration != 5*time.Minute ||
		kc.ContainerRuntimeEndpoint != "unix:///run/containerd/containerd.sock" || kc.StaticPodPath != "/etc/kubernetes/manifests" {
		t.Errorf("file lost or defaults missing: %+v", kc)
	}
	want := "removed --container-runtime: removed from Kubernetes in 1.27, no effect: every runtime is remote now: --container-runtime-endpoint names its socket\n" +
		"removed --pod-infra-container-image: removed from Kubernetes, no effect: set the sandbox image in the container runtime: sandbox of containerd's CRI plugin, pause_image of CRI-O\n"
	if diff := cmp.Diff(want, noticed(withoutDefaults(t, notices))); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// The /etc/default/kubelet of an old node (systemd splits it into words, including comments) still starts the agent. There is
// one notice for each removed flag.
func TestOldNode(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "config.yaml", "")
	env := `--allowed-unsafe-sysctls=kernel.shm*,kernel.msg*,kernel.sem,fs.mqueue.*,net.*
  --node-ip 10.239.83.68 --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf
  --cni-bin-dir=/opt/cni/bin --cni-conf-dir=/etc/cni/net.d
  # 配置文件
  --config=` + file + ` --network-plugin=cni
  # 日志输出目录
  --log-dir=/data/log/kubelet --logtostderr=false --pod-infra-container-image=example.org/pause-amd64:3.1
  --register-with-taints node.netease.com/phase=checking:NoSchedule
  --node-labels node.kubernetes.io/instance-type=bare-metal,network.netease.com/kube-proxy=lb-masquerade,topology.kubernetes.io/zone=,node.netease.com/phase=checking
  # 打印更多的日志
  -v=4`
	cfg, notices := load(t, strings.Fields(env)...)
	if diff := cmp.Diff(map[string]string{
		"node.kubernetes.io/instance-type": "bare-metal", "network.netease.com/kube-proxy": "lb-masquerade",
		"topology.kubernetes.io/zone": "", "node.netease.com/phase": "checking",
	}, cfg.NodeLabels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]v1.Taint{{Key: "node.netease.com/phase", Value: "checking", Effect: "NoSchedule"}}, cfg.Kubelet.RegisterWithTaints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*", "net.*"}, cfg.Kubelet.AllowedUnsafeSysctls); diff != "" {
		t.Errorf("sysctls (-want +got):\n%s", diff)
	}
	if cfg.Verbosity() != 4 {
		t.Errorf("verbosity %d, want 4", cfg.Verbosity())
	}
	said := noticed(notices)
	for _, flag := range []string{"--cni-bin-dir", "--cni-conf-dir", "--network-plugin", "--log-dir", "--logtostderr", "--pod-infra-container-image", "command line"} {
		if n := strings.Count(said, " "+flag+": "); n != 1 {
			t.Errorf("%d notices about %s, want one:\n%s", n, flag, said)
		}
	}
}

// A flag overrides the drop-in files, a drop-in file overrides those before it in lexical order, and all of them override the file of
// --config: "Command line flags ... override the same value in the config file". Files of --config-dir that do not end in .conf are
// ignored.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", "maxPods: 10\nport: 1010\nhealthzPort: 1011\nreadOnlyPort: 1012\npodsPerCore: 3\nstaticPodPath: manifests\nfeatureGates: {ImageVolume: true, MemoryQoS: true}\nevictionHard: {memory.available: 1Gi}\n")
	write(t, dir, "conf.d/10-a.conf", "port: 1020\nhealthzPort: 1021\nreadOnlyPort: 1022\nevictionHard: {nodefs.available: 5%}\nclusterDNS: [10.0.0.1]\n")
	write(t, dir, "conf.d/20-b.conf", "healthzPort: 1031\nreadOnlyPort: 1032\nclusterDNS: [10.0.0.2]\npodsPerCore: null\n")
	write(t, dir, "conf.d/sub/30-c.conf", "staticPodPath: pods\n")
	write(t, dir, "conf.d/99-not-read.yaml", "maxPods: 99\n")
	cfg, _ := load(t, "--config", file, "--config-dir", filepath.Join(dir, "conf.d"), "--read-only-port=1042",
		"--feature-gates=MemoryQoS=false,KubeletCrashLoopBackOffMax=true")
	kc := cfg.Kubelet
	got := map[string]any{
		"maxPods": kc.MaxPods, "port": kc.Port, "healthzPort": *kc.HealthzPort, "readOnlyPort": kc.ReadOnlyPort,
		"podsPerCore": kc.PodsPerCore, "staticPodPath": kc.StaticPodPath, "clusterDNS": kc.ClusterDNS,
		"featureGates": kc.FeatureGates, "evictionHard": kc.EvictionHard,
	}
	want := map[string]any{
		"maxPods": int32(10), "port": int32(1020), "healthzPort": int32(1031), "readOnlyPort": int32(1042),
		"podsPerCore": int32(0), "staticPodPath": filepath.Join(dir, "conf.d/sub/pods"), "clusterDNS": []string{"10.0.0.2"},
		"featureGates": map[string]bool{"ImageVolume": true, "MemoryQoS": false, "KubeletCrashLoopBackOffMax": true},
		"evictionHard": map[string]string{"memory.available": "1Gi", "nodefs.available": "5%"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if cfg.Gates.Enabled("MemoryQoS") || !cfg.Gates.Enabled("KubeletCrashLoopBackOffMax") || cfg.Gates.Enabled("NoSuchGate") {
		t.Error("Gates do not have the values that were set")
	}
}

// The error for a bad value names the file that sets it, not a later one that sets other keys of the same map.
func TestErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", "evictionHard:\n  nodefs.available: much\n  imagefs.available: much\n")
	drops := filepath.Join(dir, "conf.d")
	write(t, drops, "10.conf", "evictionHard: {memory.available: 5%, imagefs.available: more}\n")
	_, _, err := config.Load([]string{"--config=" + file, "--config-dir=" + drops})
	for _, want := range []string{"config.yaml:4: evictionHard[nodefs.available]", `10.conf:3: evictionHard[imagefs.available] (--eviction-hard): "more"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The error for bad input names every bad value with its path and the remedy.
func TestBad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		args       []string
		want       []string
	}{
		{"unknown field", "evictionHrad: {}\nauthentication: {webhook: {enable: true}}\n", nil,
			[]string{`unknown field evictionHrad (did you mean "evictionHard"?)`, `unknown field authentication.webhook.enable (did you mean "authentication.webhook.enabled"?)`}},
		{"repeated field", "maxPods: 1\nmaxPods: 2\n", nil, []string{"c.yaml:4: maxPods: duplicate field, it is in line 3 already; remove one"}},
		{"wrong type", "maxPods: many\n", nil, []string{`maxPods: expected a whole number, found the string "many"`}},
		{"wrong duration", "syncFrequency: 5 minutes\n", nil, []string{"is no duration: write a string with a number and its unit"}},
		{"not a map", "- a\n", nil, []string{"not valid YAML"}},
		{"sysctls of no namespace", "allowedUnsafeSysctls: [\"vm.*\"]\n", nil, []string{"allowedUnsafeSysctls (--allowed-unsafe-sysctls)", "are not known to be namespaced"}},
		{"all sysctls", "allowedUnsafeSysctls: [\"*\"]\n", nil, []string{"allowedUnsafeSysctls (--allowed-unsafe-sysctls)"}},
		{"no pattern", "allowedUnsafeSysctls: [\"net.*.x\"]\n", nil, []string{"is not the name of a sysctl, nor a prefix that ends in *"}},
		{"values", "port: 99999\nimageGCLowThresholdPercent: 90\ncgroupDriver: systemctl\nkubeReserved: {cpu: lots, gpu: \"1\"}\n", nil, []string{
			"port (--port): 99999: use 1 to 65535",
			"imageGCLowThresholdPercent (--image-gc-low-threshold): 90: must be less than imageGCHighThresholdPercent (85)",
			`cgroupDriver (--cgroup-driver): "systemctl": use one of cgroupfs, systemd`,
			"kubeReserved (--kube-reserved): cpu=lots: write a quantity",
			"kubeReserved (--kube-reserved): gpu: cannot be reserved",
		}},
		{"flag value", "", []string{"--max-pods=-1", "--node-ip=nowhere", "--container-runtime-endpoint=tcp://x"}, []string{
			"maxPods (--max-pods): -1: must not be negative", `--node-ip: "nowhere" is not an IP address`, "write unix:///run/containerd/containerd.sock"}},
		{"unknown flag", "", []string{"--max-podz=1"}, []string{"unknown flag: --max-podz"}},
		{"argument", "", []string{"run"}, []string{`unexpected argument "run"`}},
		{"taint", "", []string{"--register-with-taints=a=b"}, []string{`taint "a=b" has no effect: write key=value:NoSchedule`}},
		{"label", "", []string{"--node-labels=kubernetes.io/x=y"}, []string{"--node-labels: kubernetes.io/x: a node may not set"}},
		{"gate", "featureGates: {NoSuch: true, NodeLogQuery: false}\n", []string{"--feature-gates=ImageVolumes=true"}, []string{
			"featureGates.NoSuch", `featureGates.ImageVolumes (--feature-gates): Kubernetes v1.36.3 has no such gate (did you mean "ImageVolume"?)`}},
		{"eviction", "evictionHard: {memory.availabel: 5%, nodefs.available: 200%}\nevictionSoft: {memory.available: 1Gi}\n", nil, []string{
			`signal "memory.availabel" (did you mean "memory.available"?)`, `evictionHard[nodefs.available] (--eviction-hard): "200%"`, "also set evictionSoftGracePeriod[memory.available]"}},
		{"allowlist", "preloadedImagesVerificationAllowlist: [a]\n", nil, []string{
			"preloadedImagesVerificationAllowlist: [a]: needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"}},
		{"allowlist pattern", "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [\"reg.example.com/*\", \"a:1\"]\n", nil, []string{
			`preloadedImagesVerificationAllowlist: [reg.example.com/* a:1]: pattern "a:1": remove the tag and the digest: a`}},
		{"allowlist and gate", "preloadedImagesVerificationAllowlist: [a]\n", []string{"--feature-gates=KubeletEnsureSecretPulledImages=false"}, []string{
			"preloadedImagesVerificationAllowlist: [a]: needs the feature gate KubeletEnsureSecretPulledImages"}},
		{"pull credentials policy", "imagePullCredentialsVerificationPolicy: Sometimes\n", nil, []string{
			`imagePullCredentialsVerificationPolicy: "Sometimes": use one of NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify`}},
		{"bootstrap alone", "", []string{"--bootstrap-kubeconfig=x"}, []string{"also give --kubeconfig"}},
		{"locked gate", "maxPods: 10\nfeatureGates:\n  NoSuch: true\n", []string{"--feature-gates=NoSuchEither=true"}, []string{
			"c.yaml:5: featureGates.NoSuch (--feature-gates): Kubernetes", "\nfeatureGates.NoSuchEither (--feature-gates): Kubernetes"}},
		{"simulated in the file", "containerRuntimeEndpoint: \"simulated://?cpus=3\"\n", nil, []string{"c.yaml:3: containerRuntimeEndpoint"}},
		{"thresholds by flag", "evictionHard: {memory.available: 5%}\n", []string{"--eviction-hard=memory.available<much"}, []string{
			"invalid configuration:\nevictionHard[memory.available] (--eviction-hard): \"much\""}},
		{"numbers of CPUs", "reservedSystemCPUs: 0-9999999999\n", nil, []string{"reservedSystemCPUs (--reserved-cpus): \"0-9999999999\": write a list of CPUs"}},
		{"credentials", "staticPodURL: ftp://user:secret@host/\n", nil, []string{"staticPodURL (--manifest-url): \"ftp://REDACTED@host/\": write"}},
		{"credentials without a scheme", "staticPodURL: user:secret@host/\n", nil, []string{"staticPodURL (--manifest-url): \"REDACTED\": write"}},
		{"an excluding flag", "", []string{"--allow-privileged=False"}, []string{"--allow-privileged: Kubernetes has removed this flag"}},
		{"simulated", "", []string{"--container-runtime-endpoint=simulated://?cpus=3"}, []string{`"cpus" is not known`}},
		{"enforce", "enforceNodeAllocatable: [none, pods, kube-reserved]\n", nil, []string{"none must stand alone", "also set kubeReservedCgroup"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--config", write(t, t.TempDir(), "c.yaml", c.body)}, c.args...)
			_, _, err := config.Load(args)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, _, err := config.Load([]string{"--config", dir + "/none"}); err == nil || !strings.Contains(err.Error(), dir+"/none") {
		t.Errorf("missing file: %v", err)
	}
	if _, _, err := config.Load([]string{"--config-dir", dir + "/none"}); err == nil || !strings.Contains(err.Error(), "--config-dir") {
		t.Errorf("missing directory: %v", err)
	}
	if err := syscall.Mkfifo(dir+"/10.conf", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.Load([]string{"--config-dir", dir}); err == nil || !strings.Contains(err.Error(), "10.conf is not a regular file") {
		t.Errorf("drop-in that is a named pipe: %v", err)
	}
	if _, _, err := config.Load([]string{"--wherry-config", "/dev/zero"}); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("a file without an end: %v", err)
	}
	if err := os.WriteFile(dir+"/empty", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.Load([]string{"--config", dir + "/empty"}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("empty file: %v", err)
	}
}

// A field without effect causes one notice if its value would have an effect in upstream's kubelet.
func TestNotHonoured(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "c.json", "cpuManagerPolicy: static\nmemoryManagerPolicy: None\nhairpinMode: promiscuous-bridge\n")
	_, notices := load(t, "--config", file, "--topology-manager-scope=pod", "--housekeeping-interval=10s", "--lock-file=/x")
	want := "not honoured --housekeeping-interval: a flag of the cAdvisor inside Kubernetes' kubelet; statistics are read on demand here: remove it\n" +
		"not honoured --lock-file: no effect: the agent locks its root directory\n" +
		"not honoured cpuManagerPolicy: static has no effect: CPUs are shared by all containers: there is no static CPU policy\n" +
		"not honoured topologyManagerScope (--topology-manager-scope): pod has no effect: topology hints are not used\n"
	if diff := cmp.Diff(want, noticed(withoutDefaults(t, notices))); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// One notice at the start names the features that the defaults of Kubernetes turn on and that the agent lacks. If the user turns
// a missing feature off, the notice does not name it. If the user turns it on explicitly, it gets a notice of its own.
func TestMissingDefaultsAreReportedOnce(t *testing.T) {
	t.Parallel()
	about := func(notices []config.Notice, word string) (lines []string) {
		for _, n := range notices {
			if strings.Contains(n.Subject+n.Message, word) {
				lines = append(lines, n.Subject)
			}
		}
		return lines
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name, body, word string
		want             []string
	}{
		{"default", "", "volumePluginDir", nil},
		{"asked for", "volumePluginDir: /plugins\n", "volumePluginDir", []string{"volumePluginDir"}},
		{"honoured", "", "evictionHard", nil},
		{"thresholds of nothing", "evictionHard: {memory.available: 0%}\n", "evictionHard", nil},
		{"gate that is on", "", "DRAExtendedResource", []string{"defaults of Kubernetes"}},
		{"gate switched off", "featureGates: {DRAExtendedResource: false}\n", "DRAExtendedResource", nil},
		{"alpha gate", "", "QOSReserved", nil},
		{"alpha gate asked for", "featureGates: {QOSReserved: true}\n", "QOSReserved", []string{"featureGates.QOSReserved"}},
		{"all alpha gates", "featureGates: {AllAlpha: true}\n", "QOSReserved", []string{"defaults of Kubernetes"}},
		{"a simulated machine", "containerRuntimeEndpoint: simulated://\n", "evictionHard", nil},
	} {
		_, notices := load(t, "--config", write(t, dir, c.name+".yaml", c.body))
		if diff := cmp.Diff(c.want, about(notices, c.word)); diff != "" {
			t.Errorf("%s: lines about %s (-want +got):\n%s", c.name, c.word, diff)
		}
	}
}

// A file with another kind or apiVersion is an error that names the right ones.
func TestKindOfTheFile(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"apiVersion: v1\nkind: KubeletConfiguration\n", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod\n"} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(head), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := config.Load([]string{"--config", file}); err == nil || !strings.Contains(err.Error(), "must be kubelet.config.k8s.io/v1beta1 and KubeletConfiguration") {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// A field that needs a feature gate is an error while the gate is off.
func TestGates(t *testing.T) {
	t.Parallel()
	const byPriority = "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 10}]\n"
	for _, c := range [][2]string{
		{"CustomCPUCFSQuotaPeriod", "cpuCFSQuotaPeriod: 50ms\n"},
		{"RotateKubeletServerCertificate", "serverTLSBootstrap: true\n"},
		{"KubeletCrashLoopBackOffMax", "crashLoopBackOff: {maxContainerRestartPeriod: 30s}\n"},
		{"KubeletEnsureSecretPulledImages", "imagePullCredentialsVerificationPolicy: AlwaysVerify\n"},
		{"GracefulNodeShutdown", "shutdownGracePeriod: 10s\n"},
		{"GracefulNodeShutdown", byPriority},
		{"GracefulNodeShutdownBasedOnPodPriority", byPriority},
	} {
		gate, body := c[0], c[1]
		file := write(t, t.TempDir(), "c.yaml", body)
		load(t, "--config", file)
		_, _, err := config.Load([]string{"--config", file, "--feature-gates=" + gate + "=false"})
		if err == nil || !strings.Contains(err.Error(), "needs the feature gate "+gate) {
			t.Errorf("%s off: %v", gate, err)
		}
	}
}

// withoutDefaults removes the notice about the defaults of Kubernetes.
func withoutDefaults(t *testing.T, notices []config.Notice) (others []config.Notice) {
	t.Helper()
	for _, n := range notices {
		if n.Subject != "defaults of Kubernetes" {
			others = append(others, n)
		}
	}
	if len(others) != len(notices)-1 {
		t.Errorf("%d lines speak of Kubernetes' defaults, want one", len(notices)-len(others))
	}
	return others
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]error{
		"--help": config.ErrHelp, "-h": config.ErrHelp, "--version": config.ErrVersion, "--version=true": config.ErrVersion, "--version=raw": config.ErrVersionRaw,
	} {
		if _, _, err := config.Load([]string{flag}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", flag, err, want)
		}
	}
	if usage := config.Usage(); !strings.Contains(usage, "--container-runtime-endpoint") || strings.Contains(usage, "--network-plugin") {
		t.Errorf("usage lists a hidden flag, or lacks a visible one:\n%s", usage)
	}
}

// Without a configuration file, the safe defaults of the file format apply, not the older, open defaults of upstream's flags.
func TestSafeWithoutFile(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t)
	kc := cfg.Kubelet
	if *kc.Authentication.Anonymous.Enabled || kc.Authorization.Mode != "Webhook" || kc.ReadOnlyPort != 0 || !cfg.Standalone() {
		t.Errorf("not safe: %+v", kc)
	}
	if diff := cmp.Diff("100Mi", kc.EvictionHard["memory.available"]); diff != "" {
		t.Error(diff)
	}
}

func TestSimulated(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "--container-runtime-endpoint=simulated://")
	if n := cfg.Simulated; n == nil || n.CPU.String() != "100" || n.Memory.String() != "32Gi" || n.Pods != 110 {
		t.Errorf("default shape: %+v", n)
	}
	cfg, _ = load(t, "--container-runtime-endpoint=simulated://?cpu=2500m&memory=1Gi&pods=7")
	if n := cfg.Simulated; n.CPU.String() != "2500m" || n.Memory.String() != "1Gi" || n.Pods != 7 {
		t.Errorf("shape: %+v", n)
	}
	if err := cfg.CheckHost(config.HostFacts{Swap: []string{"/dev/sda2"}}); err != nil {
		t.Errorf("a simulated node checks the machine: %v", err)
	}
}

func TestNodeName(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "--hostname-override= Node-1 ")
	if name, err := cfg.NodeName("other"); err != nil || name != "node-1" {
		t.Errorf("%q, %v", name, err)
	}
	cfg, _ = load(t)
	if name, err := cfg.NodeName("Host.Example"); err != nil || name != "host.example" {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := cfg.NodeName(" "); err == nil {
		t.Error("no error for no name")
	}
}

// An empty argument is used as the value of the flag before it. If that flag has a value already, the empty argument is ignored.
func TestEmptyWords(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "--hostname-override", "", "--max-pods=7", " ", "--allow-privileged=True")
	if cfg.HostnameOverride != "" || cfg.Kubelet.MaxPods != 7 {
		t.Errorf("hostname-override is %q, max-pods %d", cfg.HostnameOverride, cfg.Kubelet.MaxPods)
	}
}

// If a drop-in sets mergeDefaultEvictionSettings, the default thresholds are added to those of the file.
func TestMergedEvictionDefaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "c.yaml", "evictionHard: {memory.available: 5%}\n")
	write(t, dir, "conf.d/10.conf", "mergeDefaultEvictionSettings: true\n")
	cfg, _ := load(t, "--config="+file, "--config-dir="+filepath.Join(dir, "conf.d"))
	if got := cfg.Kubelet.EvictionHard; got["memory.available"] != "5%" || got["nodefs.available"] != "10%" {
		t.Errorf("evictionHard is %v", got)
	}
}

// Large whole numbers pass through the merge of drop-ins unchanged.
func TestLargeNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "c.yaml", "maxOpenFiles: 9007199254740993\n")
	write(t, dir, "conf.d/10.conf", "maxPods: 7\n")
	cfg, _ := load(t, "--config="+file, "--config-dir="+filepath.Join(dir, "conf.d"))
	if got := cfg.Kubelet.MaxOpenFiles; got != 9007199254740993 {
		t.Errorf("maxOpenFiles is %d", got)
	}
}
