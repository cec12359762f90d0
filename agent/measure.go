package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/pleg"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/syncloop"
)

// observed gives the statistics and metrics access to the pod cache.
type observed struct{ a *Agent }

// Observed returns the newest inspection of every pod. Before the pod cache is built there is none.
func (o observed) Observed() []*pod.Observed {
	p := o.a.inspects.Load()
	if p == nil {
		return nil
	}
	return p.List()
}

// measuredProbes runs the probes. When a pod is gone, it also removes the metrics of its probes, and what is remembered of its events and of
// its measurements.
type measuredProbes struct {
	syncloop.Prober
	probed *stats.Probed
	events *events
	partly *partly
}

// Forget ends the probes of a pod that is gone.
func (m measuredProbes) Forget(uid types.UID) {
	m.Prober.Forget(uid)
	m.partly.forget(uid)
	m.probed.Forget(uid)
	m.events.recorder.Forget(uid)
}

// buildMetrics makes the agent's own metrics.
func (a *Agent) buildMetrics() error {
	catalogue := stats.MetricsConfig{
		Registerer: a.deps.Metrics, NodeName: a.cfg.NodeName, Version: config.KubernetesVersion, Pods: observed{a}, Process: a.deps.ProcessMetrics,
	}
	if a.pulls != nil {
		catalogue.PullRecords = a.pullRecords.Count
	}
	catalogue.Tally, catalogue.PersistentVolumes = a.tally, a.persistentVolumes
	catalogue.ImagePulls = a.countImagePulls
	catalogue.Gates = func() (out []stats.Gate) {
		for _, g := range gates(&a.cfg).List() {
			out = append(out, stats.Gate(g))
		}
		return out
	}
	if a.deps.Machine.real {
		catalogue.CgroupVersion, catalogue.Volumes = a.cgroupVersion, a.volumeCounts
		if gates(&a.cfg).Enabled("MemoryQoS") {
			catalogue.MemoryKept = a.memoryKept
		}
	}
	catalogue.ContainerLogs = a.logSizes
	if a.deps.Client != nil {
		catalogue.Startup = a.startupTimes()
		if gates(&a.cfg).Enabled("PodCertificateRequest") {
			catalogue.PodCertificates = a.certificateCounts
		}
	}
	var err error
	if a.metrics, err = stats.NewMetrics(catalogue); err != nil {
		return err
	}
	calls := stats.APIConfig{Registerer: a.deps.Metrics}
	if c := a.opened.client; c != nil {
		calls.ClientEnds = func() time.Time {
			if cert := c.Certificate(); cert != nil {
				return cert.NotAfter
			}
			return time.Time{}
		}
	}
	if s := a.opened.server; s != nil {
		calls.ServingEnds = s.Ends
	}
	if a.calls, err = stats.NewAPICalls(calls); err != nil {
		return err
	}
	a.probed = stats.NewProbed()
	return nil
}

// volumeCounts counts the volumes of the pods, unless a simulated machine only checks them.
func (a *Agent) volumeCounts() (out []stats.VolumeCount) {
	if !a.built.Load() {
		return nil
	}
	volumes, ok := a.platform.volumes.(*volume.Volumes)
	if !ok {
		return nil
	}
	pods := slices.DeleteFunc(slices.Clone(a.pods.List()), func(p *v1.Pod) bool {
		return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	})
	for _, c := range volumes.Counts(pods) {
		out = append(out, stats.VolumeCount(c))
	}
	return out
}

// logSizes returns the last measurements of the logs of containers.
func (a *Agent) logSizes() []stats.ContainerLogs {
	if !a.built.Load() {
		return nil
	}
	return a.stats.LogSizes()
}

// certificateCounts counts the certificates that the volumes of pods project.
func (a *Agent) certificateCounts() (out []stats.PodCertificates) {
	if !a.built.Load() || a.platform.certified == nil {
		return nil
	}
	for _, c := range a.platform.certified() {
		out = append(out, stats.PodCertificates(c))
	}
	return out
}

