package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/source"
)

// The reasons of the events on the node about its configuration. Upstream's kubelet has no such events, because it reads its
// configuration only at its start.
const (
	reasonReconfigured  = "ConfigurationChanged"
	reasonNeedsRestart  = "ConfigurationNeedsRestart"
	reasonInvalidConfig = "InvalidConfiguration"
)

// reasonTokenExpired is the reason of the event of a pod that uses an expired token, because the API server does not answer. Upstream's
// kubelet has no such event.
const reasonTokenExpired = "ServiceAccountTokenExpired"

// ErrNotRunning means that Reconfigure was called before Run had built the node.
var ErrNotRunning = errors.New("agent: Reconfigure: the agent does not run yet")

// Reconfigured is the result of Reconfigure.
type Reconfigured struct {
	// Changed are the fields of KubeletConfiguration that have their new values now.
	Changed []string
	// Waiting are the fields that keep their values until the agent is started again, each with the reason.
	Waiting map[string]string
}

// liveConfig is the configuration that can change while the agent runs.
type liveConfig struct {
	// inEffect is the configuration that the parts use. Its content never changes; Reconfigure stores another configuration.
	// Before the first Reconfigure it is Agent.cfg.Kubelet.
	inEffect atomic.Pointer[kubelet.KubeletConfiguration]

	// serves and driver are the values of enableServer and cgroupDriver with which New was called. The agent needs them because New and
	// Run change these two settings in Agent.cfg.
	serves bool
	driver string

	mu         sync.Mutex // held by Reconfigure, so that concurrent calls run one after the other
	running    bool
	keepImages []string
	waiting    string // the fields that were last reported as waiting
}

// begin allows Reconfigure from now on, because all parts exist.
func (l *liveConfig) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = true
}

// kubelet returns the configuration in effect. Callers must not modify it, and must not keep it.
func (a *Agent) kubelet() *kubelet.KubeletConfiguration { return a.live.inEffect.Load() }

// startedWith returns the configuration with which New was called.
func (a *Agent) startedWith() *kubelet.KubeletConfiguration {
	k := a.cfg.Kubelet.DeepCopy()
	*k.EnableServer, k.CgroupDriver = a.live.serves, a.live.driver
	return k
}

// Reconfigure gives a running agent new values: the fields Kubelet and KeepImages of cfg. Fields that can change while the
// node runs take their new values; docs/configuration.md says for each field when its value takes effect. The other fields
// keep their values until the next start. Reconfigure logs the fields of both kinds and records an event on the node for
// each kind. If the configuration is not valid, nothing changes. Other fields of cfg are ignored; if Server, ControlSocket,
// Console, RecordBytes or OfflineStart differ, the result says that they need a restart. Calls may be concurrent, after Deps.Started was called.
func (a *Agent) Reconfigure(cfg Config) (Reconfigured, error) {
	l := &a.live
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running {
		return Reconfigured{}, ErrNotRunning
	}
	if cfg.Kubelet.EnableServer == nil {
		return Reconfigured{}, errors.New("agent: Config.Kubelet is not complete: start with DefaultConfiguration()")
	}
	next, d := config.Compare(a.startedWith(), a.kubelet(), &cfg.Kubelet)
	out := Reconfigured{Changed: d.Live, Waiting: map[string]string{}}
	for _, w := range d.Waiting {
		out.Waiting[w.Field] = w.Why
	}
	a.othersWait(&cfg, out.Waiting)
	kept, err := pullaccess.ParseAllowlist(cfg.KeepImages)
	if err != nil {
		return Reconfigured{}, fmt.Errorf("agent: Config.KeepImages: %w", err)
	}
	if len(d.Live) > 0 {
		if err := a.follow(&next, d.Live); err != nil {
			return Reconfigured{}, err
		}
	}
	if !slices.Equal(cfg.KeepImages, l.keepImages) {
		l.keepImages = slices.Clone(cfg.KeepImages)
		a.keptImages.Store(&kept)
		out.Changed = append(out.Changed, "images.neverRemove (--wherry-config)")
	}
	a.sayReconfigured(&out)
	a.metrics.ConfigRead(true)
	return out, nil
}

// othersWait adds those settings to waiting that Kubernetes has no field for, that differ from those the agent was started with, and that need
// a restart.
func (a *Agent) othersWait(cfg *Config, waiting map[string]string) {
	with := Config{Server: cfg.Server, OfflineStart: cfg.OfflineStart, RootDir: a.cfg.RootDir}
	with.setDefaults()
	for _, c := range []struct {
		differs    bool
		field, why string
	}{
		{with.Server != a.cfg.Server, "server", "the HTTPS API is built at the start"},
		{cfg.ControlSocket != a.cfg.ControlSocket, "controlSocket", "the control socket is opened at the start"},
		{cfg.Console != a.cfg.Console, "console", "the HTTPS API is built at the start"},
		{cfg.RecordBytes != a.cfg.RecordBytes, "flightRecorder", "the recorder is built at the start"},
		{with.OfflineStart != a.cfg.OfflineStart, "offlineStart", "it says how the node starts, and the record is opened at the start"},
	} {
		if c.differs {
			waiting[c.field+" (--wherry-config)"] = c.why
		}
	}
}

