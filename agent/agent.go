package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
	"github.com/wherry-node/wherry/internal/core/shutdown"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/credplugin"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/heartbeat"
	"github.com/wherry-node/wherry/internal/edge/logrotate"
	"github.com/wherry-node/wherry/internal/edge/mirror"
	"github.com/wherry-node/wherry/internal/edge/pleg"
	"github.com/wherry-node/wherry/internal/edge/podsapi"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/edge/probe"
	"github.com/wherry-node/wherry/internal/edge/pullrecord"
	"github.com/wherry-node/wherry/internal/edge/push"
	"github.com/wherry-node/wherry/internal/edge/recorder"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/edge/source"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/edge/status"
	"github.com/wherry-node/wherry/internal/edge/trace"
	"github.com/wherry-node/wherry/internal/node/evictor"
	"github.com/wherry-node/wherry/internal/node/imagegc"
	"github.com/wherry-node/wherry/internal/node/nodefacts"
	"github.com/wherry-node/wherry/internal/node/nodeshutdown"
	"github.com/wherry-node/wherry/internal/node/ownnode"
	"github.com/wherry-node/wherry/internal/node/perform"
	"github.com/wherry-node/wherry/internal/node/report"
	"github.com/wherry-node/wherry/internal/node/syncloop"
)

// Agent runs one node. New creates it. Run may be called once.
type Agent struct {
	cfg     Config
	deps    Deps
	clients clients
	log     *slog.Logger

	cri      *cri.Client
	platform *platform // the machine: its directories, mounts and cgroups
	events   *events
	pods     *podset.Set
	pleg     *pleg.Generator
	// inspects is pleg for readers that may ask before it is built: metrics are read from their registration on.
	inspects    atomic.Pointer[pleg.Generator]
	probes      *probe.Probes
	work        *work.Scheduler
	pullRecords *pullrecord.Store   // nil: pulls are not recorded
	pulls       *pullrecord.Settler // nil if pullRecords is nil
	recorder    *recorder.Recorder  // nil: turns that went wrong are not recorded
	plugins     *credplugin.Plugins // nil: no credential provider plugins are configured
	runtime     *nodefacts.Runtime
	node        *nodefacts.Source
	evictor     *evictor.Evictor
	collector   *imagegc.Collector
	keptImages  atomic.Pointer[pullaccess.Allowlist] // images that are never removed (Config.KeepImages)
	podsLimit   atomic.Int64                         // how much memory all pods together may use, in bytes (podsMemory); 0: not known yet
	heartbeat   *heartbeat.Heartbeat                 // nil when standalone
	own         *ownnode.Follower                    // nil when standalone
	offline     offlineStart
	writer      *status.Writer  // nil when standalone
	mirrors     *mirror.Mirrors // nil when standalone
	report      *report.Report
	loop        *syncloop.Loop
	server      *server.Server
	push        *push.Source    // nil: pods cannot be pushed
	control     *server.Server  // nil: there is no control socket
	podsAPI     *podsapi.Server // nil: the Pods API is not served
	pages       pages
	stats       *stats.Stats
	partly      *partly
	metrics     *stats.Metrics
	tracer      atomic.Pointer[trace.Tracer] // nil: nothing is traced
	calls       *stats.APICalls
	startup     startup
	probed      *stats.Probed
	shutdown    *nodeshutdown.Watch // nil: a shutdown of the machine does not wait for pods
	settings    nodestatus.Settings
	shares      *work.Shares // the shares of CPU time of the classes of jobs (package work); nil: the defaults
	pullPolicy  pullaccess.Policy
	facts       nodefacts.Recent[perform.Facts]
	resolver    nodefacts.Resolver
	host        hostFacts   // set by Run before the parts start
	began       time.Time   // set by Run before anything runs
	born        time.Time   // when New created the agent
	built       atomic.Bool // true after build; functions that compute metrics may use the parts only from then on

	live       liveConfig
	policy     atomic.Pointer[decide.Policy] // the agent replaces the whole policy and never changes its fields
	rotator    *logrotate.Rotator            // nil: the machine has no container logs
	pullRate   *rate.Limiter
	eventRate  *rate.Limiter
	staticPods chan source.Location // receives the path and period of the static pods' source when the configuration changes

	opened     opened
	apiLeftOut bool // true: a standalone node serves no HTTPS API, because its configuration does not allow one
}

