package work

import (
	"time"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// meter starts to count processor time. The function add adds the time that was used since then to the samples, per pod and by component.
// agent is the agent's process ID; 0: none.
func meter(r *rig.Rig, agent int) (add func(s Samples, what string, pods int) error, err error) {
	before, err := r.CPU(agent)
	if err != nil {
		return nil, err
	}
	return func(s Samples, what string, pods int) error {
		after, err := r.CPU(agent)
		if err != nil {
			return err
		}
		used := after.Sub(before)
		for _, part := range []struct {
			name string
			d    time.Duration
		}{
			{"all", used.All()}, {"containerd", used.Containerd}, {"programs", used.Programs}, {"shims", used.Shims},
			{"API", used.API}, {"etcd", used.Etcd}, {"plane", used.Plane}, {"agent", used.Agent}, {"bench", used.Bench},
		} {
			if part.name == "agent" && agent == 0 {
				continue
			}
			s.add(what+", "+part.name, part.d.Seconds()/float64(pods))
		}
		return nil
	}, nil
}
