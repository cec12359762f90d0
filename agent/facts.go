package agent

import (
	"bytes"
	"context"
	"net/netip"
	"path/filepath"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/core/shutdown"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/node/perform"
)

// nodeSettings converts the configuration for package nodestatus.
func nodeSettings(cfg *Config, m *Machine) (nodestatus.Settings, error) {
	k := &cfg.Kubelet
	kube, system, err := nodestatus.ParseReserved(k.KubeReserved, k.SystemReserved, k.ReservedSystemCPUs)
	if err != nil {
		return nodestatus.Settings{}, err
	}
	thresholds, err := pressure.Parse(pressure.ParseInput{
		Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGracePeriod: k.EvictionSoftGracePeriod,
		MinimumReclaim: k.EvictionMinimumReclaim, EnforceNodeAllocatable: k.EnforceNodeAllocatable,
	})
	if err != nil {
		return nodestatus.Settings{}, err
	}
	if err := nodestatus.ValidateLabels(cfg.NodeLabels); err != nil {
		return nodestatus.Settings{}, err
	}
	s := nodestatus.Settings{
		Name: cfg.NodeName, Hostname: cfg.Hostname, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Labels: cfg.NodeLabels, Taints: k.RegisterWithTaints, ProviderID: k.ProviderID,
		ExternalCloudProvider: cfg.CloudProvider == "external", ControllerAttachDetach: *k.EnableControllerAttachDetach,
		NodeIPs: cfg.NodeIPs, TrustNodeIPs: !m.real, MaxPods: int(k.MaxPods), PodsPerCore: int(k.PodsPerCore),
		KubeReserved: kube, SystemReserved: system, Thresholds: thresholds, AllocatableIgnoresEviction: cfg.AllocatableIgnoresEviction,
		LocalStorageIsolation: *k.LocalStorageCapacityIsolation, MaxImages: int(*k.NodeStatusMaxImages),
		Port: cfg.Port, KubeletVersion: cfg.KubeletVersion, DeclaredFeatures: declaredFeatures(cfg),
	}
	if !*k.EnableServer {
		s.Port = 0
	}
	return s, nil
}

// declaredFeatures returns the features that the node declares in status.declaredFeatures: features that Kubernetes names (package
// nodedeclaredfeatures of component-helpers) and that Wherry implements. kube-scheduler sends a pod that needs such a feature only to a
// node that declares it. One of them concerns WebSockets: if a node declares it, the API server passes WebSocket connections on to the
// node unchanged.
func declaredFeatures(cfg *Config) (names []string) {
	gates := gates(cfg)
	if !gates.Enabled("NodeDeclaredFeatures") {
		return nil
	}
	for _, name := range []string{
		"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
	} {
		if gates.Enabled(name) {
			names = append(names, name)
		}
	}
	return names
}

// decidePolicy converts the configuration for package decide.
func decidePolicy(cfg *Config, k *kubelet.KubeletConfiguration) *decide.Policy {
	p := decide.DefaultPolicy()
	if m := k.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil && m.Duration > 0 {
		p.BackOffMax = m.Duration
		p.BackOffInitial = min(p.BackOffInitial, m.Duration)
	}
	p.DeadContainersPerContainer, p.DeadContainerAge = *cfg.DeadContainers, cfg.DeadContainerAge
	return &p
}

func maxPulls(k *kubelet.KubeletConfiguration) int {
	switch {
	case k.SerializeImagePulls != nil && *k.SerializeImagePulls:
		return 1
	case k.MaxParallelImagePulls != nil:
		return int(*k.MaxParallelImagePulls)
	}
	return 0
}

func specHash(p *v1.Pod, c *v1.Container) string { return crispec.SpecHash(p, c) }

// resolvConf returns the file that the DNS configuration of pods is based on; "": none.
func (a *Agent) resolvConf(k *kubelet.KubeletConfiguration) string {
	if !a.deps.Machine.real || k.ResolverConfig == nil {
		return ""
	}
	return *k.ResolverConfig
}

