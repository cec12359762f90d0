package agent

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/edge/csi"
	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/drivers"
)

// buildVolumes builds the handling of volumes below the directory root. If there is an API server, it also builds that of CSI drivers, and
// returns where they register; otherwise it returns nil.
func (a *Agent) buildVolumes(g *platform, root string, host volume.Host, dial csi.Dial, refresh func(types.UID)) *drivers.Drivers {
	cfg := volume.Config{
		RootDir: root, Host: host, Objects: g.objects, Credentials: g.objects, Claims: a.claims(), Notify: refresh, Log: a.log, MaySwap: a.saysTmpfsMaySwap,
		Operated: a.volumeOperated, Measured: a.metrics.VolumeMeasured,
	}
	if a.deps.Client == nil {
		g.volumes = volume.New(cfg)
		return nil
	}
	if hostfs.HasSELinux() {
		cfg.SELinux = &volume.SELinux{FileLabel: hostfs.FileLabel, AnyMode: gates(&a.cfg).Enabled("SELinuxMount")}
	}
	registry, begin := a.withDrivers(g, &cfg, drivers.Config{Objects: a.clients.api.CSIDrivers(), Dial: dial})
	volumes := volume.New(cfg)
	g.volumes = volumes
	begin(volumes)
	g.drivers = append(g.drivers, part{name: "limits of CSI drivers", run: registry.Run})
	return registry
}

// buildVolumesInMemory builds the handling of volumes on a simulated machine without directories.
func (a *Agent) buildVolumesInMemory(g *platform, refresh func(types.UID)) {
	cfg := volume.Config{RootDir: "/var/lib/kubelet", Objects: g.objects, Credentials: g.objects, Claims: a.claims(), Notify: refresh}
	m := a.deps.Machine
	if len(m.local) == 0 || a.deps.Client == nil {
		g.volumes = volume.NewInMemory(cfg)
		return
	}
	cfg.Host, cfg.Disk, cfg.Log, cfg.Operated, cfg.Measured = &m.memory, m.memory.Files, a.log, a.volumeOperated, a.metrics.VolumeMeasured
	registry, begin := a.withDrivers(g, &cfg, drivers.Config{Local: m.localDriver})
	volumes := volume.NewInMemory(cfg)
	g.volumes = volumes
	begin(volumes.Drivers())
	g.drivers = append(g.drivers, part{name: "plugins", begin: m.registers(registry, slices.Collect(maps.Keys(m.local)), a.log)})
}

// withDrivers completes the configuration of volumes for a node with CSI drivers, and returns where the drivers register. The caller calls
// begin with the volumes that it has built.
func (a *Agent) withDrivers(g *platform, cfg *volume.Config, dcfg drivers.Config) (registry *drivers.Drivers, begin func(*volume.Volumes)) {
	var volumes *volume.Volumes
	dcfg.Cluster = csinode.New(csinode.Config{API: a.clients.api.CSINodes(), Nodes: a.clients.api.Nodes(), NodeName: a.cfg.NodeName})
	if a.offline.keeper != nil {
		dcfg.Cluster = a.offline.keeper.Drivers(dcfg.Cluster)
	}
	dcfg.Registered = func(name string) { volumes.DriverRegistered(name) }
	dcfg.Attach = func(name string, required bool) { volumes.AttachRequired(name, required) }
	dcfg.Republish = func(name string, required bool) { volumes.RepublishRequired(name, required) }
	dcfg.Called, dcfg.Log = a.metrics.DriverCalled, a.log
	registry = drivers.New(dcfg)
	cfg.Driver = func(name string) volume.Driver {
		if d := registry.Driver(name); d != nil {
			return d
		}
		return nil // a nil interface, not an interface with a nil pointer
	}
	cfg.InUseChanged = func() { a.heartbeat.Now() } // the heartbeat is built later
	cfg.Health = gates(&a.cfg).Enabled("CSIVolumeHealth")
	cfg.Exceeded = registry.Exceeded
	cfg.ClaimStatus = nodeClaims{api: a.clients.api}
	cfg.Event = a.events.record
	return registry, func(v *volume.Volumes) {
		volumes = v
		g.inUse, g.nodeChanged = v.InUse, v.NodeChanged
		g.reported = func(n *v1.Node) { v.Reported(n.Status.VolumesInUse) }
		g.drivers = append(g.drivers, part{name: "visits of volumes", begin: v.Begin})
	}
}

// volumeOperated counts an operation on a volume.
func (a *Agent) volumeOperated(op volume.Operation) {
	a.metrics.VolumeOperated(op.Plugin, op.Name, op.Migrated, op.Took, op.Err)
	if op.Overall > 0 {
		a.metrics.VolumeMounted(op.Plugin, op.Overall)
	}
}
