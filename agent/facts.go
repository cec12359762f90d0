package agent

import (
	"bytes"
	"context"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/node/nodefacts"
	"github.com/wherry-node/wherry/internal/node/perform"
)

// nodeSettings translates configuration for package nodestatus.
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
		KubeReserved: kube, SystemReserved: system, Thresholds: thresholds,
		LocalStorageIsolation: *k.LocalStorageCapacityIsolation, MaxImages: int(*k.NodeStatusMaxImages),
		Port: cfg.Port, KubeletVersion: cfg.KubeletVersion, DeclaredFeatures: declaredFeatures(cfg),
	}
	if !*k.EnableServer {
		s.Port = 0
	}
	return s, nil
}

// declaredFeatures are those of the features that Kubernetes wants a node to declare (status.declaredFeatures; package
// nodedeclaredfeatures of component-helpers names them) that Wherry has: the scheduler sends a pod that needs one to no
// other node, and the API server passes WebSockets on as they are.
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

// decidePolicy translates configuration for package decide.
func decidePolicy(cfg *Config) decide.Policy {
	p := decide.DefaultPolicy()
	if m := cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil && m.Duration > 0 {
		p.BackOffMax = m.Duration
		p.BackOffInitial = min(p.BackOffInitial, m.Duration)
	}
	p.DeadContainersPerContainer, p.DeadContainerAge = cfg.DeadContainers, cfg.DeadContainerAge
	return p
}

func maxPulls(cfg *Config) int {
	k := &cfg.Kubelet
	switch {
	case k.SerializeImagePulls != nil && *k.SerializeImagePulls:
		return 1
	case k.MaxParallelImagePulls != nil:
		return int(*k.MaxParallelImagePulls)
	}
	return 0
}

func specHash(p *v1.Pod, c *v1.Container) string { return crispec.SpecHash(p, c) }

// factsCache keeps what is read from files for a few seconds: every container start asks. The lock is not held while files
// are read: one start reads, the others go on with what was read before, and read for themselves where there is nothing.
type factsCache struct {
	mu       sync.Mutex
	at       time.Time
	reading  bool
	facts    perform.Facts
	resolver nodefacts.Resolver
}

// last returns what was read last, if that is good enough, or else tells the caller to read.
func (c *factsCache) last() (f perform.Facts, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := !c.at.IsZero()
	if known && (c.reading || time.Since(c.at) < factsFor) {
		return c.facts, true
	}
	c.reading = true
	return perform.Facts{}, false
}

func (c *factsCache) put(f perform.Facts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts, c.at, c.reading = f, time.Now(), false
}

// factsFor is how long files of the host are good enough for new containers.
const factsFor = 5 * time.Second

// performFacts is what messages to the runtime depend on besides the pod.
func (a *Agent) performFacts() perform.Facts {
	if f, ok := a.facts.last(); ok {
		return f
	}
	k := &a.cfg.Kubelet
	a.refreshNode(context.Background())
	node := a.nodeObject()
	f := perform.Facts{
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
		f.HostResolv = a.facts.resolver.Read()
	}
	a.facts.put(f)
	return f
}

