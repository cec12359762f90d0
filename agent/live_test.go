package agent_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// liveFlips replaces entries of flips whose change is not possible while the agent runs by changes that are.
var liveFlips = map[string]struct{ from, to string }{
	"staticPodPath": {"staticPodPath: /before", "staticPodPath: /manifests"},
}

// seenElsewhere are fields that can change while the agent runs, but whose values no part of the agent stores, so a dump of the agent
// does not show a change. TestFieldsThatAreReadLater tests the first six; TestReconfigureStaticPodPath, TestDirGoesToAnotherLocation and
// TestReconfigureVerbosity test the others.
var seenElsewhere = []string{
	"allowedUnsafeSysctls", "clusterDNS", "memoryThrottlingFactor", "memorySwap.swapBehavior", "seccompDefault", "singleProcessOOMKill",
	"staticPodPath", "fileCheckFrequency", "logging.verbosity",
}

// Each field that package config lists as changeable while the agent runs has an effect. After Reconfigure with another value of the
// field, the dump of some part of the agent must differ from the dump without the change.
func TestLiveFields(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agent.WriteIdentity(t, dir)
	reconfigured := func(from, to string) string {
		a, free := prepared(t, configured(t, dir, from), from)
		defer free()
		if err := a.MakeParts(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Reconfigure(configured(t, dir, to)); err != nil {
			t.Fatalf("%s: %v", to, err)
		}
		return dumped(a)
	}
	unstable := map[string]bool{}
	usual := reconfigured("", "")
	for range 4 {
		maps.Copy(unstable, changes(usual, reconfigured("", "")))
	}
	for _, path := range config.LiveFields() {
		flip, special := liveFlips[path]
		if !special {
			flip = flips[path]
		}
		if flip.to == "" {
			t.Errorf("%s: add another value to flips", path)
			continue
		}
		changed := changes(reconfigured(flip.from, flip.from), reconfigured(flip.from, flip.to))
		maps.DeleteFunc(changed, func(place string, _ bool) bool { return unstable[place] || strings.HasPrefix(place, "agent.live.") })
		if len(changed) == 0 && !slices.Contains(seenElsewhere, path) {
			t.Errorf("%s: live, but no part of the agent has changed", path)
		}
	}
}

// If a changed field cannot take effect while the agent runs, the result of Reconfigure names the field, and the agent keeps the old
// value.
func TestFieldsThatWaitForARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agent.WriteIdentity(t, dir)
	a, free := prepared(t, configured(t, dir, ""), "")
	defer free()
	if _, err := a.Reconfigure(configured(t, dir, "maxPods: 7")); err == nil {
		t.Error("an agent that does not run yet was reconfigured")
	}
	if err := a.MakeParts(); err != nil {
		t.Fatal(err)
	}
	live := config.LiveFields()
	for path, flip := range flips {
		if slices.Contains(live, path) || flip.from != "" {
			continue
		}
		got, err := a.Reconfigure(configured(t, dir, flip.to))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got.Waiting[path] == "" || slices.Contains(got.Changed, path) {
			t.Errorf("%s is not among the fields that wait: %+v", path, got)
		}
	}
	if got, err := a.Reconfigure(configured(t, dir, "")); err != nil || len(got.Changed)+len(got.Waiting) > 0 {
		t.Errorf("what the agent was started with: %+v, %v", got, err)
	}
}

// Settings of --wherry-config that the running agent cannot change are named, like the fields of KubeletConfiguration.
func TestOwnSettingsThatWaitForARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	agent.WriteIdentity(t, dir)
	a, free := prepared(t, configured(t, dir, ""), "")
	defer free()
	if err := a.MakeParts(); err != nil {
		t.Fatal(err)
	}
	for setting, change := range map[string]func(*agent.Config){
		"server": func(c *agent.Config) { c.Server.ReviewQPS = 77 }, "controlSocket": func(c *agent.Config) { c.ControlSocket = "/run/other.sock" },
		"console": func(c *agent.Config) { c.Console = !c.Console }, "flightRecorder": func(c *agent.Config) { c.RecordBytes = 1 << 20 },
		"offlineStart": func(c *agent.Config) { c.OfflineStart.Enabled = true },
	} {
		next := configured(t, dir, "")
		change(&next)
		got, err := a.Reconfigure(next)
		if want := setting + " (--wherry-config)"; err != nil || len(got.Waiting) != 1 || got.Waiting[want] == "" {
			t.Errorf("%s: waiting are %v, %v", setting, got.Waiting, err)
		}
	}
}

// After Reconfigure, the verbosity of the log is the new logging.verbosity, if the log's verbosity can be set.
func TestReconfigureVerbosity(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{})
	defer r.Close()
	var set []string
	deps := agent.Deps{
		Machine: agent.SimulatedMachine(agent.Shape{}), Log: slog.New(slog.DiscardHandler),
		SetVerbosity: func(v string) error { set = append(set, v); return nil },
	}
	deps.Runtime, deps.Images = r.Clients()
	cfg := agent.Config{NodeName: "n", Kubelet: agent.DefaultConfiguration()}
	cfg.Kubelet.EnableServer = new(false)
	a, err := agent.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Build(); err != nil {
		t.Fatal(err)
	}
	if err := a.MakeParts(); err != nil {
		t.Fatal(err)
	}
	next := cfg
	next.Kubelet = *cfg.Kubelet.DeepCopy()
	for _, level := range []int{5, 5, 0} {
		next.Kubelet.Logging.Verbosity = logsapi.VerbosityLevel(level)
		if _, err := a.Reconfigure(next); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(set, []string{"5", "0"}) {
		t.Errorf("set to %q", set)
	}
}
