package syncloop

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/probe"
)

// Probes passes the running containers to package probe, and the results of their probes to the workers.
type Probes struct {
	Probes *probe.Probes
	// HostIPs returns the addresses at which host-network pods are probed.
	HostIPs func() []string
}

var _ Prober = (*Probes)(nil)

// Forget ends the probes of a pod.
func (s *Probes) Forget(uid types.UID) { s.Probes.Forget(uid) }

// Sync starts and stops probes so that they match the pod's running containers, and sets results to their present results. A
// container without probes is started and ready as soon as it runs and its postStart hook is done.
func (s *Probes) Sync(p *v1.Pod, obs *pod.Observed, m *decide.Memory, results *decide.ProbeResults) {
	var targets []probe.Target
	critical := crispec.IsCritical(p)
	ending := p.DeletionTimestamp != nil || m.Stop != nil || !m.StopBegan.IsZero()
	for c := range crispec.Containers(p) {
		inst := obs.Newest(c.Name)
		if inst == nil || inst.State != pod.StateRunning {
			continue
		}
		before := results.Of(inst)
		known := initial(p, before, inst)
		if !decide.PostStartDone(c, m.Container(c.Name), before, inst) && (known == nil || !known.Started) {
			continue
		}
		if c.StartupProbe == nil && c.LivenessProbe == nil && c.ReadinessProbe == nil {
			results.Set(decide.Probed{Name: c.Name, ID: inst.ID, Started: true, Ready: true})
			continue
		}
		kind, _, _ := pod.KindOf(p, c.Name)
		targets = append(targets, probe.Target{
			ContainerID: inst.ID, Spec: c, Host: s.host(p, obs), StartedAt: inst.StartedAt,
			Initial: known, Terminating: ending || m.Ends.Unhealthy(inst.ID), Critical: critical, List: kind,
		})
	}
	s.Probes.Set(pod.RefOf(p), targets)
	for _, t := range targets {
		if r, ok := s.Probes.Result(p.UID, t.ContainerID); ok {
			results.Set(decide.Probed{Name: t.Spec.Name, ID: t.ContainerID, Started: r.Started, Ready: r.Ready, Failed: failed(r)})
		}
	}
}

// failed returns the probe that made a container unhealthy.
func failed(r probe.State) decide.FailedProbe {
	switch {
	case !r.Unhealthy:
		return decide.FailedProbe{}
	case r.Kind == probe.Startup:
		return decide.FailedProbe{Cause: pod.CauseStartup, Grace: r.Grace}
	}
	return decide.FailedProbe{Cause: pod.CauseLiveness, Grace: r.Grace}
}

// loopback is where a pod in the node's network answers while no address of the node is known.
const loopback = "127.0.0.1"

// host returns the address of a pod; "": it has none yet.
func (s *Probes) host(p *v1.Pod, obs *pod.Observed) string {
	ips := s.HostIPs()
	switch {
	case p.Spec.HostNetwork && len(ips) == 0:
		return loopback
	case !p.Spec.HostNetwork:
		var own []string
		if sb := obs.NewestSandbox(); sb != nil {
			own = pod.Addresses(sb.IPs, ips)
		}
		ips = own
	}
	if len(ips) == 0 {
		return ""
	}
	return ips[0]
}

// initial returns the started and ready state that the API has for exactly this container, or nil. An agent that has just started
// continues from it, so that readiness does not flap. For a static pod the state may become known late, because the mirror has
// it.
func initial(p *v1.Pod, heard decide.Probed, inst *pod.Container) *probe.Initial {
	if heard.ID != "" && !pod.IsStatic(p) {
		return nil
	}
	st := pod.StatusOf(&p.Status, inst.Name)
	if st == nil || !decide.SameContainer(st.ContainerID, inst.ID) {
		return nil
	}
	return &probe.Initial{Started: st.Started != nil && *st.Started, Ready: st.Ready}
}
