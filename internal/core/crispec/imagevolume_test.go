package crispec

import "testing"

func TestImageVolumes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		runtime, version string
		can, sub         bool
	}{
		{"containerd", "1.7.27", false, false}, {"containerd", "v2.0.5", false, false}, {"containerd", "v2.1.0-rc.1", true, false},
		{"containerd", "v2.2.0", true, true}, {"containerd", "2.10.1", true, true}, {"containerd", "v3.0.0", true, true},
		{"containerd", "3fa5e1b.m", true, true}, {"containerd", "", true, true},
		{"cri-o", "1.30.9", false, false}, {"cri-o", "1.31.0", true, false}, {"cri-o", "1.36.0", true, true},
		{"simulated", "0.1", true, true},
	} {
		if can, sub := ImageVolumes(c.runtime, c.version); can != c.can || sub != c.sub {
			t.Errorf("%s %s: %v %v, want %v %v", c.runtime, c.version, can, sub, c.can, c.sub)
		}
	}
}
