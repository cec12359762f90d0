package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/cpuset"
)

// HostFacts are the properties of a machine that CheckHost compares with the configuration.
type HostFacts struct {
	CgroupV2 bool
	// Swap are the devices and files that are in use as swap.
	Swap []string
	// Kernel has the values of KernelSettings. A setting that cannot be read is missing.
	Kernel map[string]string
	// CPUs is the list of the CPUs that are online, for example 0-3,8; "": not known.
	CPUs string
}

// KernelSetting is a kernel setting with the value that Kubernetes requires on a node.
type KernelSetting struct{ Name, Value string }

// File returns the setting's file below root, which is /proc/sys.
func (s KernelSetting) File(root string) string {
	return filepath.Join(root, filepath.FromSlash(strings.ReplaceAll(s.Name, ".", "/")))
}

// KernelSettings returns the settings of protectKernelDefaults. They allow memory overcommit, make an out-of-memory kill end a
// process instead of the machine, reboot the machine after a kernel panic, and give each container room for its session key.
func KernelSettings() []KernelSetting {
	return []KernelSetting{
		{"vm.overcommit_memory", "1"}, {"vm.panic_on_oom", "0"}, {"kernel.panic", "10"}, {"kernel.panic_on_oops", "1"},
		{"kernel.keys.root_maxkeys", "1000000"}, {"kernel.keys.root_maxbytes", "25000000"},
	}
}

// ReadHostFacts reads the facts of this machine.
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
	if online, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		facts.CPUs = strings.TrimSpace(string(online))
	}
	facts.Kernel = map[string]string{}
	for _, s := range KernelSettings() {
		if value, err := os.ReadFile(s.File("/proc/sys")); err == nil {
			facts.Kernel[s.Name] = strings.TrimSpace(string(value))
		}
	}
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

// CheckHost returns an error if the configuration refuses this machine: failCgroupV1, failSwapOn, protectKernelDefaults, and CPUs in
// reservedSystemCPUs that the machine does not have. It accepts every machine for a simulated node.
func (c Config) CheckHost(h HostFacts) error {
	if c.Simulated != nil {
		return nil
	}
	var errs []error
	if *c.Kubelet.FailCgroupV1 && !h.CgroupV2 {
		errs = append(errs, errors.New("failCgroupV1 (--fail-cgroupv1): this machine has cgroup v1, which Kubernetes no longer supports: "+
			"boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1: false to run nevertheless"))
	}
	if *c.Kubelet.FailSwapOn && len(h.Swap) > 0 {
		errs = append(errs, fmt.Errorf("failSwapOn (--fail-swap-on): swap is on (%s): turn it off with swapoff -a, or set failSwapOn: false to run nevertheless",
			strings.Join(h.Swap, ", ")))
	}
	if c.Kubelet.ProtectKernelDefaults {
		errs = append(errs, checkKernel(h.Kernel))
	}
	errs = append(errs, checkReservedCPUs(c.Kubelet.ReservedSystemCPUs, h.CPUs))
	return errors.Join(errs...)
}

// checkReservedCPUs returns an error if a reserved CPU is not online. Their number is subtracted from what pods may use, so a wrong list would leave
// too little for them.
func checkReservedCPUs(reserved, online string) error {
	want, err := cpuset.Parse(reserved)
	if err != nil || reserved == "" { // Load has refused a wrong list
		return nil
	}
	have, err := cpuset.Parse(online)
	if err != nil || online == "" || want.IsSubsetOf(have) {
		return nil
	}
	return fmt.Errorf("reservedSystemCPUs (--reserved-cpus): %s: this machine has no CPU %s, only %s: correct the list", reserved, want.Difference(have), have)
}

// checkKernel returns an error that names each kernel setting with a wrong value.
func checkKernel(has map[string]string) error {
	var wrong, lines []string
	for _, s := range KernelSettings() {
		switch value, ok := has[s.Name]; {
		case !ok:
			wrong = append(wrong, s.Name+" cannot be read")
		case value != s.Value:
			wrong = append(wrong, s.Name+" is "+value)
		default:
			continue
		}
		lines = append(lines, s.Name+"="+s.Value)
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("protectKernelDefaults (--protect-kernel-defaults): %s: put %s into a file in /etc/sysctl.d and run sysctl --system, or set protectKernelDefaults: false and the agent sets them",
		strings.Join(wrong, ", "), strings.Join(lines, ", "))
}
