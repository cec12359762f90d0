package configs

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// some returns its arguments as a []any.
func some[T any](values ...T) (all []any) {
	for _, v := range values {
		all = append(all, v)
	}
	return all
}

// triedOfType has the values that cases try for fields of a type.
var triedOfType = map[reflect.Type][]any{
	reflect.TypeFor[v1.RestartPolicy]():                           some(v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever),
	reflect.TypeFor[v1.DNSPolicy]():                               some(v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone),
	reflect.TypeFor[v1.PullPolicy]():                              some(v1.PullAlways, v1.PullIfNotPresent, v1.PullNever),
	reflect.TypeFor[v1.TerminationMessagePolicy]():                some(v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError),
	reflect.TypeFor[v1.Protocol]():                                some(v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP),
	reflect.TypeFor[v1.URIScheme]():                               some(v1.URISchemeHTTP, v1.URISchemeHTTPS),
	reflect.TypeFor[v1.MountPropagationMode]():                    some(v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional),
	reflect.TypeFor[v1.RecursiveReadOnlyMode]():                   some(v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled),
	reflect.TypeFor[v1.SeccompProfileType]():                      some(v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeUnconfined, v1.SeccompProfileTypeLocalhost),
	reflect.TypeFor[v1.AppArmorProfileType]():                     some(v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeUnconfined, v1.AppArmorProfileTypeLocalhost),
	reflect.TypeFor[v1.ProcMountType]():                           some(v1.DefaultProcMount, v1.UnmaskedProcMount),
	reflect.TypeFor[v1.SupplementalGroupsPolicy]():                some(v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict),
	reflect.TypeFor[v1.PodFSGroupChangePolicy]():                  some(v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch),
	reflect.TypeFor[v1.PodSELinuxChangePolicy]():                  some(v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption),
	reflect.TypeFor[v1.StorageMedium]():                           some(v1.StorageMediumDefault, v1.StorageMediumMemory),
	reflect.TypeFor[v1.HostPathType]():                            some(v1.HostPathUnset, v1.HostPathDirectory, v1.HostPathDirectoryOrCreate),
	reflect.TypeFor[v1.Signal]():                                  some(v1.SIGTERM, v1.SIGUSR1, v1.SIGKILL, v1.SIGRTMIN, v1.SIGRTMINPLUS3, v1.SIGRTMAXMINUS7),
	reflect.TypeFor[v1.ContainerRestartPolicy]():                  some(v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever),
	reflect.TypeFor[v1.ContainerRestartRuleAction]():              some(v1.ContainerRestartRuleActionRestart),
	reflect.TypeFor[v1.ContainerRestartRuleOnExitCodesOperator](): some(v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
	reflect.TypeFor[v1.ResourceResizeRestartPolicy]():             some(v1.NotRequired, v1.RestartContainer),
	reflect.TypeFor[v1.OSName]():                                  some(v1.Linux),
	reflect.TypeFor[v1.PreemptionPolicy]():                        some(v1.PreemptLowerPriority, v1.PreemptNever),
	reflect.TypeFor[v1.TolerationOperator]():                      some(v1.TolerationOpEqual),
	reflect.TypeFor[v1.TaintEffect]():                             some(v1.TaintEffectNoSchedule),
	reflect.TypeFor[intstr.IntOrString]():                         some(intstr.FromInt32(9090), intstr.FromString("web")),
	reflect.TypeFor[[]v1.Capability](): some([]v1.Capability{"ALL"}, []v1.Capability{"NET_ADMIN", "SYS_TIME"}, []v1.Capability{"CAP_KILL"},
		[]v1.Capability{"ALL", "CHOWN"}),
	reflect.TypeFor[v1.ResourceList](): some(amounts("cpu", "250m"), amounts("memory", "64Mi"), amounts("cpu", "1", "memory", "128Mi"), amounts("cpu", "1m"),
		amounts("cpu", "1500m", "memory", "1Gi", "ephemeral-storage", "1Gi"), amounts("cpu", "100m", "memory", "100Mi", "hugepages-2Mi", "4Mi"), amounts("cpu", "0"),
		amounts("cpu", "300"), amounts("memory", "1")),
	reflect.TypeFor[resource.Quantity]():                some(resource.MustParse("1"), resource.MustParse("1Mi"), resource.MustParse("1m"), resource.MustParse("16Mi")),
	reflect.TypeFor[metav1.LabelSelector]():             some(metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}),
	reflect.TypeFor[v1.Affinity]():                      some(v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}),
	reflect.TypeFor[v1.WindowsSecurityContextOptions](): some(v1.WindowsSecurityContextOptions{RunAsUserName: new("user")}),
	reflect.TypeFor[[]v1.PodSchedulingGate]():           some([]v1.PodSchedulingGate{}),
	reflect.TypeFor[[]v1.TopologySpreadConstraint](): some([]v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}),
}

// mixed contains values for commands, arguments and environment variables. Some contain references to a variable, such as $(NAME).
var mixed = []string{"plain", "$(KUBERNETES_SERVICE_HOST)", "$$(KUBERNETES_SERVICE_HOST)", "$(NOT_THERE) $(VARIABLE_0)", "$", "$(", "a$$b$(VARIABLE_1)c"}

