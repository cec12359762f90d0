package config

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// No field of KubeletConfiguration is dropped in silence: each is in the table, and the table has no other.
func TestEveryFieldIsKnown(t *testing.T) {
	t.Parallel()
	var want []string
	for path := range leaves(reflect.TypeFor[kubelet.KubeletConfiguration]()) {
		want = append(want, path)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("fields of KubeletConfiguration against the table (-type +table):\n%s", diff)
	}
}

// Every flag that is a field names one that exists.
func TestFlagsNameFields(t *testing.T) {
	t.Parallel()
	cfg := baseConfig()
	for flag, path := range newFlagSet(&cfg).field {
		if _, ok := fields[path]; !ok {
			t.Errorf("--%s sets %s, which is no field", flag, path)
		}
	}
}

// Defaults applied twice change nothing, and the defaults are valid.
func TestDefaultsSettle(t *testing.T) {
	t.Parallel()
	once := baseConfig()
	twice := once.Kubelet.DeepCopy()
	setDefaults(twice, Gates{})
	if diff := cmp.Diff(once.Kubelet, *twice); diff != "" {
		t.Errorf("(-once +twice):\n%s", diff)
	}
	if errs := validate(&once, nil); len(errs) > 0 {
		t.Errorf("defaults are not valid: %v", errs)
	}
}
