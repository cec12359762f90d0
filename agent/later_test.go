package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// The agent reads some configuration fields each time that it needs them, not only when it is built. The test changes each such field and
// checks that a value that depends on the field changes.
func TestFieldsThatAreReadLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rotates := func(a *Agent) any {
		c := a.logRotation()
		return []any{c.MaxSize, c.MaxFiles, c.Workers, c.Interval}
	}
	admits := func(a *Agent) any {
		p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.core.somaxconn", Value: "1"}}}}}
		return a.admit(p, nil)
	}
	spec := func(a *Agent) any { return a.specPolicy(&v1.Node{}) }
	thresholds := func(a *Agent) any { // of the console, and for the memory of all pods
		var shown []string
		for _, t := range (&looker{a: a}).measured(t.Context()).Thresholds {
			shown = append(shown, t.String())
		}
		return []any{shown, a.podsWanted(8 << 30)}
	}
	for field, c := range map[string]struct {
		set  func(k *kubelet.KubeletConfiguration)
		seen func(a *Agent) any
	}{
		"memorySwap.swapBehavior": {func(k *kubelet.KubeletConfiguration) { k.MemorySwap.SwapBehavior = "LimitedSwap" }, spec},
		"memoryThrottlingFactor":  {func(k *kubelet.KubeletConfiguration) { *k.MemoryThrottlingFactor = 0.7 }, spec},
		"singleProcessOOMKill":    {func(k *kubelet.KubeletConfiguration) { *k.SingleProcessOOMKill = true }, spec},
		"seccompDefault":          {func(k *kubelet.KubeletConfiguration) { *k.SeccompDefault = true }, spec},
		"allowedUnsafeSysctls":    {func(k *kubelet.KubeletConfiguration) { k.AllowedUnsafeSysctls = []string{"net.*"} }, admits},
		"evictionHard":            {func(k *kubelet.KubeletConfiguration) { k.EvictionHard = map[string]string{"memory.available": "300Mi"} }, thresholds},
		"evictionMinimumReclaim": {func(k *kubelet.KubeletConfiguration) {
			k.EvictionMinimumReclaim = map[string]string{"memory.available": "1Gi"}
		}, func(a *Agent) any { return a.podsWanted(8 << 30) }},
		"clusterDNS":                  {func(k *kubelet.KubeletConfiguration) { k.ClusterDNS = []string{"10.7.7.7"} }, func(a *Agent) any { return a.performFacts().ClusterDNS }},
		"containerLogMaxSize":         {func(k *kubelet.KubeletConfiguration) { k.ContainerLogMaxSize = "7Mi" }, rotates},
		"containerLogMaxFiles":        {func(k *kubelet.KubeletConfiguration) { *k.ContainerLogMaxFiles = 7 }, rotates},
		"containerLogMaxWorkers":      {func(k *kubelet.KubeletConfiguration) { *k.ContainerLogMaxWorkers = 7 }, rotates},
		"containerLogMonitorInterval": {func(k *kubelet.KubeletConfiguration) { k.ContainerLogMonitorInterval.Duration *= 2 }, rotates},
		"fileCheckFrequency":          {func(k *kubelet.KubeletConfiguration) { k.FileCheckFrequency.Duration *= 2 }, func(a *Agent) any { return a.manifestDir().Period }},
		"httpCheckFrequency":          {func(k *kubelet.KubeletConfiguration) { k.HTTPCheckFrequency.Duration *= 2 }, func(a *Agent) any { return a.manifestURL().Period }},
		"staticPodURLHeader":          {func(k *kubelet.KubeletConfiguration) { k.StaticPodURLHeader = map[string][]string{"A": {"b"}} }, func(a *Agent) any { return a.manifestURL().Header }},
	} {
		// see changes the field and returns the value that depends on it. If live is false, the agent starts with the changed field; if
		// live is true, the field changes after the agent's start.
		see := func(live bool, set func(k *kubelet.KubeletConfiguration)) any {
			r := simcri.New(simcri.Config{})
			defer r.Close()
			cfg := Config{NodeName: "n", RootDir: dir, Kubelet: DefaultConfiguration()}
			no := false
			cfg.Kubelet.FeatureGates = map[string]bool{"MemoryQoS": true}
			cfg.Kubelet.SingleProcessOOMKill, cfg.Kubelet.StaticPodPath, cfg.Kubelet.StaticPodURL = &no, "/manifests", "http://127.0.0.1:1/"
			if !live {
				set(&cfg.Kubelet)
			}
			deps := Deps{Machine: RealMachine(), Log: slog.New(slog.DiscardHandler)}
			deps.Runtime, deps.Images = r.Clients()
			a, err := New(cfg, deps)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.build(); err != nil {
				t.Fatal(err)
			}
			if live {
				if err := a.MakeParts(); err != nil {
					t.Fatal(err)
				}
				next := cfg
				next.Kubelet = *cfg.Kubelet.DeepCopy()
				set(&next.Kubelet)
				if _, err := a.Reconfigure(next); err != nil {
					t.Fatal(err)
				}
			}
			return c.seen(a)
		}
		if _, works := config.Honoured()[field]; !works {
			t.Errorf("%s is not honoured", field)
		}
		usual, set := fmt.Sprintf("%+v", see(false, func(*kubelet.KubeletConfiguration) {})), fmt.Sprintf("%+v", see(false, c.set))
		if again := fmt.Sprintf("%+v", see(false, func(*kubelet.KubeletConfiguration) {})); usual != again {
			t.Fatalf("%s: what is compared differs without a change: %s, %s", field, usual, again)
		}
		if usual == set {
			t.Errorf("%s changes nothing: %s", field, set)
		}
		if slices.Contains(config.LiveFields(), field) && field != "fileCheckFrequency" { // TestDirGoesToAnotherLocation covers this field
			if live := fmt.Sprintf("%+v", see(true, c.set)); live != set {
				t.Errorf("%s: changed while the agent runs: %s, at its start: %s", field, live, set)
			}
		}
	}
}
