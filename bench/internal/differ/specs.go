package differ

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// GenerateSpec makes a case whose pod has many fields and no acts. Only the configurations of its sandbox and containers are compared.
func GenerateSpec(seed uint64) *Case {
	g := generator{rand.New(rand.NewPCG(seed, 12))}
	c := &Case{Seed: seed, Kind: Spec, Plays: map[string][]Play{}, For: 8 * time.Second}
	c.Annotations = map[string]string{"example.com/note": "a note"}
	s := &c.Spec
	*s = v1.PodSpec{RestartPolicy: pick(g, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever),
		TerminationGracePeriodSeconds: new(int64(2)), AutomountServiceAccountToken: new(g.chance(20)), EnableServiceLinks: new(g.chance(50))}
	g.volumes(s)
	g.host(s)
	g.names(s)
	if g.chance(50) {
		if s.SecurityContext = g.podSecurity(); s.HostNetwork {
			s.SecurityContext.Sysctls = nil // these sysctls are not allowed with hostNetwork
		}
	}
	if g.chance(25) {
		s.PriorityClassName = pick(g, "system-node-critical", "system-cluster-critical")
	}
	guaranteed := g.chance(25)
	for i := range g.few(1, 1, 2) {
		x := g.rich(c, fmt.Sprintf("main-%d", i), guaranteed)
		if g.chance(25) {
			x.Lifecycle = &v1.Lifecycle{StopSignal: new(v1.SIGUSR1)}
			s.OS = &v1.PodOS{Name: v1.Linux}
		}
		s.Containers = append(s.Containers, x)
	}
	if g.chance(25) {
		x := g.rich(c, "side-0", guaranteed)
		x.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		s.InitContainers = append(s.InitContainers, x)
	}
	if g.chance(25) {
		x := g.rich(c, "init-0", guaranteed)
		x.ReadinessProbe = nil // an init container may have no readiness probe unless it is a sidecar
		s.InitContainers = append(s.InitContainers, x)
		c.Plays["init-0"] = []Play{{Exits: true}}
	}
	return c
}

// volumes adds random volumes to the pod.
func (g generator) volumes(s *v1.PodSpec) {
	add := func(name string, source v1.VolumeSource) {
		s.Volumes = append(s.Volumes, v1.Volume{Name: name, VolumeSource: source})
	}
	mode := func() *int32 { return pick(g, nil, new(int32(0o400)), new(int32(0o640))) }
	if g.chance(50) {
		add("scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	}
	if g.chance(30) {
		add("memory", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Mi"))}})
	}
	if g.chance(40) {
		add("config", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: rig.ConfigMap(0)}, DefaultMode: mode()}})
	}
	if g.chance(30) {
		add("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/tmp"}})
	}
	if g.chance(30) {
		add("about", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: mode(), Items: []v1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}})
	}
	if g.chance(30) {
		add("all", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: mode(), Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: rig.ConfigMap(1)}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
				{Path: "annotations", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}}}}}}})
	}
}

// host makes the pod share some of the node's namespaces.
func (g generator) host(s *v1.PodSpec) {
	s.HostNetwork = g.chance(15)
	s.HostPID = g.chance(10)
	s.HostIPC = g.chance(10)
	if !s.HostPID && g.chance(20) {
		s.ShareProcessNamespace = new(true)
	}
	if !s.HostNetwork && !s.HostPID && !s.HostIPC && g.chance(10) {
		s.HostUsers = new(false)
	}
}

// names sets the hostname, the DNS settings and the host aliases of the pod.
func (g generator) names(s *v1.PodSpec) {
	s.DNSPolicy = pick(g, "", v1.DNSClusterFirst, v1.DNSDefault, v1.DNSClusterFirstWithHostNet)
	if g.chance(30) {
		s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"},
			Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}}}
	}
	if g.chance(10) {
		s.DNSPolicy = v1.DNSNone
		s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}}
	}
	if g.chance(25) {
		s.Hostname = "host"
		s.Subdomain = pick(g, "", "sub")
		s.SetHostnameAsFQDN = pick(g, nil, new(true))
	}
	if g.chance(25) {
		s.HostAliases = []v1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"one", "two"}}}
	}
}

func (g generator) podSecurity() *v1.PodSecurityContext {
	sc := &v1.PodSecurityContext{
		RunAsUser:          pick(g, nil, new(int64(1000))),
		RunAsGroup:         pick(g, nil, new(int64(2000))),
		FSGroup:            pick(g, nil, new(int64(3000))),
		SupplementalGroups: pick(g, nil, []int64{4000, 5000}),
		SeccompProfile:     g.seccomp(),
	}
	if sc.RunAsGroup != nil && sc.RunAsUser == nil {
		sc.RunAsUser = new(int64(0))
	}
	if g.chance(25) {
		sc.SupplementalGroupsPolicy = new(pick(g, v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict))
	}
	if g.chance(20) {
		sc.Sysctls = []v1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "80"}}
	}
	if g.chance(20) {
		sc.SELinuxOptions = &v1.SELinuxOptions{Level: "s0:c1,c2"}
	}
	return sc
}

func (g generator) seccomp() *v1.SeccompProfile {
	return pick(g, nil, &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}, &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
		&v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: new("profiles/one.json")})
}