// performFacts returns those facts of the node that the requests to the runtime contain.
func (a *Agent) performFacts() perform.Facts {
	f, ticket, ok := a.facts.Last()
	if ok {
		return f
	}
	k := a.kubelet()
	a.refreshNode(context.Background())
	node := a.nodeObject()
	f = perform.Facts{
		NodeName: a.cfg.NodeName, HostIPs: internalIPs(node), Allocatable: node.Status.Allocatable,
		ClusterDNS: k.ClusterDNS, LogRoot: k.PodLogsDir, Spec: a.specPolicy(node), RecursiveReadOnly: map[string]bool{}, UserNamespaces: map[string]bool{},
	}
	rt := a.runtime.Facts()
	f.RuntimeName, f.RuntimeVersion = rt.Name, rt.Version
	for _, h := range rt.Status.GetRuntimeHandlers() {
		f.RecursiveReadOnly[h.GetName()] = h.GetFeatures().GetRecursiveReadOnlyMounts()
		f.UserNamespaces[h.GetName()] = h.GetFeatures().GetUserNamespaces()
	}
	if a.deps.Machine.real {
		f.NodeHosts = readFile("/etc/hosts")
		f.HostResolv, f.HostResolvErr = a.resolver.Read()
	}
	a.facts.Put(ticket, f)
	return f
}

func (a *Agent) specPolicy(node *v1.Node) crispec.Policy {
	k := a.kubelet()
	p := crispec.DefaultPolicy()
	p.CPUCFSQuota, p.CPUCFSPeriod = *k.CPUCFSQuota, k.CPUCFSQuotaPeriod.Duration
	p.SeccompDefault = k.SeccompDefault != nil && *k.SeccompDefault
	p.SeccompRoot = a.cfg.RootDir + "/seccomp"
	p.ClusterDomain = k.ClusterDomain
	p.MemoryCapacity = node.Status.Capacity.Memory().Value()
	if groups, ok := a.platform.cgroups.(*cgroup.Cgroups); ok {
		if v2, err := groups.V2(); err == nil {
			p.CgroupV2 = v2
		}
		if sizes, err := groups.HugePageSizes(); err == nil {
			p.HugePageSizes = sizes
		}
		if swap, err := groups.SwapController(); err == nil {
			p.SwapController = swap
		}
	}
	if m, err := a.node.ReadMachine(); err == nil {
		p.SwapCapacity = m.SwapBytes
	}
	p.LimitedSwap = k.MemorySwap.SwapBehavior == "LimitedSwap"
	if gates(&a.cfg).Enabled("MemoryQoS") {
		p.MemoryThrottling, p.MemoryReservation = *k.MemoryThrottlingFactor, k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy
		p.MemoryAllocatable = node.Status.Allocatable.Memory().Value()
	}
	p.MaskedPaths = a.maskedPaths()
	if k.SingleProcessOOMKill != nil {
		p.SingleProcessOOMKill = *k.SingleProcessOOMKill
	}
	return p
}

// nodeObject returns the Node that the agent has read from the API. If there is none yet, it returns the Node that was recorded on disk
// and with which the node started offline, or else the Node that the agent would register. If the agent has none of the three (see
// refreshNode), nodeObject returns an empty Node. It does no IO.
func (a *Agent) nodeObject() *v1.Node {
	measured := a.node.Node() // before the heartbeat is asked: once that has a Node, this one may be gone
	if a.heartbeat != nil {
		if n := a.heartbeat.Node(); n != nil {
			return n
		}
	}
	if n := a.offline.node(measured); n != nil {
		return n
	}
	if measured != nil {
		return measured
	}
	return &v1.Node{}
}

// refreshNode measures the node for nodeObject if the agent has no Node from the API. This may take seconds, for example if
// a name server must resolve the node's address, so callers must hold no lock.
func (a *Agent) refreshNode(ctx context.Context) {
	if a.heartbeat == nil || a.heartbeat.Node() == nil {
		a.node.Refresh(ctx)
	}
}

// hostFacts are facts of the host that admission needs. They do not change and are read once, at the start.
type hostFacts struct {
	appArmor bool
	swap     bool // swap of containers can be limited
}

func (a *Agent) readHost() {
	if !a.deps.Machine.real {
		return
	}
	a.host.appArmor = bytes.HasPrefix(readFile("/sys/module/apparmor/parameters/enabled"), []byte("Y"))
	if groups, ok := a.platform.cgroups.(*cgroup.Cgroups); ok {
		swap, err := groups.SwapController()
		a.host.swap = err == nil && swap
	}
}

func internalIPs(n *v1.Node) []string {
	var out []string
	for _, addr := range n.Status.Addresses {
		if addr.Type == v1.NodeInternalIP {
			if _, err := netip.ParseAddr(addr.Address); err == nil {
				out = append(out, addr.Address)
			}
		}
	}
	return out
}

