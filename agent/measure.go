package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
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

// observed is what runs, for those who measure it.
type observed struct{ a *Agent }

// Observed returns the newest inspection of every pod.
func (o observed) Observed() []*pod.Observed { return o.a.pleg.List() }

// measuredProbes drops the measurements of a pod with its probes.
type measuredProbes struct {
	syncloop.Prober
	probed *stats.Probed
}

// Forget ends the probes of a pod.
func (m measuredProbes) Forget(uid types.UID) {
	m.Prober.Forget(uid)
	m.probed.Forget(uid)
}

// buildMetrics makes the catalogue of the agent's own metrics.
func (a *Agent) buildMetrics() error {
	catalogue := stats.MetricsConfig{
		Registerer: a.deps.Metrics, NodeName: a.cfg.NodeName, Version: config.KubernetesVersion, Pods: observed{a}, Process: a.deps.ProcessMetrics,
	}
	if a.pulls != nil {
		catalogue.PullRecords = a.pullRecords.Count
	}
	var err error
	if a.metrics, err = stats.NewMetrics(catalogue); err != nil {
		return err
	}
	a.probed, err = stats.NewProbed()
	return err
}

// buildStats wires what is measured on demand.
func (a *Agent) buildStats() error {
	hung := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "wherry_hung_pods", Help: "Pods of which the runtime does not say what runs"},
		func() float64 { return float64(len(a.pleg.Hung(pleg.HungFor))) })
	if err := a.deps.Metrics.Register(hung); err != nil {
		return fmt.Errorf("register wherry_hung_pods: %w", err)
	}
	cfg := stats.Config{
		NodeName: a.cfg.NodeName, Version: a.cfg.KubeletVersion, Pods: observed{a}, Runtime: scheduledStats{a.deps.Runtime, a.work}, Images: a.deps.Images,
		RootDir: a.cfg.RootDir, LogDir: a.cfg.Kubelet.PodLogsDir, Log: a.log, Machine: a.statsMachine(),
	}
	if a.deps.Machine.real {
		cfg.Disk, cfg.HostRoot, cfg.PodsGroup = hostfs.Host{}, "/", a.podsGroup()
		cfg.Volumes = volumeUsage{a}
		cfg.SystemGroups = a.systemGroups()
	}
	var err error
	a.stats, err = stats.New(cfg)
	return err
}

// systemGroups are the groups beside the pods that statistics tell of: the agent's own, and those that the configuration names.
// Nothing is moved into any of them. A process in the root group has none of its own.
func (a *Agent) systemGroups() map[string]stats.SystemGroup {
	groups := map[string]stats.SystemGroup{}
	if own, err := cgroup.Own("/proc/self/cgroup"); err != nil {
		a.log.Debug("statistics have nothing of the agent itself", "err", err)
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

// podsGroup is the control group of all pods.
func (a *Agent) podsGroup() string {
	if groups, ok := a.ground.cgroups.(*cgroup.Cgroups); ok {
		return groups.PodsGroup()
	}
	return ""
}

// volumeUsage measures volumes by the UID of their pod.
type volumeUsage struct{ a *Agent }

// VolumeUsage says how full the volumes of a pod are.
func (v volumeUsage) VolumeUsage(ctx context.Context, uid types.UID) ([]stats.Volume, error) {
	p, _ := v.a.pods.Get(uid)
	if p == nil {
		return nil, nil
	}
	usage, err := v.a.ground.volumes.Usage(ctx, p)
	out := make([]stats.Volume, 0, len(usage))
	for _, u := range usage {
		out = append(out, stats.Volume{
			Name: u.Name, Ephemeral: !u.Memory, CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes,
			Inodes: u.Inodes, InodesFree: u.InodesFree, UsedBytes: u.UsedBytes, InodesUsed: u.InodesUsed, Time: u.Time,
		})
	}
	return out, err
}

// statsMachine tells what is known of the machine.
func (a *Agent) statsMachine() func() stats.Machine {
	if a.deps.Machine.real {
		proc := a.deps.Machine.proc
		m := &machineFacts{log: a.log, read: func() (stats.Machine, error) {
			f, err := proc.Facts()
			return stats.Machine{
				CPUs: f.CPUs, MemoryBytes: f.MemoryBytes, SwapBytes: f.SwapBytes, BootTime: f.BootTime, MachineID: f.MachineID,
				SystemUUID: f.SystemUUID, BootID: f.BootID, KernelVersion: f.KernelVersion, OSImage: f.OSImage, MaxPID: f.PIDMax,
				Tasks: proc.Tasks,
			}, err
		}}
		return m.get
	}
	f, began := a.deps.Machine.fixed(a.cfg.NodeName), time.Now()
	return func() stats.Machine {
		return stats.Machine{
			CPUs: f.Machine.CPUs, MemoryBytes: uint64(f.Machine.MemoryBytes), MachineID: f.Machine.MachineID, SystemUUID: f.Machine.SystemUUID,
			BootID: f.Machine.BootID, KernelVersion: f.Machine.KernelVersion, OSImage: f.Machine.OSImage, MaxPID: f.PIDs, BootTime: began,
		}
	}
}

// machineFacts reads what does not change of the machine: when it is first asked for, and again each time until all of it
// could be read.
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
		m.log.Warn("the machine's facts are missing from its metrics, until they can be read", "err", err)
	}
	m.facts, m.known, m.said = facts, err == nil, err != nil
	return facts
}

// FilesUsage measures the files that the agent gives a pod's containers.
func (v volumeUsage) FilesUsage(uid types.UID) (bytes, inodes uint64, err error) {
	u, err := v.a.ground.volumes.FilesUsage(uid)
	return u.Bytes(), u.Inodes, err
}

// podFiles keeps the files within bounds that the agent gives containers; nil on a simulated machine, which has none.
func (a *Agent) podFiles() func(types.UID) (volume.FilesUsage, error) {
	if !a.deps.Machine.real {
		return nil
	}
	return a.ground.volumes.BoundFiles
}

// relisted counts the relists.
func (a *Agent) relisted(took time.Duration, err error) {
	if err == nil {
		a.metrics.Relisted(time.Now(), took, a.pleg.Interval())
	}
}

// storage measures what pods take on disk for the sake of their limits: "localStorageCapacityIsolation". Nil on a simulated
// machine, where nothing is written.
func (a *Agent) storage() func(context.Context, *v1.Pod) (syncloop.StorageUse, error) {
	if !a.deps.Machine.real || !*a.cfg.Kubelet.LocalStorageCapacityIsolation {
		return nil
	}
	return func(ctx context.Context, p *v1.Pod) (syncloop.StorageUse, error) {
		volumes, err := a.ground.volumes.Usage(ctx, p)
		use := syncloop.StorageUse{Volumes: volumes, LayersApart: a.stats.LayersApart(ctx)}
		containers, containersErr := a.stats.ContainerDisks(ctx, p.UID)
		for _, c := range containers {
			use.Containers = append(use.Containers, syncloop.ContainerUse{Name: c.Name, Layer: c.Layer, Logs: c.Logs})
		}
		return use, errors.Join(err, containersErr)
	}
}