// New checks the configuration and returns an agent for Run. It does no IO and starts nothing.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.check(&deps); err != nil {
		return nil, err
	}
	cfg.Kubelet = *cfg.Kubelet.DeepCopy() // a copy, because the agent changes it
	cfg.setDefaults()
	if deps.Metrics == nil {
		deps.Metrics = prometheus.NewRegistry()
	}
	a := &Agent{born: time.Now(), cfg: cfg, deps: deps, log: slog.New(boundedLog{deps.Log.Handler()}).With("node", cfg.NodeName)}
	a.live.serves, a.live.driver, a.live.keepImages = *cfg.Kubelet.EnableServer, cfg.Kubelet.CgroupDriver, cfg.KeepImages
	a.live.inEffect.Store(&a.cfg.Kubelet)
	if cfg.Listen {
		serves, err := servesAPI(&cfg.Kubelet, cfg.standalone(&deps))
		if err != nil {
			return nil, err
		}
		a.apiLeftOut = *a.cfg.Kubelet.EnableServer && !serves
		*a.cfg.Kubelet.EnableServer = serves
	}
	var err error
	if a.settings, err = nodeSettings(&a.cfg, deps.Machine); err != nil {
		return nil, err
	}
	if a.shares, err = workShares(&a.cfg); err != nil {
		return nil, err
	}
	kept, err := pullaccess.ParseAllowlist(a.cfg.KeepImages)
	if err != nil {
		return nil, fmt.Errorf("agent: Config.KeepImages: %w", err)
	}
	a.keptImages.Store(&kept)
	if a.pullPolicy, err = pullAccess(&a.cfg.Kubelet); err != nil {
		return nil, err
	}
	return a, nil
}

