package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// HostFacts is what a configuration can object to in a machine.
type HostFacts struct {
	CgroupV2 bool
	// Swap are the devices and files that swap is on.
	Swap []string
}

// ReadHostFacts looks at the machine that it runs on.
func ReadHostFacts() (HostFacts, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return HostFacts{}, fmt.Errorf("look at /sys/fs/cgroup: %w", err)
	}
	facts := HostFacts{CgroupV2: fs.Type == unix.CGROUP2_SUPER_MAGIC}
	data, err := os.ReadFile("/proc/swaps")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without swap has no such file
		return facts, fmt.Errorf("look for swap: %w", err)
	}
	facts.Swap = parseSwaps(string(data))
	return facts, nil
}

func parseSwaps(s string) []string {
	var devices []string
	for i, line := range strings.Split(s, "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 0 {
			devices = append(devices, f[0])
		}
	}
	return devices
}

// CheckHost refuses a machine that the configuration says to refuse: failCgroupV1 and failSwapOn. It does not apply to a
// simulated node.
func (c Config) CheckHost(h HostFacts) error {
	if c.Simulated != nil {
		return nil
	}
	var errs []error
	if *c.Kubelet.FailCgroupV1 && !h.CgroupV2 {
		errs = append(errs, errors.New("failCgroupV1 (--fail-cgroupv1): this machine has cgroup v1, which Kubernetes no longer supports: "+
			"boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false to run all the same"))
	}
	if *c.Kubelet.FailSwapOn && len(h.Swap) > 0 {
		errs = append(errs, fmt.Errorf("failSwapOn (--fail-swap-on): swap is on (%s): turn it off with swapoff -a, or set failSwapOn: false to run all the same",
			strings.Join(h.Swap, ", ")))
	}
	return errors.Join(errs...)
}
