package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/csi"
	"github.com/wherry-node/wherry/internal/edge/image"
	"github.com/wherry-node/wherry/internal/edge/objects"
	"github.com/wherry-node/wherry/internal/edge/plugin"
	"github.com/wherry-node/wherry/internal/edge/probe"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/edge/userns"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/drivers"
	"github.com/wherry-node/wherry/internal/node/nodefacts"
	"github.com/wherry-node/wherry/internal/node/perform"
	"github.com/wherry-node/wherry/internal/node/podworker"
	"github.com/wherry-node/wherry/internal/node/referents"
)

// platform is the part of the node that differs between real and simulated machines: directories, mounts and cgroups. A simulated
// machine has none of them.
type platform struct {
	machine     nodefacts.Machine
	signals     func(ctx context.Context) pressure.Signals
	volumes     volumes
	logs        perform.Logs
	orphanLogs  func(known func(types.UID) bool) ([]types.UID, error) // nil: no logs can be orphaned
	cgroups     cgroups
	enforcement *enforcement // the limits of the cgroups above those of pods; nil on simulated machines
	ids         *userns.Ranges
	objects     referrer
	certified   func() []objects.CertificateCount // counts the certificates that pods project; nil: there is no API server
	local       *objects.Local                    // ConfigMaps and Secrets that came with manifests
	missing     func(p *v1.Pod) []string
	hasLocal    func(kind, namespace, name string) bool
	images      *image.Images
	checkpoints podworker.Checkpoints
	dialer      probe.Dialer
	http        perform.HTTPDoer
	prepare     func(ctx context.Context) error
	driverLater func(ctx context.Context) error      // the runtime did not answer about its cgroup driver at the start: see askDriver.later; nil: it did
	drivers     []part                               // what the node's CSI drivers and their volumes need; empty: the node accepts no drivers
	inUse       func() ([]v1.UniqueVolumeName, bool) // the volumes that must stay attached; nil: the node attaches no volumes
	reported    func(*v1.Node)                       // called after each round of the heartbeat, with the newest Node; nil: not used
	nodeChanged func()                               // called when volumesInUse or volumesAttached of the Node have changed; nil: not used
}

type volumes interface {
	perform.Volumes
	Orphans(known func(types.UID) bool) ([]types.UID, error)
	Usage(ctx context.Context, p *v1.Pod) ([]volume.Usage, error)
	UsageNow(ctx context.Context, p *v1.Pod) ([]volume.Usage, error)
	PersistentUsage(ctx context.Context, p *v1.Pod) ([]volume.Usage, error)
	FilesUsage(uid types.UID) (volume.FilesUsage, error)
	BoundFiles(uid types.UID) (volume.FilesUsage, error)
}

type cgroups interface {
	perform.Cgroups
	PodCgroups() ([]types.UID, error)
	SetUpNode(ctx context.Context, capacity v1.ResourceList) error
	UpdateQOS(ctx context.Context, pods []*v1.Pod) error
}

type referrer interface {
	perform.Objects
	volume.Objects
	volume.Credentials
	Track(p *v1.Pod)
	Begin(ctx context.Context) (join func())
}

// buildPlatform builds what the agent needs of its machine, real or simulated: directories, mounts, cgroups, images, API objects.
func (a *Agent) buildPlatform() error {
	refresh := func(uid types.UID) { a.loop.Refresh(uid) }  // the loop is built later
	gates, _ := config.NewGates(a.cfg.Kubelet.FeatureGates) // checked by New
	named := referents.Config{
		Local: objects.NewLocal(refresh), Handlers: a.runtimeHandlers, APIForStatic: !gates.Enabled("PreventStaticPodAPIReferences"),
	}
	if a.deps.Client != nil {
		named.Classes = a.clients.api.RuntimeClasses()
		named.API = objects.New(objects.Config{Follow: a.followObjects(),
			API: a.clients.objects(gates), Log: a.log, Notify: refresh, Node: a.nodeUID, Changed: a.offline.changed, Expired: a.tokenExpired, Clock: a.clock(),
			Strategy: objects.Strategy(a.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy),
		})
	}
	if a.buildOffline(named.API); a.offline.keeper != nil {
		named.Classes = a.offline.keeper.Classes(named.Classes)
	}
	refs := referents.New(named)
	g := &platform{objects: refs, local: named.Local, missing: refs.Missing(), hasLocal: refs.Has}
	if named.API != nil {
		g.certified = named.API.CertificateCounts
	}
	a.platform = g
	g.images = a.images(g)
	g.dialer = a.deps.Dialer
	if g.dialer == nil {
		g.dialer = &net.Dialer{}
	}
	g.http = hookClient{g.dialer}
	g.ids = userns.New(a.userIDs())
	if a.deps.Machine.real {
		return a.buildRealPlatform(g, refresh)
	}
	fixed := a.deps.Machine.fixed(a.cfg.NodeName)
	g.signals = fixed.Signals
	g.machine, g.cgroups, g.logs, g.checkpoints = fixed, noCgroups{}, perform.NoLogs{}, a.deps.Machine.checkpoints()
	if a.deps.Machine.shape.Logs {
		g.logs = a.logDirs("")
	}
	if dir := a.deps.Machine.shape.Volumes; dir != "" {
		if registry := a.buildVolumes(g, dir, &a.deps.Machine.mounts, a.deps.Machine.dialDriver, refresh); registry != nil {
			g.drivers = append(g.drivers, part{name: "plugins", begin: a.deps.Machine.registers(registry, slices.Collect(maps.Keys(a.deps.Machine.shape.Drivers)), a.log)})
		}
	} else {
		a.buildVolumesInMemory(g, refresh)
	}
	if kept := a.deps.Machine.kept; kept != nil {
		g.volumes = keptVolumes{g.volumes, kept}
	}
	g.prepare = func(context.Context) error { return g.ids.Load() }
	return nil
}