// rich returns a container with many random fields. guaranteed makes its limits equal its requests.
func (g generator) rich(c *Case, name string, guaranteed bool) v1.Container {
	x := v1.Container{Name: name, Image: image, ImagePullPolicy: v1.PullIfNotPresent}
	c.Plays[name] = []Play{{}}
	switch g.IntN(3) {
	case 0:
		x.Command = []string{"server", "$(GREETING)", "$$(GREETING)", "$(NOTHING)"}
	case 1:
		x.Args = []string{"$(ADDRESS)", "two"}
	}
	x.WorkingDir = pick(g, "", "/work")
	x.Stdin, x.TTY = g.chance(15), g.chance(15)
	x.StdinOnce = x.Stdin && g.chance(50)
	x.TerminationMessagePath = pick(g, "", "/dev/end")
	x.Env = g.environment()
	if g.chance(30) {
		x.EnvFrom = []v1.EnvFromSource{{Prefix: "C_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: rig.ConfigMap(2)}}}}
	}
	if g.chance(30) && !c.Spec.HostNetwork { // with hostNetwork the pods would compete for the node's ports
		x.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: 8080}, {ContainerPort: 53, Protocol: v1.ProtocolUDP}}
	}
	x.Resources = g.resources(guaranteed)
	if g.chance(60) {
		x.SecurityContext = g.security(c.Spec.HostUsers != nil)
	}
	for _, v := range c.Spec.Volumes {
		if !g.chance(80) {
			continue
		}
		m := v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name, ReadOnly: g.chance(30)}
		switch {
		case v.EmptyDir != nil && g.chance(30):
			m.SubPath = "part"
		case v.EmptyDir != nil && g.chance(20):
			m.SubPathExpr = "$(GREETING)"
		case m.ReadOnly && g.chance(20):
			m.RecursiveReadOnly = new(v1.RecursiveReadOnlyIfPossible)
		case v.HostPath != nil && g.chance(50):
			m.MountPropagation = new(v1.MountPropagationHostToContainer)
		}
		x.VolumeMounts = append(x.VolumeMounts, m)
	}
	if g.chance(15) {
		x.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, InitialDelaySeconds: 60}
	}
	return x
}

func (g generator) environment() (env []v1.EnvVar) {
	env = append(env, v1.EnvVar{Name: "GREETING", Value: "hello"})
	field := func(name, path string) {
		env = append(env, v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}})
	}
	if g.chance(50) {
		field("ADDRESS", "status.podIP")
		field("NODE_ADDRESS", "status.hostIP")
		field("NODE", "spec.nodeName")
		field("ACCOUNT", "spec.serviceAccountName")
		field("POD_NAMESPACE", "metadata.namespace")
		field("NOTE", "metadata.annotations['example.com/note']")
		field("ADDRESSES", "status.podIPs")
	}
	if g.chance(50) {
		for _, what := range []string{"limits.cpu", "requests.cpu", "requests.memory"} {
			env = append(env, v1.EnvVar{Name: "R_" + what, ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: what}}})
		}
	}
	if g.chance(40) {
		env = append(env, v1.EnvVar{Name: "TWICE", Value: "$(GREETING) $(GREETING) $(NOTHING) $$(X)"}, v1.EnvVar{Name: "GREETING", Value: "bye"})
	}
	if g.chance(30) {
		env = append(env, v1.EnvVar{Name: "MAYBE", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
			LocalObjectReference: v1.LocalObjectReference{Name: "absent"}, Key: "a", Optional: new(true)}}})
	}
	if g.chance(20) {
		env = append(env, v1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "192.0.2.9"})
	}
	return env
}

func (g generator) resources(guaranteed bool) (r v1.ResourceRequirements) {
	amounts := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	if guaranteed {
		r.Limits = amounts("2m", "20Mi")
		r.Requests = r.Limits.DeepCopy()
		return r
	}
	switch g.IntN(5) {
	case 0:
	case 1:
		r.Requests = amounts("3m", "10Mi")
	case 2:
		r.Requests, r.Limits = amounts("1m", "10Mi"), amounts("1500m", "40Mi")
	case 3:
		r.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("5m")}
	case 4:
		r.Requests, r.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1m")}, v1.ResourceList{v1.ResourceMemory: resource.MustParse("30Mi")}
	}
	return r
}

func (g generator) security(userNamespace bool) *v1.SecurityContext {
	sc := &v1.SecurityContext{
		ReadOnlyRootFilesystem: pick(g, nil, new(true)),
		RunAsUser:              pick(g, nil, new(int64(1001)), new(int64(0))),
		SeccompProfile:         g.seccomp(),
	}
	if sc.RunAsUser != nil && *sc.RunAsUser > 0 {
		sc.RunAsNonRoot = pick(g, nil, new(true))
		sc.RunAsGroup = pick(g, nil, new(int64(2001)))
	}
	switch {
	case g.chance(15) && !userNamespace:
		sc.Privileged, sc.SeccompProfile = new(true), nil
	case g.chance(30):
		sc.AllowPrivilegeEscalation = new(false)
		sc.Capabilities = &v1.Capabilities{Drop: []v1.Capability{"ALL"}, Add: []v1.Capability{"NET_BIND_SERVICE"}}
	case g.chance(20):
		sc.Capabilities = &v1.Capabilities{Add: []v1.Capability{"SYS_TIME"}}
	}
	if g.chance(15) && userNamespace {
		sc.ProcMount = new(v1.UnmaskedProcMount)
	}
	if g.chance(15) {
		sc.SELinuxOptions = &v1.SELinuxOptions{Type: "spc_t"}
	}
	return sc
}

// meta returns the metadata of a case's pod with this name.
func (c *Case) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: c.Annotations, Labels: map[string]string{"app": "one"}}
}