// buildStats wires the statistics that are measured on request.
func (a *Agent) buildStats() error {
	hung := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "wherry_hung_pods", Help: "Pods for which the runtime does not answer"},
		func() float64 { return float64(len(a.pleg.Hung(pleg.HungFor))) })
	if err := a.deps.Metrics.Register(hung); err != nil {
		return fmt.Errorf("register wherry_hung_pods: %w", err)
	}
	a.partly = &partly{log: a.log, present: func(uid types.UID) bool { return a.loop.Worker(uid) != nil }}
	if err := a.deps.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "wherry_pods_measured_in_part", Help: "Pods whose data on disk could be measured in part only when it was last measured for an eviction or for the pod's limits",
	}, a.partly.count)); err != nil {
		return fmt.Errorf("register wherry_pods_measured_in_part: %w", err)
	}
	cfg := stats.Config{
		NodeName: a.cfg.NodeName, Version: a.cfg.KubeletVersion, Pods: observed{a}, Runtime: scheduledStats{a.deps.Runtime, a.work}, Images: a.deps.Images,
		RootDir: a.cfg.RootDir, LogDir: a.cfg.Kubelet.PodLogsDir, Log: a.log, Machine: a.statsMachine(),
		Clock: a.clock(), Volumes: volumeUsage{a},
	}
	if a.deps.Machine.real {
		cfg.Disk, cfg.HostRoot, cfg.PodsGroup = hostfs.Host{}, "/", a.podsGroup()
		cfg.SystemGroups = a.systemGroups()
	} else {
		cfg.Disk, cfg.RootDir = simulatedDisk{machine: a.deps.Machine}, "/"
		if !a.deps.Machine.shape.Logs {
			cfg.LogDir = ""
		}
	}
	var err error
	a.stats, err = stats.New(cfg)
	return err
}

// systemGroups returns the cgroups outside the cgroup of the pods for which the node reports statistics: the agent's own
// cgroup and the configured cgroups. The agent moves no process into a configured cgroup. If the agent runs in the root
// cgroup, the node reports no statistics of the agent.
func (a *Agent) systemGroups() map[string]stats.SystemGroup {
	groups := map[string]stats.SystemGroup{}
	if own, err := cgroup.Own("/proc/self/cgroup"); err != nil {
		a.log.Debug("no statistics of the agent itself", "err", err)
	} else if own != "/" {
		groups[statsapi.SystemContainerKubelet] = stats.SystemGroup{Path: own, Started: time.Now()}
	}
	for name, group := range map[string]string{statsapi.SystemContainerRuntime: a.cfg.RuntimeCgroups, statsapi.SystemContainerMisc: a.cfg.Kubelet.SystemCgroups} {
		if group = path.Clean("/" + group); group != "/" {
			groups[name] = stats.SystemGroup{Path: group}
		}
	}
	return groups
}

// podsGroup returns the cgroup of all pods.
func (a *Agent) podsGroup() string {
	if groups, ok := a.platform.cgroups.(*cgroup.Cgroups); ok {
		return groups.PodsGroup()
	}
	return ""
}

// volumeUsage measures the volumes of pods, by UID.
type volumeUsage struct{ a *Agent }

// VolumeUsage returns the usage of a pod's volumes.
func (v volumeUsage) VolumeUsage(ctx context.Context, uid types.UID) ([]stats.Volume, error) {
	p, _ := v.a.pods.Get(uid)
	if p == nil {
		return nil, nil
	}
	usage, err := v.a.platform.volumes.Usage(ctx, p)
	out := make([]stats.Volume, 0, len(usage))
	for _, u := range usage {
		out = append(out, stats.Volume{
			Name: u.Name, Ephemeral: !u.Memory, CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes,
			Inodes: u.Inodes, InodesFree: u.InodesFree, UsedBytes: u.UsedBytes, InodesUsed: u.InodesUsed, Time: u.Time,
		})
	}
	persistent, more := v.a.platform.volumes.PersistentUsage(ctx, p)
	for i := range persistent {
		out = append(out, persistentVolume(p, &persistent[i]))
	}
	return out, errors.Join(err, more)
}

func persistentVolume(p *v1.Pod, u *volume.Usage) stats.Volume {
	out := stats.Volume{
		Name: u.Name, PVCNamespace: p.Namespace, PVCName: u.Claim, CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes,
		Inodes: u.Inodes, InodesFree: u.InodesFree, UsedBytes: u.UsedBytes, InodesUsed: u.InodesUsed, Time: u.Time,
	}
	if u.Health != nil {
		out.Abnormal = &u.Health.Abnormal
	}
	return out
}

// scrapePatience is how long a scrape of the metrics waits for volumes whose first measurement hangs.
const scrapePatience = 2 * time.Second

// persistentVolumes measures the persistent volumes of all pods, for the metrics. A claim that several pods use is in the result once.
func (a *Agent) persistentVolumes() []stats.Volume {
	if !a.built.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	type claim struct{ namespace, name string }
	seen, all := map[claim]bool{}, []stats.Volume(nil)
	for _, p := range a.pods.List() {
		usage, _ := a.platform.volumes.PersistentUsage(ctx, p) // the error is ignored here, because the code for /stats/summary logs it
		for i := range usage {
			if c := (claim{p.Namespace, usage[i].Claim}); !seen[c] {
				seen[c] = true
				all = append(all, persistentVolume(p, &usage[i]))
			}
		}
	}
	return all
}

