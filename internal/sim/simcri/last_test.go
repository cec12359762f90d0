package simcri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A message is shared only if it says the same as the last one.
func TestSame(t *testing.T) {
	t.Parallel()
	made := func(change func(*runtimeapi.LinuxContainerResources)) *runtimeapi.LinuxContainerResources {
		m := &runtimeapi.LinuxContainerResources{
			CpuShares: 2, Unified: map[string]string{"a": "b"}, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}},
		}
		if change != nil {
			change(m)
		}
		return m
	}
	var last *runtimeapi.LinuxContainerResources
	if same(&last, nil) != nil {
		t.Error("there was nothing, and now there is something")
	}
	first := made(nil)
	if same(&last, first) != first || same(&last, made(nil)) != first {
		t.Error("an equal message is kept twice")
	}
	for what, change := range map[string]func(*runtimeapi.LinuxContainerResources){
		"number":      func(m *runtimeapi.LinuxContainerResources) { m.CpuShares = 3 },
		"map":         func(m *runtimeapi.LinuxContainerResources) { m.Unified["a"] = "c" },
		"in list":     func(m *runtimeapi.LinuxContainerResources) { m.HugepageLimits[0].Limit = 2 },
		"longer list": func(m *runtimeapi.LinuxContainerResources) { m.HugepageLimits = append(m.HugepageLimits, nil) },
	} {
		last = first
		if m := made(change); same(&last, m) != m || last != m {
			t.Errorf("%s: another message is not kept", what)
		}
	}
	if same(&last, nil) != nil {
		t.Error("no message became one")
	}
}