func (a *Agent) specPolicy(node *v1.Node) crispec.Policy {
	k := &a.cfg.Kubelet
	p := crispec.DefaultPolicy()
	p.CPUCFSQuota, p.CPUCFSPeriod = *k.CPUCFSQuota, k.CPUCFSQuotaPeriod.Duration
	p.SeccompDefault = k.SeccompDefault != nil && *k.SeccompDefault
	p.SeccompRoot = a.cfg.RootDir + "/seccomp"
	p.ClusterDomain = k.ClusterDomain
	p.MemoryCapacity = node.Status.Capacity.Memory().Value()
	if groups, ok := a.ground.cgroups.(*cgroup.Cgroups); ok {
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
	p.MaskedPaths = a.maskedPaths()
	if k.SingleProcessOOMKill != nil {
		p.SingleProcessOOMKill = *k.SingleProcessOOMKill
	}
	return p
}

// nodeObject is the Node as the API has it, or as it would be registered: with nothing in it where neither is known yet
// (refreshNode). It does no IO.
func (a *Agent) nodeObject() *v1.Node {
	if a.heartbeat != nil {
		if n := a.heartbeat.Node(); n != nil {
			return n
		}
	}
	if n := a.node.Node(); n != nil {
		return n
	}
	return &v1.Node{}
}

// refreshNode measures what nodeObject says where the API does not. It may take seconds (the node's address may have to be
// asked of a name server): whoever calls it holds no lock.
func (a *Agent) refreshNode(ctx context.Context) {
	if a.heartbeat == nil || a.heartbeat.Node() == nil {
		a.node.Refresh(ctx)
	}
}

// hostFacts are facts of the host that pods are judged by and that stay as they are: they are read once, at start.
type hostFacts struct {
	appArmor bool
	swap     bool // of containers can be limited
}

func (a *Agent) readHost() {
	if !a.deps.Machine.real {
		return
	}
	a.host.appArmor = bytes.HasPrefix(readFile("/sys/module/apparmor/parameters/enabled"), []byte("Y"))
	if groups, ok := a.ground.cgroups.(*cgroup.Cgroups); ok {
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

// hostIPs is asked in every turn of a pod. It does no IO.
func (a *Agent) hostIPs() []string { return internalIPs(a.nodeObject()) }

// runtimeName stands before container IDs.
func (a *Agent) runtimeName() string { return a.runtime.Facts().Name }

// podsMemory is what all pods together may use.
func (a *Agent) podsMemory() int64 {
	m, err := a.ground.machine.Facts()
	if err != nil {
		return 0
	}
	capacity := nodestatus.Capacity(&a.settings, &nodestatus.Facts{Machine: m})
	groups, ok := a.ground.cgroups.(*cgroup.Cgroups)
	if !ok {
		return capacity.Memory().Value()
	}
	allocatable := groups.Allocatable(capacity)
	return allocatable.Memory().Value()
}

// imageDir is where the runtime keeps images; "" while it has not said.
func (a *Agent) imageDir() string { return a.runtime.Store().Dir }

// nodeKnownWithin is how long admission waits for the Node as the API has it.
const nodeKnownWithin = 30 * time.Second

// nodeKnown: a pod must not be refused for labels that the Node has, but that an agent which has just begun has not
// read yet. Where there is no Node, the one that would be registered stands for it. Nor must a pod take the room of a
// static pod whose manifest has not been read yet.
func (a *Agent) nodeKnown() bool {
	known := a.heartbeat == nil || a.heartbeat.Node() != nil
	return known && a.pods.Answered(pod.SourceFile) || time.Since(a.began) > nodeKnownWithin
}

// nodeSince: where there is no Node in the API, nothing newer can be read.
func (a *Agent) nodeSince(t time.Time) bool {
	return a.heartbeat == nil || a.heartbeat.NodeSince(t)
}

// admit judges a pod against those that the node holds. It is called under the lock of all admissions and does no IO: what
// it looks at was read before (readHost, refreshNode).
func (a *Agent) admit(p *v1.Pod, others []*v1.Pod) admit.Result {
	in := admit.Input{
		Pod: p, Others: others, Node: a.nodeObject(), AllowedUnsafeSysctls: a.cfg.Kubelet.AllowedUnsafeSysctls,
		AppArmor: a.host.appArmor,
	}
	if m, known := a.node.Machine(); known {
		in.Kernel = m.KernelVersion
	}
	pr := a.node.Pressure()
	for cond, st := range map[v1.NodeConditionType]pressure.Status{
		v1.NodeMemoryPressure: pr.Memory, v1.NodeDiskPressure: pr.Disk, v1.NodePIDPressure: pr.PID,
	} {
		if st == pressure.True {
			in.Pressure = append(in.Pressure, cond)
		}
	}
	return admit.Admit(in)
}

// resize judges what a pod asks for beyond what it has against the pods that the node holds. Like admit, it does no IO.
func (a *Agent) resize(p, allocated *v1.Pod, others []*v1.Pod) admit.ResizeResult {
	k := &a.cfg.Kubelet
	return admit.Resize(admit.ResizeInput{
		Pod: p, Allocated: allocated, Others: others, Node: a.nodeObject(), LimitedSwap: a.host.swap && k.MemorySwap.SwapBehavior == "LimitedSwap",
		PinnedCPUs: k.CPUManagerPolicy == "static", PinnedMemory: k.MemoryManagerPolicy == "Static",
		Gates: resizeGates(&a.cfg),
	})
}

// recursiveReadOnly reports whether the pod's runtime handler can mount read-only recursively. The handler of a
// runtime class usually bears its name; where it does not, the status says that mounts are not recursive.
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

// runtimeHandlers are the names of the handlers that the runtime says it has.
func (a *Agent) runtimeHandlers() []string {
	var names []string
	for _, h := range a.runtime.Facts().Status.GetRuntimeHandlers() {
		names = append(names, h.GetName())
	}
	return names
}

// maskedPaths are the files by which a container could see or disturb the heat of each CPU.
func (a *Agent) maskedPaths() []string {
	if !a.deps.Machine.real {
		return nil
	}
	paths, err := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	if err != nil { // the pattern is constant
		return nil
	}
	return paths
}

// updateQOS gives the classes of pods the weight of their pods.
func (a *Agent) updateQOS(ctx context.Context, pods []*v1.Pod) {
	if err := a.ground.cgroups.UpdateQOS(ctx, pods); err != nil {
		a.log.Warn("weights of the pod classes not updated", "err", err)
	}
}
