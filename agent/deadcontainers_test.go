package agent

import "testing"

// --maximum-dead-containers-per-container=0 keeps no dead attempt beside the newest one; the default is 1.
func TestDeadContainers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  *int
		want int
	}{"default": {nil, 1}, "none": {new(0), 0}, "all": {new(-1), -1}} {
		cfg := Config{NodeName: "n", Kubelet: DefaultConfiguration(), DeadContainers: c.set}
		cfg.setDefaults()
		if got := decidePolicy(&cfg, &cfg.Kubelet).DeadContainersPerContainer; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
