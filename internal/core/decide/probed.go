package decide

import "github.com/wherry-node/wherry/internal/core/pod"

// Probed has the results of the probes of one container instance. The results of another instance do not count.
type Probed struct {
	Name string // the container's name
	ID   string // the container ID of the instance
	// Started: there is no startup probe, or it has succeeded. Ready: the container is started, and it has no readiness probe or
	// the probe succeeds.
	Started bool
	Ready   bool
	Failed  FailedProbe
}

// FailedProbe is the failed probe because of which a container has to be restarted. The zero value: none has failed.
type FailedProbe struct {
	Cause pod.Cause // pod.CauseLiveness or pod.CauseStartup
	Grace *int64    // the probe's own terminationGracePeriodSeconds; nil: it has none
}

// ProbeResults has the results of the probes of a pod, by container. Only the prober writes it. The results are not kept when the agent
// is restarted; the next agent takes them from the API status.
type ProbeResults []Probed

// Of returns the probe results of a container instance, or the zero value if there are none.
func (r ProbeResults) Of(inst *pod.Container) Probed {
	for i := range r {
		if r[i].ID == inst.ID {
			return r[i]
		}
	}
	return Probed{}
}

// Set replaces the probe results of a container.
func (r *ProbeResults) Set(p Probed) {
	for i := range *r {
		if (*r)[i].Name == p.Name {
			(*r)[i] = p
			return
		}
	}
	*r = append(*r, p)
}