// hostIPs returns the node's internal addresses. Every turn of a pod calls it, and it does no IO.
func (a *Agent) hostIPs() []string { return internalIPs(a.nodeObject()) }

// runtimeName returns the runtime's name, which is the prefix of container IDs.
func (a *Agent) runtimeName() string { return a.runtime.Facts().Name }

// imageDir returns the directory where the runtime keeps images; "": not known yet.
func (a *Agent) imageDir() string { return a.runtime.Store().Dir }

// nodeKnownWithin is how long the admission of pods that are not static waits for the Node from the API.
const nodeKnownWithin = 30 * time.Second

// nodeKnown reports whether admission may decide about pods now. A new agent must not refuse a pod because of labels of the Node that it
// has not read yet. If there is still no Node after nodeKnownWithin, admission uses the Node that would be registered. nodeKnown is also
// false until the manifests of static pods have been read, so that no other pod gets the resources that a static pod needs.
func (a *Agent) nodeKnown() bool {
	known := a.heartbeat == nil || a.heartbeat.Node() != nil || a.offline.node(nil) != nil
	return known && a.pods.Answered(pod.SourceFile) || time.Since(a.began) > nodeKnownWithin
}

// nodeSince reports whether the Node was read after t. It is also true for an agent without
// an API server, because such an agent never reads a Node.
func (a *Agent) nodeSince(t time.Time) bool {
	return a.heartbeat == nil || a.heartbeat.NodeSince(t)
}

// admit decides whether the node accepts a pod in addition to the pods that it has (others). It is called with the admission lock held and
// does no IO: readHost and refreshNode read the facts earlier.
func (a *Agent) admit(p *v1.Pod, others []*v1.Pod) admit.Result {
	if a.goesDown() {
		return admit.Result{Reason: shutdown.ReasonRefused, Message: shutdown.MessageRefused, Passing: true}
	}
	in := admit.Input{
		Pod: p, Others: others, Node: a.nodeObject(), AllowedUnsafeSysctls: a.kubelet().AllowedUnsafeSysctls,
		AppArmor: a.host.appArmor,
	}
	if m, known := a.node.Machine(); known {
		in.Kernel = m.KernelVersion
	}
	pr := a.evictor.Newest()
	in.Pressure = pr.True()
	return admit.Admit(in)
}

// resize decides whether the node has the additional resources that a pod requests. Like admit, it does no IO.
func (a *Agent) resize(p, allocated *v1.Pod, others []*v1.Pod) admit.ResizeResult {
	k := a.kubelet()
	return admit.Resize(admit.ResizeInput{
		Pod: p, Allocated: allocated, Others: others, Node: a.nodeObject(), LimitedSwap: a.host.swap && k.MemorySwap.SwapBehavior == "LimitedSwap",
		PinnedCPUs: k.CPUManagerPolicy == "static", PinnedMemory: k.MemoryManagerPolicy == "Static",
		Gates: resizeGates(&a.cfg),
	})
}

// recursiveReadOnly reports whether the pod's runtime handler supports recursive read-only mounts. Usually the handler has the
// name of the runtime class. If it has another name, the result is false.
func (a *Agent) recursiveReadOnly(p *v1.Pod) bool {
	handler := ""
	if p.Spec.RuntimeClassName != nil {
		handler = *p.Spec.RuntimeClassName
	}
	for _, h := range a.runtime.Facts().Status.GetRuntimeHandlers() {
		if h.GetName() == handler {
			return h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return false
}

// runtimeHandlers returns the names of the handlers that the runtime reports.
func (a *Agent) runtimeHandlers() []string {
	var names []string
	for _, h := range a.runtime.Facts().Status.GetRuntimeHandlers() {
		names = append(names, h.GetName())
	}
	return names
}

// maskedPaths returns the files through which a container could read or disturb the thermal state of each CPU.
func (a *Agent) maskedPaths() []string {
	if !a.deps.Machine.real {
		return nil
	}
	paths, err := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	if err != nil { // cannot happen: the pattern is constant
		return nil
	}
	return paths
}

// updateQOS sets the CPU weights of the cgroups of QoS classes, and the memory that the kernel keeps for them, from the requests of the pods.
// It also sets the limits of the cgroups above those of pods, if they could not be set before.
func (a *Agent) updateQOS(ctx context.Context, pods []*v1.Pod) {
	a.platform.enforcement.again(ctx, time.Now())
	if err := a.platform.cgroups.UpdateQOS(ctx, pods); err != nil {
		a.log.Warn("limits of the pod classes not updated", "err", err)
	}
}
