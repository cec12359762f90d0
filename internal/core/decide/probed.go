package decide

import "github.com/wherry-node/wherry/internal/core/pod"

// Probed is what the probes of one container instance have said. One of another instance says nothing.
type Probed struct {
	Name string // the container's
	ID   string // the instance's
	// Started: there is no startup probe, or it has succeeded. Ready: started, and there is no readiness probe or it says so.
	Started bool
	Ready   bool
	Failed  FailedProbe
}

// FailedProbe is the probe for whose failure a container has to be restarted; the zero value: none has failed.
type FailedProbe struct {
	Cause pod.Cause // pod.CauseLiveness or pod.CauseStartup
	Grace *int64    // the probe's own terminationGracePeriodSeconds; nil: it has none
}

// ProbeResults is what the probes of a pod have said, by container. The prober writes it, and it lives as long as the agent: the
// next one continues from the API status.
type ProbeResults []Probed

// Of returns what was said of a container instance; the zero value: nothing.
func (r ProbeResults) Of(inst *pod.Container) Probed {
	for i := range r {
		if r[i].ID == inst.ID {
			return r[i]
		}
	}
	return Probed{}
}

// Set replaces what was said of a container.
func (r *ProbeResults) Set(p Probed) {
	for i := range *r {
		if (*r)[i].Name == p.Name {
			(*r)[i] = p
			return
		}
	}
	*r = append(*r, p)
}
