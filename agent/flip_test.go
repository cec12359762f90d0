package agent_test

import (
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/cli/launch"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// flips maps each field of KubeletConfiguration that Wherry implements to two configurations that differ only in this field. $DIR stands
// for a directory with certificates.
var flips = map[string]struct{ from, to string }{
	"staticPodPath":                              {"", "staticPodPath: /manifests"},
	"fileCheckFrequency":                         {"staticPodPath: /manifests", "staticPodPath: /manifests\nfileCheckFrequency: 7s"},
	"staticPodURL":                               {"", "staticPodURL: http://127.0.0.1:1/"},
	"staticPodURLHeader":                         {"staticPodURL: http://127.0.0.1:1/", "staticPodURL: http://127.0.0.1:1/\nstaticPodURLHeader: {X-Flip: [one]}"},
	"httpCheckFrequency":                         {"staticPodURL: http://127.0.0.1:1/", "staticPodURL: http://127.0.0.1:1/\nhttpCheckFrequency: 7s"},
	"configMapAndSecretChangeDetectionStrategy":  {"", "configMapAndSecretChangeDetectionStrategy: Get"},
	"enableServer":                               {"", "enableServer: false"},
	"address":                                    {"", "address: 127.0.0.1"},
	"port":                                       {"", "port: 10777"},
	"readOnlyPort":                               {"", "readOnlyPort: 10778"},
	"tlsCertFile":                                {"tlsCertFile: $DIR/a.crt\ntlsPrivateKeyFile: $DIR/a.key", "tlsCertFile: $DIR/b.crt\ntlsPrivateKeyFile: $DIR/a.key"},
	"tlsPrivateKeyFile":                          {"tlsCertFile: $DIR/a.crt\ntlsPrivateKeyFile: $DIR/a.key", "tlsCertFile: $DIR/a.crt\ntlsPrivateKeyFile: $DIR/b.key"},
	"tlsCipherSuites":                            {"", "tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]"},
	"tlsMinVersion":                              {"", "tlsMinVersion: VersionTLS13"},
	"tlsCurvePreferences":                        {"", "tlsCurvePreferences: [29]"},
	"rotateCertificates":                         {"", "rotateCertificates: true"},
	"serverTLSBootstrap":                         {"", "serverTLSBootstrap: true"},
	"authentication.x509.clientCAFile":           {"", "authentication: {x509: {clientCAFile: $DIR/a.crt}}"},
	"authentication.webhook.enabled":             {"", "authentication: {webhook: {enabled: false}}"},
	"authentication.webhook.cacheTTL":            {"", "authentication: {webhook: {cacheTTL: 7s}}"},
	"authentication.anonymous.enabled":           {"", "authentication: {anonymous: {enabled: true}}"},
	"authorization.mode":                         {"", "authorization: {mode: AlwaysAllow}"},
	"authorization.webhook.cacheAuthorizedTTL":   {"", "authorization: {webhook: {cacheAuthorizedTTL: 7s}}"},
	"authorization.webhook.cacheUnauthorizedTTL": {"", "authorization: {webhook: {cacheUnauthorizedTTL: 7s}}"},
	"enableDebuggingHandlers":                    {"", "enableDebuggingHandlers: false"},
	"enableSystemLogHandler":                     {"", "enableSystemLogHandler: false"},
	"enableSystemLogQuery":                       {"", "enableSystemLogQuery: true"},
	"enableProfilingHandler":                     {"", "enableProfilingHandler: false"},
	"enableDebugFlagsHandler":                    {"", "enableDebugFlagsHandler: false"},
	"healthzPort":                                {"", "healthzPort: 10779"},
	"healthzBindAddress":                         {"", "healthzBindAddress: 127.0.0.2"},
	"streamingConnectionIdleTimeout":             {"", "streamingConnectionIdleTimeout: 7s"},
	"registryPullQPS":                            {"", "registryPullQPS: 7"},
	"registryBurst":                              {"", "registryBurst: 7"},
	"eventRecordQPS":                             {"", "eventRecordQPS: 7"},
	"eventBurst":                                 {"", "eventBurst: 7"},
	"contentType":                                {"", "contentType: application/json"},
	"kubeAPIQPS":                                 {"", "kubeAPIQPS: 7"},
	"kubeAPIBurst":                               {"", "kubeAPIBurst: 7"},
	"registerNode":                               {"", "registerNode: false"},
	"registerWithTaints":                         {"", "registerWithTaints: [{key: a, effect: NoSchedule}]"},
	"providerID":                                 {"", "providerID: a://b"},
	"nodeStatusUpdateFrequency":                  {"nodeStatusReportFrequency: 5m", "nodeStatusReportFrequency: 5m\nnodeStatusUpdateFrequency: 7s"},
	"nodeStatusReportFrequency":                  {"", "nodeStatusReportFrequency: 7m"},
	"nodeLeaseDurationSeconds":                   {"", "nodeLeaseDurationSeconds: 77"},
	"nodeStatusMaxImages":                        {"", "nodeStatusMaxImages: 7"},
	"maxPods":                                    {"", "maxPods: 7"},
	"podsPerCore":                                {"", "podsPerCore: 7"},
	"podCIDR":                                    {"", "podCIDR: 10.7.0.0/16"},
	"imagePullCredentialsVerificationPolicy":     {"", "imagePullCredentialsVerificationPolicy: AlwaysVerify"},
	"preloadedImagesVerificationAllowlist":       {"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages", "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [example.org/a]"},
	"serializeImagePulls":                        {"", "serializeImagePulls: false"},
	"maxParallelImagePulls":                      {"serializeImagePulls: false", "serializeImagePulls: false\nmaxParallelImagePulls: 7"},
	"cgroupRoot":                                 {"", "cgroupRoot: /flip"},
	"cgroupsPerQOS":                              {"enforceNodeAllocatable: []", "enforceNodeAllocatable: []\ncgroupsPerQOS: false"},
	"cgroupDriver":                               {"", "cgroupDriver: systemd"},
	"singleProcessOOMKill":                       {"", "singleProcessOOMKill: true"},
	"podPidsLimit":                               {"", "podPidsLimit: 77"},
	"cpuCFSQuota":                                {"", "cpuCFSQuota: false"},
	"cpuCFSQuotaPeriod":                          {"", "cpuCFSQuotaPeriod: 50ms"},
	"systemReserved":                             {"", "systemReserved: {memory: 77Mi}"},
	"kubeReserved":                               {"", "kubeReserved: {memory: 77Mi}"},
	"reservedSystemCPUs":                         {"", "reservedSystemCPUs: \"0\""},
	"systemReservedCgroup":                       {"systemReservedCgroup: /before\nenforceNodeAllocatable: [pods, system-reserved]", "systemReservedCgroup: /flip\nenforceNodeAllocatable: [pods, system-reserved]"},
	"kubeReservedCgroup":                         {"kubeReservedCgroup: /before\nenforceNodeAllocatable: [pods, kube-reserved]", "kubeReservedCgroup: /flip\nenforceNodeAllocatable: [pods, kube-reserved]"},
	"enforceNodeAllocatable":                     {"", "enforceNodeAllocatable: []"},
	"memorySwap.swapBehavior":                    {"", "memorySwap: {swapBehavior: LimitedSwap}"},
	"memoryThrottlingFactor":                     {"featureGates: {MemoryQoS: true}", "featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.7"},
	"memoryReservationPolicy":                    {"featureGates: {MemoryQoS: true}", "featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation"},
	"localStorageCapacityIsolation":              {"", "localStorageCapacityIsolation: false"},
	"evictionHard":                               {"", "evictionHard: {memory.available: 77Mi}"},
	"evictionSoft":                               {"evictionSoft: {memory.available: 200Mi}\nevictionSoftGracePeriod: {memory.available: 7s}", "evictionSoft: {memory.available: 300Mi}\nevictionSoftGracePeriod: {memory.available: 7s}"},
	"evictionSoftGracePeriod":                    {"evictionSoft: {memory.available: 200Mi}\nevictionSoftGracePeriod: {memory.available: 7s}", "evictionSoft: {memory.available: 200Mi}\nevictionSoftGracePeriod: {memory.available: 8s}"},
	"evictionPressureTransitionPeriod":           {"", "evictionPressureTransitionPeriod: 7s"},
	"evictionMaxPodGracePeriod":                  {"", "evictionMaxPodGracePeriod: 7"},
	"evictionMinimumReclaim":                     {"", "evictionMinimumReclaim: {memory.available: 7Mi}"},
	"imageMinimumGCAge":                          {"", "imageMinimumGCAge: 7s"},
	"imageMaximumGCAge":                          {"", "imageMaximumGCAge: 7h"},
	"imageGCHighThresholdPercent":                {"", "imageGCHighThresholdPercent: 87"},
	"imageGCLowThresholdPercent":                 {"", "imageGCLowThresholdPercent: 77"},
	"mergeDefaultEvictionSettings":               {"evictionHard: {pid.available: 7%}", "evictionHard: {pid.available: 7%}\nmergeDefaultEvictionSettings: true"},
	"podLogsDir":                                 {"", "podLogsDir: /flip"},
	"clusterDomain":                              {"", "clusterDomain: flip.local"},
	"clusterDNS":                                 {"", "clusterDNS: [10.7.7.7]"},
	"resolvConf":                                 {"", "resolvConf: /flip"},
	"allowedUnsafeSysctls":                       {"", "allowedUnsafeSysctls: [net.core.somaxconn]"},
	"seccompDefault":                             {"", "seccompDefault: true"},
	"containerLogMaxSize":                        {"", "containerLogMaxSize: 7Mi"},
	"containerLogMaxFiles":                       {"", "containerLogMaxFiles: 7"},
	"containerLogMaxWorkers":                     {"", "containerLogMaxWorkers: 7"},
	"containerLogMonitorInterval":                {"", "containerLogMonitorInterval: 7s"},
	"crashLoopBackOff.maxContainerRestartPeriod": {"", "crashLoopBackOff: {maxContainerRestartPeriod: 7s}"},
	"userNamespaces.idsPerPod":                   {"", "userNamespaces: {idsPerPod: 131072}"},
	"containerRuntimeEndpoint":                   {"", "containerRuntimeEndpoint: unix:///flip"},
	"imageServiceEndpoint":                       {"", "imageServiceEndpoint: unix:///flip"},
	"runtimeRequestTimeout":                      {"", "runtimeRequestTimeout: 7s"},
	"failSwapOn":                                 {"", "failSwapOn: false"},
	"failCgroupV1":                               {"", "failCgroupV1: false"},
	"oomScoreAdj":                                {"", "oomScoreAdj: 7"},
	"maxOpenFiles":                               {"", "maxOpenFiles: 7"},
	"featureGates":                               {"", "featureGates: {NodeDeclaredFeatures: false}"},
	"makeIPTablesUtilChains":                     {"", "makeIPTablesUtilChains: false"},
	"logging.format":                             {"", "logging: {format: json}"},
	"logging.verbosity":                          {"", "logging: {verbosity: 7}"},
}

// launched prepares an agent with a configuration and returns a dump of its content. The agent does not run.
func launched(t *testing.T, dir, body string) string {
	t.Helper()
	a, free := prepared(t, configured(t, dir, body), body)
	defer free()
	return dumped(a)
}

// configured returns the configuration that an agent reads from a KubeletConfiguration file with this body.
func configured(t *testing.T, dir, body string) agent.Config {
	t.Helper()
	file := filepath.Join(dir, "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + strings.ReplaceAll(body, "$DIR", dir) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load([]string{"--config", file, "--kubeconfig=" + filepath.Join(dir, "kubeconfig"), "--cert-dir=" + dir, "--root-dir=" + dir, "--hostname-override=flip"})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	c, err := launch.AgentConfig(cfg, "flip")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prepared returns an agent that is built, but does not run.
func prepared(t *testing.T, c agent.Config, body string) (*agent.Agent, func()) {
	t.Helper()
	deps := agent.Deps{Machine: agent.RealMachine(), Log: slog.New(slog.DiscardHandler), ProcessMetrics: true}
	a, err := agent.New(c, deps)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	free, err := a.Prepare(t.Context(), nowhere{})
	if err != nil {
		free()
		t.Fatalf("%s: %v", body, err)
	}
	return a, free
}

// dumped returns a text with the values of all fields of an agent, except of the types in skip.
func dumped(a *agent.Agent) string {
	d := &dumper{seen: map[uintptr]bool{}, skip: []string{"context", "google.golang.org/grpc/internal/grpcsync", "agent.Config", "v1beta1.KubeletConfiguration", "config.Config", "slog.Logger", "prometheus.Registry", "timestamppb.Timestamp", "x509.CertPool", "time.Time", "time.Location"}}
	d.value("opened", reflect.ValueOf(a.Opened()))
	d.value("agent", reflect.ValueOf(a))
	return d.out.String()
}

// nowhere is a listener that no client can reach.
type nowhere struct{ net.Listener }

// Each field of KubeletConfiguration that package config lists as implemented has an effect. The test changes each of these fields. Then
// the prepared agent must differ, or the list must name the tests of the field's effect. So the test fails if nothing reads the field.
func TestHonouredFieldsReachTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agent.WriteIdentity(t, dir)
	unstable := map[string]bool{} // lines of the dump that differ from run to run: random numbers, times and counters
	usual := launched(t, dir, "")
	for range 4 { // several runs, because a random byte is the same in two runs once in 256 times
		maps.Copy(unstable, changes(usual, launched(t, dir, "")))
	}
	for path, tests := range config.Honoured() {
		flip, ok := flips[path]
		if !ok {
			if len(tests) == 0 {
				t.Errorf("%s: add another value to flips, or name the test of its effect in the table", path)
			}
			continue
		}
		changed := changes(launched(t, dir, flip.from), launched(t, dir, flip.to))
		maps.DeleteFunc(changed, func(path string, _ bool) bool { return unstable[path] })
		if len(changed) == 0 && len(tests) == 0 {
			t.Errorf("%s changes nothing in the node: nothing reads the field, or the table lacks a test of its effect", path)
		}
	}
}

// changes returns the lines in which two dumps differ.
func changes(before, after string) map[string]bool {
	places := map[string]bool{}
	was, is := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(before) {
		was[line] = true
	}
	for line := range strings.Lines(after) {
		is[line] = true
		if !was[line] {
			place, _, _ := strings.Cut(line, " ")
			places[place] = true
		}
	}
	for line := range was {
		if !is[line] {
			place, _, _ := strings.Cut(line, " ")
			places[place] = true
		}
	}
	return places
}