// statsMachine returns a function that returns the facts of the machine: CPUs, memory, boot time and others.
func (a *Agent) statsMachine() func() stats.Machine {
	if a.deps.Machine.real {
		proc := a.deps.Machine.proc
		m := &machineFacts{log: a.log, read: func() (stats.Machine, error) {
			f, err := proc.Facts()
			cores, sockets := proc.Topology()
			return stats.Machine{
				CPUs: f.CPUs, Cores: cores, Sockets: sockets, MemoryBytes: f.MemoryBytes, SwapBytes: f.SwapBytes, BootTime: f.BootTime, MachineID: f.MachineID,
				SystemUUID: f.SystemUUID, BootID: f.BootID, KernelVersion: f.KernelVersion, OSImage: f.OSImage,
				Tasks: proc.Tasks, MaxPID: proc.PIDMax,
			}, err
		}}
		return m.get
	}
	m := a.deps.Machine
	f, began := m.fixed(a.cfg.NodeName), time.Now()
	return func() stats.Machine {
		return stats.Machine{
			CPUs: f.Machine.CPUs, MemoryBytes: uint64(f.Machine.MemoryBytes), MachineID: f.Machine.MachineID, SystemUUID: f.Machine.SystemUUID,
			BootID: f.Machine.BootID, KernelVersion: f.Machine.KernelVersion, OSImage: f.Machine.OSImage, BootTime: began,
			Tasks: func() (int64, error) { return m.used().Processes, nil }, MaxPID: func() int64 { return f.PIDs },
			MemoryUsed: func() uint64 { return uint64(max(0, m.used().Memory)) },
		}
	}
}

// machineFacts reads the facts of the machine that do not change, and keeps them. After an error, the next call reads them
// again.
type machineFacts struct {
	read func() (stats.Machine, error)
	log  *slog.Logger

	mu    sync.Mutex
	facts stats.Machine
	known bool
	said  bool
}

func (m *machineFacts) get() stats.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known {
		return m.facts
	}
	facts, err := m.read()
	if err != nil && !m.said {
		m.log.Warn("the machine's facts are missing in the metrics; trying again at the next request", "err", err)
	}
	m.facts, m.known, m.said = facts, err == nil, err != nil
	return facts
}

// FilesUsage measures the files that the agent makes for a pod's containers.
func (v volumeUsage) FilesUsage(uid types.UID) (bytes, inodes uint64, err error) {
	u, err := v.a.platform.volumes.FilesUsage(uid)
	return u.Bytes(), u.Inodes, err
}

// podFiles returns the function that measures the files that the agent makes for containers, and shortens files that are too
// large. It returns nil on a simulated machine, which has no such files.
func (a *Agent) podFiles() func(types.UID) (volume.FilesUsage, error) {
	if !a.deps.Machine.real {
		return nil
	}
	return a.platform.volumes.BoundFiles
}

// relisted counts a relist (a listing of all pods of the runtime) in the metrics.
func (a *Agent) relisted(took time.Duration, err error) {
	if err == nil {
		a.metrics.Relisted(time.Now(), took, a.pleg.Interval())
	}
}

// storage returns the function that measures how much disk a pod uses, so that the pod can be evicted above its limit. It
// returns nil without localStorageCapacityIsolation, and on a simulated machine, which writes nothing.
func (a *Agent) storage() func(context.Context, *v1.Pod) (syncloop.StorageUse, error) {
	if !a.deps.Machine.real || !*a.cfg.Kubelet.LocalStorageCapacityIsolation {
		return nil
	}
	return func(ctx context.Context, p *v1.Pod) (syncloop.StorageUse, error) {
		volumes, err := a.platform.volumes.Usage(ctx, p)
		use := syncloop.StorageUse{Volumes: volumes, LayersApart: a.stats.LayersApart(ctx)}
		disks, containersErr := a.stats.PodDisks(ctx, p.UID)
		for _, c := range disks[p.UID].Containers {
			use.Containers = append(use.Containers, syncloop.ContainerUse{Name: c.Name, Layer: c.Layer, Logs: c.Logs})
		}
		err = errors.Join(err, disks[p.UID].Err)
		a.partly.note(p, forLimits, err)
		return use, errors.Join(err, containersErr)
	}
}
