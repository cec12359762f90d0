package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSimulatedKubelet(t *testing.T) {
	t.Parallel()
	k, problems := SimulatedKubelet(map[string]any{"maxPods": 250, "evictionHard": map[string]any{"memory.available": "5%"}})
	if problems != nil {
		t.Fatal(problems)
	}
	if k.MaxPods != 250 || k.EvictionHard["memory.available"] != "5%" || k.NodeLeaseDurationSeconds != 40 {
		t.Errorf("maxPods %d, evictionHard %v, nodeLeaseDurationSeconds %d", k.MaxPods, k.EvictionHard, k.NodeLeaseDurationSeconds)
	}
	_, problems = SimulatedKubelet(map[string]any{"maxPods": -1, "registryBurst": -2, "evictionHard": map[string]any{"memory.available": "much"}})
	var paths []string
	for _, p := range problems {
		paths = append(paths, p.Path)
	}
	if diff := cmp.Diff([]string{"registryBurst", "maxPods", "evictionHard[memory.available]"}, paths); diff != "" {
		t.Errorf("%s\n%v", diff, problems)
	}
}