// build wires the agent: each step uses the parts that earlier steps made. Functions that refer to later parts are called only
// when the parts run. build may read files, so Run calls it, and New does not.
func (a *Agent) build() error {
	for _, step := range []func() error{
		a.buildPullRecords, // before the metrics, because they count the records
		a.buildMetrics,     // before all other parts, because these write to the metrics
		a.buildTracer,
		a.buildRuntime,
		a.buildClients,
		a.buildEvents,
		a.buildWork,
		a.buildPodsAPI, // before the pods and their statuses, which tell it of changes
		a.buildPods,
		a.buildPlugins,
		a.buildPlatform,
		a.buildNode,
		a.buildStats,
		a.buildLoop,
		a.buildShutdown,
		a.buildCollector,
		a.buildEvictor,
		a.buildServer,
		a.buildControl,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	a.built.Store(true)
	return nil
}

// buildRuntime wires the calls to the container runtime.
func (a *Agent) buildRuntime() error {
	a.deps.Runtime, a.deps.Images = cri.Metered(a.deps.Runtime, a.deps.Images, a.metrics.Operation, a.tracedCalls())
	a.cri = cri.New(cri.Config{
		Runtime: a.deps.Runtime, Images: a.deps.Images, Timeout: a.cfg.Kubelet.RuntimeRequestTimeout.Duration, ReadTermination: a.terminationReader(),
		EventArrived: a.metrics.EventArrived,
	})
	return nil
}

// notify returns a function that makes the loop look at a pod. The loop is built after the parts that call the function.
func (a *Agent) notify(source string) func(types.UID) {
	return func(uid types.UID) { a.loop.Look(uid, source) }
}

// buildPods wires the desired pods and the pod cache.
func (a *Agent) buildPods() error {
	look := a.notify("source")
	a.pods = podset.New(a.cfg.NodeName, a.sources(), func(uid types.UID) {
		look(uid)
		a.offline.changed()
		if a.podsAPI != nil {
			a.podsAPI.Changed(uid)
		}
	})
	a.pods.OnSpec(a.metrics.ResizeAsked)
	a.pleg = pleg.New(pleg.Config{
		Runtime: a.cri, Unsupported: cri.IsUnimplemented, Log: a.log,
		Notify:   a.notify("runtime"),
		Expected: func(h pod.Hint) bool { return a.loop.Expects(h) },
		OnRelist: a.relisted, OnHung: a.hung, OnInspect: a.metrics.Inspected, OnSubscribe: a.metrics.Subscribed,
	})
	a.inspects.Store(a.pleg)
	return nil
}

// buildNode wires the parts that report about the node.
func (a *Agent) buildNode() error {
	a.runtime = nodefacts.NewRuntime(a.cri, a.runtimeChanged, a.log)
	a.runtime.OnImages(func(began time.Time, images []*runtimeapi.Image) {
		a.collector.See(images)
		if a.pulls != nil {
			a.pulls.Listed(began, images)
		}
	})
	a.node = nodefacts.New(nodefacts.Config{
		Settings: a.settings, Machine: a.platform.machine, Runtime: a.runtime, Problems: a.problems, Failing: a.failing, VolumesInUse: a.platform.inUse, Devices: a.deps.Machine.devices(),
		Pressure: func(ctx context.Context) pressure.Result { return a.evictor.Pressure(ctx) },
		Clock:    a.clock(),
	})
	k := &a.cfg.Kubelet
	r := &a.resolver
	r.Event, r.Log = a.events.NodeEvent, a.log
	r.Set(a.resolvConf(k), k.ClusterDomain)
	if a.deps.Client == nil {
		return nil
	}
	a.own = ownnode.New(ownnode.Config{Nodes: a.clients.api.Nodes(), Name: a.cfg.NodeName, Follow: a.followOwnNode(), Volumes: func() {
		if a.platform.nodeChanged != nil {
			a.platform.nodeChanged()
		}
		a.offline.changed()
	}})
	var err error
	a.heartbeat, err = heartbeat.New(heartbeat.Config{
		Nodes: a.clients.beats.Nodes(), Lease: a.clients.beats.Leases(v1.NamespaceNodeLease), NodeName: a.cfg.NodeName, Register: *k.RegisterNode, Source: a.node,
		ZeroExtended: true, StatusFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
		Cached:        a.own.Last, Reached: a.startup.reached,
		Written: a.reported,
		PodCIDR: a.podCIDR, OnRepeatedFailure: a.deps.CloseConnections, Recorder: a.events, Leases: a.deps.Leases, Rand: spread(a.deps.Seed), Clock: a.clock(),
		Log: a.log,
	})
	return err
}

// spread returns numbers in [0, 1) that follow from the seed; nil: the seed is 0. The function may be called concurrently.
func spread(seed uint64) func() float64 {
	if seed == 0 {
		return nil
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64()
	}
}

// buildLoop wires the workers and the parts that they use.
func (a *Agent) buildLoop() error {
	a.policy.Store(decidePolicy(&a.cfg, &a.cfg.Kubelet))
	a.probes = probe.New(probe.Config{
		Exec: a.cri, Dialer: a.platform.dialer, Notify: a.notify("probe"),
		Event: a.probeEvent, Late: a.probeLate, Behind: a.probesBehind, Work: a.work, Log: a.log,
		Observe: func(m probe.Measurement) {
			a.probed.Ran(m.Pod, m.Container, m.Kind.String(), m.Result, m.Took)
			a.metrics.ProbeBegan(m.Kind.String(), m.Late)
		},
		Seed: a.deps.Seed,
	})
	rc := report.Config{
		Recorder: a.events, Mirror: a.pods.Mirror, RuntimeName: a.runtimeName, HostIPs: a.hostIPs,
		RecursiveReadOnly: a.recursiveReadOnly, Omit: omitted(&a.cfg),
		Started: a.podStarted, ContainerEnded: a.metrics.ContainerEnded, Resized: a.metrics.Resized, Clock: a.clock(),
	}
	if a.podsAPI != nil {
		rc.Changed = a.podsAPI.Changed
	}
	if a.pushes() {
		a.buildPush()
		rc.Ended = a.push.Ended
	}
	if a.deps.Client != nil {
		a.writer = status.New(status.Config{Pods: a.clients.statusPods, Log: a.log, Synced: a.metrics.StatusSent, Refused: func(mirror types.UID) { a.mirrors.Refused(mirror) }})
		rc.Writer = a.writer
		a.buildMirrors()
	}
	a.report = report.New(rc)
	performer := perform.New(perform.Config{
		CRI: a.cri, Images: a.platform.images, Volumes: a.platform.volumes, Logs: a.platform.logs, Cgroups: a.platform.cgroups, IDs: a.platform.ids,
		Objects: a.platform.objects, Recorder: a.events, Meter: a.metrics, Facts: a.performFacts, HTTP: a.platform.http, Log: a.log,
		DevicesPrepared: a.deps.Machine.shape.DevicesPrepared,
	})
	least, most := a.startSlots()
	a.loop = syncloop.New(syncloop.Config{
		Pods: a.pods, Cache: a.pleg, Performer: a.traced(scheduledPerformer{performer, a.work, work.NewTurns(least, most), a.deps.Acted}), Checkpoints: a.platform.checkpoints,
		Prober:   measuredProbes{&syncloop.Probes{Probes: a.probes, HostIPs: a.hostIPs}, a.probed, a.events, a.partly},
		Reporter: a.report, Recorder: a.events, Meter: a.metrics, Resizes: a.metrics, Objects: a.platform.objects, Policy: a.policy.Load, Hash: specHash, Clock: a.clock(),
		Refresh: a.refreshNode, Admit: a.admit, Resize: a.resize, NodeKnown: a.nodeKnown, NodeSince: a.nodeSince, Leftovers: a.platform.leftovers, MaxDeadContainers: a.cfg.MaxDeadContainers,
		Storage: a.storage(), PodFiles: a.podFiles(), EvictedEvent: a.events.evicted, Holds: a.updateQOS, StartSlots: least, MostStarts: most, WentWrong: a.wentWrong(), Log: a.log,
	})
	return nil
}

// reported is called after each round of the heartbeat, with the newest Node.
func (a *Agent) reported(node *v1.Node) {
	a.events.recorder.Tidy()
	if a.platform.reported != nil {
		a.platform.reported(node)
	}
}

// runtimeChanged is called when the readiness of the runtime or of its network has changed.
func (a *Agent) runtimeChanged() {
	ready, message := nodestatus.NetworkReady(a.runtime.Facts().Status)
	a.loop.SetNetwork(syncloop.Network{Ready: ready, Message: message})
	if a.runtime.Facts().Err == "" {
		a.pleg.Retry()
	}
	if a.heartbeat != nil {
		a.heartbeat.Now()
	}
}

// problems returns the agent's own reasons why the node is not ready.
func (a *Agent) problems() []string {
	var out []string
	if err := a.pleg.Healthy(); err != nil {
		out = append(out, err.Error())
	}
	if a.goesDown() {
		out = append(out, shutdown.Problem)
	}
	return out
}

// failing returns a text for each part of the agent that fails and is tried again. The message of the Ready condition
// contains these texts.
func (a *Agent) failing() []string {
	out := a.platform.failing()
	for _, f := range a.opened.fails {
		if err := f(); err != nil {
			out = append(out, err.Error())
		}
	}
	if a.deps.Failing != nil {
		out = append(out, a.deps.Failing()...)
	}
	return out
}

func (a *Agent) probeEvent(e probe.Event) {
	p, _ := a.pods.Get(e.Pod.UID)
	if p == nil {
		p = pod.Remnant(e.Pod, e.List, e.Container)
	}
	a.events.Event(p, e.Container, v1.EventTypeWarning, e.Reason, e.Message)
}

// timelineOf returns the timeline of a pod, oldest record first, and how many older records were dropped. false: the node
// does not have the pod.
func (a *Agent) timelineOf(uid types.UID) ([]timeline.Record, int, bool) {
	w := a.loop.Worker(uid)
	if w == nil {
		return nil, 0, false
	}
	r, dropped := w.Timeline()
	return r, dropped, true
}

func (a *Agent) String() string { return fmt.Sprintf("node agent %s", a.cfg.NodeName) }
