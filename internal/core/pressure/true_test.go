package pressure

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A message that names several conditions must not change from one time to the next.
func TestConditionsThatAreTrueHaveOneOrder(t *testing.T) {
	t.Parallel()
	for want, r := range map[v1.NodeConditionType]Result{
		"":                            {Memory: False, Disk: Unknown, PID: False},
		"DiskPressure":                {Disk: True},
		"MemoryPressure DiskPressure": {Memory: True, Disk: True, PID: Unknown},
		"MemoryPressure DiskPressure PIDPressure": {Memory: True, Disk: True, PID: True},
	} {
		var got v1.NodeConditionType
		for i, c := range r.True() {
			if i > 0 {
				got += " "
			}
			got += c
		}
		if got != want || !slices.Equal(r.True(), r.True()) {
			t.Errorf("%v: %q, want %q", r, got, want)
		}
	}
}