// tried has the values to try for single fields. A key is the name of the Go type and of the field.
var tried = map[string][]any{
	"PodSpec.Hostname":                      some("host-1", strings.Repeat("a", 63)),
	"PodSpec.Subdomain":                     some("sub"),
	"PodSpec.HostnameOverride":              some("over.example.com", "short"),
	"PodSpec.NodeName":                      some(nodeName),
	"PodSpec.ServiceAccountName":            some("builder"),
	"PodSpec.PriorityClassName":             some("system-node-critical", "ordinary"),
	"PodSpec.Priority":                      some[int32](2000001000, 2000000000, 100, -5),
	"PodSpec.RuntimeClassName":              some("special", "plain"),
	"PodSpec.NodeSelector":                  some(map[string]string{"zone": "a"}),
	"PodSpec.Overhead":                      some(amounts("cpu", "10m", "memory", "32Mi"), amounts("memory", "1Mi")),
	"PodSpec.TerminationGracePeriodSeconds": some[int64](0, 1, 90),
	"PodSpec.ActiveDeadlineSeconds":         some[int64](100),
	"PodDNSConfig.Nameservers":              some([]string{"192.0.2.1"}, []string{"192.0.2.1", "2001:db8::1", "192.0.2.2"}),
	"PodDNSConfig.Searches":                 some([]string{"one.example"}, []string{"one.example", "svc.cluster.local", "one.example", "two.example."}),
	"PodDNSConfigOption.Name":               some("ndots", "edns0", "timeout"),
	"PodDNSConfigOption.Value":              some("3", ""),
	"HostAlias.IP":                          some("192.0.2.7", "2001:db8::7"),
	"HostAlias.Hostnames":                   some([]string{"one", "two.example"}),
	"LocalObjectReference.Name":             some("settings", "passwords", "missing"),
	"SecretVolumeSource.SecretName":         some("passwords"),
	"Sysctl.Name":                           some("net.ipv4.ip_unprivileged_port_start", "net/ipv4/tcp_syncookies", "kernel.shm_rmid_forced", "net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
	"Sysctl.Value":                          some("0", "1024 65535"),
	"PodSecurityContext.SupplementalGroups": some([]int64{4000}, []int64{5000, 4000, 4000}),
	"PodSecurityContext.FSGroup":            some[int64](0, 3000),
	"PodSecurityContext.RunAsUser":          some[int64](0, 1000), "PodSecurityContext.RunAsGroup": some[int64](0, 2000),
	"SecurityContext.RunAsUser": some[int64](0, 1001), "SecurityContext.RunAsGroup": some[int64](0, 2001),
	"SeccompProfile.LocalhostProfile": some("profiles/one.json"), "AppArmorProfile.LocalhostProfile": some("k8s-one"),
	"SELinuxOptions.User": some("system_u"), "SELinuxOptions.Role": some("system_r"), "SELinuxOptions.Type": some("spc_t"), "SELinuxOptions.Level": some("s0:c1,c2"),
	"Container.Name": some("web", strings.Repeat("x", 63)), "EphemeralContainerCommon.Name": some("shell"),
	"Container.Image": some(imageWeb, imageOfUID, imageOfName, imageOfFiles), "EphemeralContainerCommon.Image": some(imageOfUID, imageOfName),
	"Container.Command": some([]string{"/bin/server"}, mixed), "EphemeralContainerCommon.Command": some(mixed),
	"Container.Args": some([]string{"--flag"}, mixed), "EphemeralContainerCommon.Args": some(mixed),
	"Container.WorkingDir":             some("/work", "relative", "$(VARIABLE_0)"),
	"Container.TerminationMessagePath": some("/dev/end", "relative/end", "/scratch-0/end"),
	"ContainerPort.Name":               some("web", "dns"), "ContainerPort.HostPort": some[int32](18080), "ContainerPort.ContainerPort": some[int32](80, 8443, 65535),
	"ContainerPort.HostIP":           some("127.0.0.1", "::1", "0.0.0.0"),
	"EnvVar.Name":                    some("VARIABLE_0", "VARIABLE_1", "KUBERNETES_SERVICE_HOST", "FRONT_END_PORT", "with-dash.and.dot", "colour"),
	"EnvVar.Value":                   some(mixed...),
	"EnvFromSource.Prefix":           some("P_", "9", "with-dash."),
	"ObjectFieldSelector.APIVersion": some("v1"),
	"ObjectFieldSelector.FieldPath": some("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
		"metadata.labels['app']", "metadata.labels['missing']", "metadata.annotations['example.com/note']", "spec.nodeName", "spec.serviceAccountName",
		"status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"),
	"ResourceFieldSelector.Resource": some("limits.cpu", "limits.memory", "requests.cpu", "requests.memory", "limits.ephemeral-storage", "requests.ephemeral-storage",
		"limits.hugepages-2Mi", "requests.hugepages-2Mi"),
	"ResourceFieldSelector.ContainerName": some("main", "more-0"),
	"ConfigMapKeySelector.Key":            some("size", "empty", "missing"), "SecretKeySelector.Key": some("key-file", "missing"),
	"FileKeySelector.Key": some("SECOND", "MISSING"), "FileKeySelector.Path": some(envFile, "missing.env"), "FileKeySelector.VolumeName": some("scratch"),
	"Volume.Name": some("data"), "VolumeMount.Name": some("scratch", "volume-1", "data"),
	"VolumeMount.MountPath": some("/data", "relative", "/etc/hosts", "/data/", "/dev/termination-log", "/a/../b"),
	"VolumeMount.SubPath":   some("part", "a/b", "./part"), "VolumeMount.SubPathExpr": some("$(VARIABLE_0)x", "plain", "$$(X)"),
	"HostPathVolumeSource.Path": some("/tmp", "/tmp/", "/var/../tmp"),
	"KeyToPath.Key":             some("colour", "user"), "KeyToPath.Path": some("nested/path"), "KeyToPath.Mode": some[int32](0o400, 0o777),
	"DownwardAPIVolumeFile.Path": some("nested/name"), "DownwardAPIVolumeFile.Mode": some[int32](0o400),
	"ConfigMapVolumeSource.DefaultMode": some[int32](0o400), "SecretVolumeSource.DefaultMode": some[int32](0o400),
	"DownwardAPIVolumeSource.DefaultMode": some[int32](0o400), "ProjectedVolumeSource.DefaultMode": some[int32](0o400),
	"ServiceAccountTokenProjection.Audience": some("vault"), "ServiceAccountTokenProjection.ExpirationSeconds": some[int64](600), "ServiceAccountTokenProjection.Path": some("vault-token"),
	"ImageVolumeSource.Reference": some(imageOfFiles, "registry.example/plain"),
	"ExecAction.Command":          some([]string{"/bin/check", "$(VARIABLE_0)"}),
	"HTTPGetAction.Path":          some("/healthy", ""), "HTTPGetAction.Host": some("192.0.2.9"), "TCPSocketAction.Host": some("192.0.2.9"),
	"GRPCAction.Port": some[int32](9090), "GRPCAction.Service": some("health"), "HTTPHeader.Value": some("yes"),
	"EphemeralContainer.TargetContainerName": some("main"),
	"ContainerRestartRuleOnExitCodes.Values": some([]int32{1, 42}),
	"PodReadinessGate.ConditionType":         some(v1.PodConditionType("example.com/ready")),
	"ContainerResizePolicy.ResourceName":     some(v1.ResourceCPU, v1.ResourceMemory),
	"Toleration.Key":                         some("example.com/taint"), "Toleration.TolerationSeconds": some[int64](5),
}

// left lists the fields that no case sets, and why. A prefix that begins with [] matches anywhere in a path.
var left = []struct{ prefix, why string }{
	{"resourceClaims", "devices need device plugins or DRA drivers, which Wherry does not support"},
	{"[].resources.claims", "see resourceClaims"},
	{"resources.claims", "see resourceClaims"},
	{"[].volumeDevices", "block volumes need claims, which the comparison does not have"},
	{"volumes[].nfs", "the comparison has no NFS server"},
	{"volumes[].iscsi", "the comparison has no iSCSI target"},
	{"volumes[].fc", "the comparison has no Fibre Channel disk"},
	{"volumes[].projected.sources[].clusterTrustBundle", "its feature gate is off by default"},
	{"volumes[].projected.sources[].podCertificate", "its feature gate is off by default"},
	{"[].readinessProbe.terminationGracePeriodSeconds", "the API server accepts no value"},
	{"schedulingGates", "no node gets a pod that has scheduling gates"},
	{"schedulingGroup", "only the scheduler uses it"},
	{"volumes[].persistentVolumeClaim", noClaims},
	{"volumes[].ephemeral", noClaims},
	{"volumes[].csi", noClaims},
	{"volumes[].awsElasticBlockStore", translated},
	{"volumes[].azureDisk", translated},
	{"volumes[].azureFile", translated},
	{"volumes[].cinder", translated},
	{"volumes[].gcePersistentDisk", translated},
	{"volumes[].portworxVolume", translated},
	{"volumes[].vsphereVolume", translated},
}

const (
	noClaims   = "needs a claim or a CSI driver, which the comparison does not have"
	translated = "needs the CSI driver that has replaced this kind, which the comparison does not have"
)

// made lists the fields of a volume that cases may set: its name, and the kinds of volumes that Wherry supports and that need no
// PersistentVolume or CSI driver.
var made = []string{"name", "emptyDir", "hostPath", "configMap", "secret", "downwardAPI", "projected", "image"}

// leftOut returns the reason why no case sets the field of this path; "" if cases set it.
func leftOut(path string) string {
	for _, l := range left {
		if strings.HasPrefix(path, l.prefix) || strings.HasPrefix(l.prefix, "[]") && strings.Contains(path, l.prefix) {
			return l.why
		}
	}
	if kind, ok := strings.CutPrefix(path, "volumes[]."); ok {
		kind, _, _ = strings.Cut(kind, ".")
		if !slices.Contains(made, kind) {
			return "Wherry does not support this kind of volume"
		}
	}
	return ""
}