// follow makes every part use the configuration k. fields are the fields that change. If follow returns an error, it has
// changed nothing.
func (a *Agent) follow(k *kubelet.KubeletConfiguration, fields []string) error {
	cfg := a.cfg
	cfg.Kubelet = *k
	settings, err := nodeSettings(&cfg, a.deps.Machine)
	if err != nil {
		return err
	}
	access, err := pullAccess(k)
	if err != nil {
		return err
	}
	before := a.kubelet()
	a.live.inEffect.Store(k)

	a.followNode(k, settings)
	setRate(a.pullRate)(pullLimit(k))
	setRate(a.eventRate)(eventLimit(k))
	a.policy.Store(decidePolicy(&a.cfg, k))
	a.collector.SetPolicy(imagePolicy(k))
	a.platform.images.SetMaxParallel(maxPulls(k))
	if a.pulls != nil {
		a.platform.images.SetAccess(access)
	}
	if groups, ok := a.platform.cgroups.(*cgroup.Cgroups); ok {
		groups.SetPods(*k.PodPidsLimit, *k.CPUCFSQuota, k.CPUCFSQuotaPeriod.Duration)
	}
	if a.rotator != nil {
		rotation := a.logRotation()
		a.rotator.SetLimits(rotation.Limits())
	}
	a.resolver.Set(a.resolvConf(k), k.ClusterDomain)
	a.facts.Forget()
	if a.staticPods != nil && (k.StaticPodPath != before.StaticPodPath || k.FileCheckFrequency != before.FileCheckFrequency) {
		select {
		case <-a.staticPods: // remove an older value that the source has not received yet
		default:
		}
		a.staticPods <- source.Location{Path: k.StaticPodPath, Period: k.FileCheckFrequency.Duration}
	}
	if a.deps.SetVerbosity != nil && slices.Contains(fields, "logging.verbosity") {
		if err := a.deps.SetVerbosity(strconv.Itoa(int(k.Logging.Verbosity))); err != nil {
			a.log.Warn("logging.verbosity not changed", "err", err)
		}
	}
	return nil
}

// followNode gives the new configuration to the parts that compute the node's status and that evict pods.
func (a *Agent) followNode(k *kubelet.KubeletConfiguration, settings nodestatus.Settings) {
	a.node.SetSettings(settings)
	a.evictor.SetPolicy(a.evictionPolicy(k, settings.Thresholds))
	if a.heartbeat != nil {
		a.heartbeat.Now()
	}
}

// setRate returns a function that sets the rate and the burst of a limiter. Requests that already wait are not affected.
func setRate(l *rate.Limiter) func(limit rate.Limit, burst int) {
	return func(limit rate.Limit, burst int) {
		// Without a limit (rate.Inf) the burst may be 0. SetBurst is not called then, because burst 0 together with the old rate would
		// make requests fail.
		if limit != rate.Inf {
			l.SetBurst(burst)
		}
		l.SetLimit(limit)
	}
}

// sayReconfigured logs the fields that have changed and records an event. It does the same for the fields that wait for a restart, unless
// it has already reported the same fields.
func (a *Agent) sayReconfigured(r *Reconfigured) {
	if len(r.Changed) > 0 {
		text := strings.Join(r.Changed, ", ")
		a.log.Info("the configuration has changed", "fields", text)
		a.events.NodeEvent(v1.EventTypeNormal, reasonReconfigured, "These fields have new values now: "+text)
	}
	var waits []string
	for field, why := range r.Waiting {
		waits = append(waits, field+" ("+why+")")
	}
	slices.Sort(waits)
	text := strings.Join(waits, "; ")
	if text == a.live.waiting {
		return
	}
	a.live.waiting = text
	if text == "" {
		a.log.Info("no change of the configuration waits for a restart any more")
		return
	}
	a.log.Warn("changes of the configuration wait for a restart of the agent", "fields", text)
	a.events.NodeEvent(v1.EventTypeWarning, reasonNeedsRestart, "These fields keep their values until the agent is restarted: "+text)
}

// RefuseConfiguration logs, and reports as an event on the node, that a new configuration is not valid and that nothing has
// changed.
func (a *Agent) RefuseConfiguration(err error) {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	a.log.Error("the new configuration is not valid, the one in effect stays", "err", err)
	a.metrics.ConfigRead(false)
	if a.live.running {
		a.events.NodeEvent(v1.EventTypeWarning, reasonInvalidConfig, "The configuration in effect stays: "+err.Error())
	}
}
