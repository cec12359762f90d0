package crispec

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// SandboxInput is the input of Sandbox. The runtime handler is not part of it, because it is an argument of
// RunPodSandbox.
type SandboxInput struct {
	Pod     *v1.Pod
	Attempt uint32
	// Hostname is the host name in the sandbox. If it is empty, KernelHostname of the pod is used. A pod on the host's network has none.
	Hostname string
	// DNS is the result of the function DNS. With nil, the runtime uses the node's resolv.conf.
	DNS *runtimeapi.DNSConfig
	// LogDir is the pod's log directory. If it is empty, LogDir(DefaultLogRoot, pod) is used.
	LogDir       string
	CgroupParent string
	// Userns are the ID mappings of a pod with hostUsers: false.
	Userns *runtimeapi.UserNamespace
	// ExtraGroups are supplemental groups that volumes need.
	ExtraGroups []int64
	Policy      Policy
}

// Sandbox makes the configuration of a pod's sandbox. Errors are *Error.
func Sandbox(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	p := in.Pod
	hostname := in.Hostname
	if p.Spec.HostNetwork {
		hostname = ""
	} else if hostname == "" {
		var err error
		if hostname, err = KernelHostname(p, in.Policy.ClusterDomain); err != nil {
			return nil, err
		}
	}
	logDir := in.LogDir
	if logDir == "" {
		logDir = LogDir(DefaultLogRoot, p)
	}
	linux, err := in.linux()
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: in.Attempt,
		},
		Hostname:     hostname,
		LogDirectory: logDir,
		DnsConfig:    in.DNS,
		PortMappings: portMappings(p),
		Labels:       sandboxLabels(p),
		Annotations:  PodAnnotations(p),
		Linux:        linux,
	}, nil
}

// PodAnnotations returns the pod's annotations, and adds two that tools read from a sandbox: the pod's source, and the time from
// which the node knows the pod. For a pod of the API, that time is its creation, which is the same for every agent.
func PodAnnotations(p *v1.Pod) map[string]string {
	out := maps.Clone(p.Annotations)
	if out == nil {
		out = map[string]string{}
	}
	if !pod.IsStatic(p) {
		out[pod.AnnotationSource], out[pod.AnnotationSeen] = pod.SourceAPI.String(), p.CreationTimestamp.UTC().Format(time.RFC3339Nano)
	}
	return out
}

func (in *SandboxInput) linux() (*runtimeapi.LinuxPodSandboxConfig, error) {
	p := in.Pod
	ns, err := namespaces(p, in.Userns)
	if err != nil {
		return nil, err
	}
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: ns,
		Privileged:       anyPrivileged(p),
		// The pause process needs nothing that the runtime's default profile forbids.
		Seccomp: profile(runtimeapi.SecurityProfile_RuntimeDefault, ""),
	}
	var sysctls map[string]string
	if psc := p.Spec.SecurityContext; psc != nil {
		sc.SelinuxOptions = selinux(psc.SELinuxOptions)
		sc.RunAsUser, sc.RunAsGroup = int64Value(psc.RunAsUser), int64Value(psc.RunAsGroup)
		for _, s := range psc.Sysctls {
			if sysctls == nil {
				sysctls = map[string]string{}
			}
			sysctls[dotted(s.Name)] = s.Value
		}
	}
	if sc.SupplementalGroups, sc.SupplementalGroupsPolicy, err = groups(p, in.ExtraGroups); err != nil {
		return nil, sandboxErr("%w", err)
	}
	resources, overhead := SandboxResources(p, &in.Policy)
	return &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: in.CgroupParent, SecurityContext: sc, Sysctls: sysctls,
		Resources: resources, Overhead: overhead,
	}, nil
}

// dotted returns the name of a sysctl with dots as separators, as runtimes know it. The API also accepts slashes as separators. In a name
// with slashes, a dot is part of one element, such as a network device (net/ipv4/conf/eth0.1/forwarding), and becomes a slash.
func dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// namespaces returns for each kind of namespace whether the pod gets its own or uses the host's. userns is used only for a pod with
// hostUsers: false.
func namespaces(p *v1.Pod, userns *runtimeapi.UserNamespace) (*runtimeapi.NamespaceOption, error) {
	out := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Ipc: runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
	}
	if p.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		out.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(p.Spec.ShareProcessNamespace):
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	if NeedsUserns(p) {
		if p.Spec.HostNetwork || p.Spec.HostPID || p.Spec.HostIPC {
			return nil, sandboxErr("can't set `spec.hostUsers: false` together with hostNetwork, hostPID or hostIPC: " +
				"a user namespace has no rights over namespaces of the host")
		}
		if userns == nil {
			return nil, sandboxErr("can't set `spec.hostUsers: false`, this node has no user IDs to map or its runtime " +
				"does not support user namespaces")
		}
		out.UsernsOptions = userns
	}
	return out, nil
}

// UserNamespace maps the container's IDs, from 0, to the host's IDs, from first.
func UserNamespace(first, length uint32) *runtimeapi.UserNamespace {
	m := []*runtimeapi.IDMapping{{HostId: first, ContainerId: 0, Length: length}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: m, Gids: m}
}

// NeedsUserns reports whether the pod needs a user namespace of its own (hostUsers: false).
func NeedsUserns(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

func anyPrivileged(p *v1.Pod) bool {
	for c := range Containers(p) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			return true
		}
	}
	return false
}

// Containers yields all containers: init containers, containers, ephemeral containers.
func Containers(p *v1.Pod) func(yield func(*v1.Container) bool) {
	return func(yield func(*v1.Container) bool) {
		for i := range p.Spec.InitContainers {
			if !yield(&p.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i]) {
				return
			}
		}
		for i := range p.Spec.EphemeralContainers {
			if !yield((*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// The kinds of containers, as metrics name them.
const (
	KindContainer = "container"
	KindInit      = "init_container"
	KindEphemeral = "ephemeral_container"
)

// Kind returns the kind of the pod's container of this name.
func Kind(p *v1.Pod, name string) string {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return KindInit
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return KindEphemeral
		}
	}
	return KindContainer
}

// portMappings returns the ports of containers and sidecars. A port that appears twice in one container counts once: ports are
// compared by name or, if they have no name, by address family, protocol, address and numbers.
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	add := func(c *v1.Container) {
		seen := map[string]bool{}
		for _, port := range c.Ports {
			name := port.Name
			if name == "" {
				name = fmt.Sprintf("%s-%s-%s:%d:%d", family(port.HostIP), port.Protocol, port.HostIP, port.ContainerPort, port.HostPort)
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(port.Protocol), ContainerPort: port.ContainerPort,
				HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; isSidecar(p, c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return out
}

func family(ip string) string {
	a, err := netip.ParseAddr(ip)
	switch {
	case ip == "":
		return "any"
	case err == nil && a.Is6():
		return "v6"
	}
	return "v4"
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

func sandboxLabels(p *v1.Pod) map[string]string {
	out := make(map[string]string, len(p.Labels)+3)
	maps.Copy(out, p.Labels)
	out[pod.LabelPodName] = p.Name
	out[pod.LabelPodNamespace] = p.Namespace
	out[pod.LabelPodUID] = string(p.UID)
	return out
}
