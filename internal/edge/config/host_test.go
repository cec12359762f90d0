package config_test

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

func TestCheckHost(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t)
	err := cfg.CheckHost(config.HostFacts{Swap: []string{"/dev/sda2"}})
	for _, want := range []string{"failCgroupV1 (--fail-cgroupv1)", "failSwapOn (--fail-swap-on): swap is on (/dev/sda2)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	cfg, _ = load(t, "--fail-swap-on=false", "--fail-cgroupv1=false")
	if err := cfg.CheckHost(config.HostFacts{Swap: []string{"/dev/sda2"}}); err != nil {
		t.Error(err)
	}
}

// With protectKernelDefaults the error names each kernel setting that is missing or has another value. The machine passes if
// all settings are right, or if the field is off.
func TestCheckHostKernel(t *testing.T) {
	t.Parallel()
	right := map[string]string{}
	for _, s := range config.KernelSettings() {
		right[s.Name] = s.Value
	}
	wrong := maps.Clone(right)
	wrong["kernel.panic"] = "0"
	delete(wrong, "kernel.keys.root_maxkeys")
	for _, protect := range []bool{true, false} {
		cfg, _ := load(t, "--fail-cgroupv1=false", "--protect-kernel-defaults="+strconv.FormatBool(protect))
		if err := cfg.CheckHost(config.HostFacts{Kernel: right}); err != nil {
			t.Errorf("protectKernelDefaults %t: %v", protect, err)
		}
		err := cfg.CheckHost(config.HostFacts{Kernel: wrong})
		if !protect {
			if err != nil {
				t.Errorf("protectKernelDefaults false: %v", err)
			}
			continue
		}
		const want = "protectKernelDefaults (--protect-kernel-defaults): kernel.panic is 0, kernel.keys.root_maxkeys cannot be read: put kernel.panic=10, kernel.keys.root_maxkeys=1000000 into"
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	cfg, _ := load(t, "--protect-kernel-defaults", "--container-runtime-endpoint=simulated://")
	if err := cfg.CheckHost(config.HostFacts{}); err != nil {
		t.Errorf("a simulated machine: %v", err)
	}
}

// CPUs that the machine does not have cannot be reserved: their number would be missing to the pods.
func TestCheckHostReservedCPUs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reserved, online, want string }{
		{"0-1", "0-7", ""}, {"", "0-7", ""}, {"0-63", "", ""},
		{"0,6-9", "0-7", "reservedSystemCPUs (--reserved-cpus): 0,6-9: this machine has no CPU 8-9, only 0-7: correct the list"},
	} {
		cfg, _ := load(t, "--fail-cgroupv1=false", "--reserved-cpus="+c.reserved)
		err := cfg.CheckHost(config.HostFacts{CPUs: c.online})
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%q of %q: %v, want %q", c.reserved, c.online, err, c.want)
		}
	}
}

// A setting is an error if ignoring it would make the node less safe. The error has the remedy. Values that change nothing are
// accepted, and so are gates that AllBeta turns on.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	const quotas = "featureGates.LocalStorageCapacityIsolationFSQuotaMonitoring"
	for _, c := range []struct{ arg, want string }{
		{"--feature-gates=LocalStorageCapacityIsolationFSQuotaMonitoring=true", quotas},
		{"--feature-gates=LocalStorageCapacityIsolationFSQuotaMonitoring=false", ""},
		{"--feature-gates=AllBeta=true", ""},
		{"--allow-privileged=false", "--allow-privileged"},
		{"--allow-privileged=true", ""},
		{"--allow-privileged", ""},
		{"--host-network-sources=file", "--host-network-sources"},
		{"--host-pid-sources=", "--host-pid-sources"},
		{"--host-ipc-sources=*", ""},
	} {
		_, _, err := config.Load([]string{c.arg})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want one that names %q", c.arg, err, c.want)
		}
	}
	_, _, err := config.Load([]string{"--feature-gates=LocalStorageCapacityIsolationFSQuotaMonitoring=true", "--allow-privileged=false", "--port=-1"})
	for _, want := range []string{quotas, "--allow-privileged", "port"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not every bad value is in the error: %v lacks %s", err, want)
		}
	}
}