func (a *Agent) buildRealPlatform(g *platform, refresh func(types.UID)) error {
	k, host := &a.cfg.Kubelet, hostfs.Host{}
	kube, system, err := nodestatus.ParseReserved(k.KubeReserved, k.SystemReserved, k.ReservedSystemCPUs)
	if err != nil {
		return err
	}
	groups := cgroup.New(cgroup.Config{
		Root: k.CgroupRoot, Driver: k.CgroupDriver, PerQOS: *k.CgroupsPerQOS, PodPidsLimit: *k.PodPidsLimit,
		CPUCFSQuota: *k.CPUCFSQuota, CPUCFSPeriod: k.CPUCFSQuotaPeriod.Duration, Enforce: k.EnforceNodeAllocatable,
		SystemReserved: system, KubeReserved: kube, SystemReservedCgroup: k.SystemReservedCgroup, KubeReservedCgroup: k.KubeReservedCgroup,
		MemoryQoS: gates(&a.cfg).Enabled("MemoryQoS"), ReserveMemory: k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy,
		Done: a.metrics.CgroupDone, Log: a.log,
	})
	g.cgroups = groups
	real := &nodefacts.Real{
		Proc: a.deps.Machine.proc, Disk: host, RootDir: a.cfg.RootDir, ImageDir: a.imageDir, Hostname: a.cfg.Hostname,
		Pods: func(enough uint64) (uint64, bool) { return a.stats.PodsUsed(enough) }, PodsMemory: a.podsMemory, Wanted: a.podsWanted, AllAddresses: slices.ContainsFunc(a.cfg.NodeIPs, func(ip netip.Addr) bool { return !ip.IsUnspecified() }),
	}
	real.LayerDir = a.layerDir
	a.opened.closes = append(a.opened.closes, real.Close)
	g.machine, g.signals = real, real.Signals
	if registry := a.buildVolumes(g, a.cfg.RootDir, host, csi.Socket, refresh); registry != nil {
		watcher := plugin.New(plugin.Config{
			Dir: filepath.Join(a.cfg.RootDir, "plugins_registry"), Handlers: map[string]plugin.Handler{drivers.PluginType: registry}, Log: a.log,
		})
		if err := stats.RegisterPlugins(a.deps.Metrics, func() (all []stats.PluginSocket) {
			for _, s := range watcher.Sockets() {
				all = append(all, stats.PluginSocket(s))
			}
			return all
		}); err != nil {
			return err
		}
		g.drivers = append(g.drivers, part{name: "plugins", run: watcher.Run})
	}
	logs := a.logDirs(a.cfg.LogLinkDir)
	g.logs, g.orphanLogs = logs, logs.Orphans
	g.checkpoints = checkpoint.Dir{Root: a.cfg.RootDir, Boot: a.deps.Machine.proc.BootID()}
	g.prepare = func(ctx context.Context) error {
		if err := makeRoot(a.cfg.RootDir, k.PodLogsDir); err != nil {
			return fmt.Errorf("make the node agent's directories: %w", asRoot(err, os.Geteuid()))
		}
		switch made, err := host.MakeShared(a.cfg.RootDir); {
		case err != nil:
			a.log.Error("mounts of containers do not propagate (mountPropagation: Bidirectional, HostToContainer)", "dir", a.cfg.RootDir, "err", err)
		case made:
			a.log.Info("the root directory is a shared mount now", "dir", a.cfg.RootDir)
		}
		a.makeDataDirs()
		if err := g.ids.Load(); err != nil {
			a.log.Error("pods with hostUsers: false cannot start", "err", err)
		}
		if v2, err := groups.V2(); err == nil && !v2 {
			a.events.NodeEvent(v1.EventTypeWarning, nodestatus.EventCgroupV1, "cgroup v1 is no longer supported by Kubernetes: boot this machine with cgroup v2")
		}
		return a.prepareCgroups(ctx, groups)
	}
	return nil
}

