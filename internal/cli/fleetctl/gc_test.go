package fleetctl

import "testing"

func TestPercentOf(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		live, rate, free uint64
		want             int
	}{
		"a process that has just started":  {0, 100 * mib, 1000 * mib, 50},
		"at rest":                          {400 * mib, 5 * mib, 8000 * mib, 50},
		"2,000 nodes at rest":              {400 * mib, 33 * mib, 8000 * mib, 50},
		"busy: collections every 10 s":     {400 * mib, 90 * mib, 8000 * mib, 225},
		"very busy":                        {400 * mib, 600 * mib, 80000 * mib, 300},
		"busy on a machine without memory": {400 * mib, 90 * mib, 1000 * mib, 62},
		"no free memory":                   {400 * mib, 90 * mib, 0, 50},
	} {
		if got := percentOf(tt.live, tt.rate, tt.free); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