// layerDir returns where the runtime keeps the writable layers of containers. "": the directory is not known, or no eviction
// threshold is about this file system.
func (a *Agent) layerDir() string {
	if !slices.ContainsFunc(a.node.Settings().Thresholds, func(t pressure.Threshold) bool {
		return t.Signal == pressure.ContainerfsAvailable || t.Signal == pressure.ContainerfsInodesFree
	}) {
		return ""
	}
	return a.stats.LayerDir()
}

// userIDs returns the configuration of the user IDs for pods with user namespaces. On a simulated machine all possible IDs are available.
func (a *Agent) userIDs() userns.Config {
	var cfg userns.Config
	if u := a.cfg.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil {
		cfg.Length = uint32(*u.IDsPerPod)
	}
	if a.deps.Machine.real {
		cfg.RootDir, cfg.Pool = a.cfg.RootDir, userns.Subordinate
	}
	return cfg
}

func (a *Agent) logDirs(links string) *perform.LogDirs {
	return &perform.LogDirs{Root: a.cfg.Kubelet.PodLogsDir, LinkDir: links, RemoveTree: func(dir string) error {
		// The pod's directories may be large and take long to remove. If the time is not enough, the next attempt continues the removal.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return hostfs.Host{}.RemoveTree(ctx, dir)
	}}
}

// prepareCgroups creates the cgroups above the cgroups of pods. If it cannot set limits, it records an event and continues; updateQOS tries
// again. If it cannot create cgroups, it returns an error.
func (a *Agent) prepareCgroups(ctx context.Context, groups *cgroup.Cgroups) error {
	m, err := a.platform.machine.Facts()
	if err != nil {
		return err
	}
	a.chooseDriver(ctx, groups)
	f := nodestatus.Facts{Now: time.Now(), Machine: m, EphemeralStorage: a.platform.machine.EphemeralStorage()}
	if err := nodestatus.CheckReservations(&a.settings, nodestatus.Capacity(&a.settings, &f)); err != nil {
		return fmt.Errorf("reserve resources: %w", err)
	}
	a.platform.enforcement = &enforcement{
		setUp: groups.SetUpNode, capacity: groupCapacity(&a.settings, &f, a.deps.Machine.proc.PIDMax()), levels: a.cfg.Kubelet.EnforceNodeAllocatable,
		event: a.events.NodeEvent, log: a.log,
	}
	if err := a.platform.enforcement.set(ctx, f.Now); err != nil {
		return fmt.Errorf("set up cgroups (cgroupRoot, cgroupDriver): %w", err)
	}
	return nil
}

// saysTmpfsMaySwap records a warning event: the machine may write memory-backed volumes to its swap space.
func (a *Agent) saysTmpfsMaySwap() {
	a.events.NodeEvent(v1.EventTypeWarning, nodestatus.EventTmpfsOnDisk, "The tmpfs noswap option is not supported. Memory-backed volumes "+
		"(secrets, emptyDirs, ...) may be swapped to disk: use a newer kernel (6.4), encrypted swap space, or none")
}

// failing describes the parts of the platform that do not work.
func (g *platform) failing() []string {
	if err := g.ids.Failing(); err != nil {
		return []string{"pods with hostUsers: false cannot start: " + err.Error()}
	}
	return nil
}

// leftovers returns the pods that have directories, cgroups or logs on the node, but for which known returns false.
func (g *platform) leftovers(known func(types.UID) bool) ([]types.UID, error) {
	dirs, err := g.volumes.Orphans(known)
	groups, err2 := g.cgroups.PodCgroups()
	for _, uid := range groups {
		if !known(uid) && !slices.Contains(dirs, uid) {
			dirs = append(dirs, uid)
		}
	}
	if g.orphanLogs == nil {
		return dirs, errors.Join(err, err2)
	}
	logs, err3 := g.orphanLogs(func(uid types.UID) bool { return known(uid) || slices.Contains(dirs, uid) })
	return append(dirs, logs...), errors.Join(err, err2, err3)
}

// hookClient sends httpGet hooks. It does not verify certificates, as documented for the scheme HTTPS. It
// has no timeout: a preStop hook may take the whole grace period, and a postStart hook may take as long as its container
// runs. It follows redirects as a probe does. Every answer counts as a success. So the client reads only the headers, at most
// 64 KiB, and not the body, which may have no end.
type hookClient struct{ dialer probe.Dialer }

// Do sends a request. It makes a new http.Client, because no connection is used twice, and a client that is kept for the next hook takes 1 KiB of memory
// per node.
func (h hookClient) Do(req *http.Request) (*http.Response, error) {
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: h.dialer.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: probe.FollowOnHost,
	}
	return client.Do(req)
}

// terminationReader returns the reader of termination messages, or nil on a simulated machine.
func (a *Agent) terminationReader() func(*runtimeapi.ContainerStatus) string {
	if !a.deps.Machine.real {
		return nil
	}
	return cri.TerminationMessage
}

// readFile returns the content of a file that may be missing.
func readFile(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}
