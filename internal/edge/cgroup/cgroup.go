package cgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// These are the cgroup drivers. A driver decides who creates the cgroups: this package (cgroupfs) or systemd. The runtime must use
// the same driver.
const (
	DriverCgroupfs = "cgroupfs"
	DriverSystemd  = "systemd"
)

var (
	// ErrBusy means that a cgroup still has processes. Try again when they have ended.
	ErrBusy = errors.New("processes remain")
	// ErrNotEnforced means that a limit on the cgroups above pods could not be set, for example because the pods use more memory
	// than it allows. Pods still run. Call SetUpNode again later.
	ErrNotEnforced = errors.New("limits are not enforced")
)

// Config configures Cgroups.
type Config struct {
	// Root is the cgroup that contains all others, as KubeletConfiguration.cgroupRoot. "" or "/" means the top. It must exist.
	Root   string
	Driver string
	// PerQOS is KubeletConfiguration.cgroupsPerQOS. If false, no cgroup is created, and containers go directly below Root.
	PerQOS bool
	// PodPidsLimit is KubeletConfiguration.podPidsLimit; <= 0: none. SetPods changes it and the next two fields.
	PodPidsLimit int64
	// CPUCFSQuota and CPUCFSPeriod are cpuCFSQuota and cpuCFSQuotaPeriod of KubeletConfiguration. A zero period means 100 ms.
	CPUCFSQuota  bool
	CPUCFSPeriod time.Duration
	// MemoryQoS is the feature gate MemoryQoS, and ReserveMemory says that memoryReservationPolicy is TieredReservation. They have no effect
	// on cgroup v1.
	MemoryQoS, ReserveMemory bool
	// Enforce is enforceNodeAllocatable: pods, system-reserved, kube-reserved, system-reserved-compressible,
	// kube-reserved-compressible, none.
	Enforce []string
	// SystemReserved and KubeReserved are the reservations. The cgroups to which they apply exist already.
	SystemReserved, KubeReserved             v1.ResourceList
	SystemReservedCgroup, KubeReservedCgroup string

	// Done, when set, is called after work on a cgroup with the operation (create, update or destroy). It must not block.
	Done func(operation string, took time.Duration)
	Log  *slog.Logger
}

// Cgroups manages the cgroups of one node.
type Cgroups struct {
	config Config
	names  naming
	self   string // the file with the cgroup of the agent's process

	mu      sync.Mutex  // guards the fields below, and the fields of config that SetPods changes
	tree    *hierarchy  // the mounted hierarchies; nil: not read yet
	classes classLimits // what UpdateQOS has last written; zero: unknown
	kept    [2]int64    // the result of MemoryKept
	warned  bool        // it was logged that there is no hugetlb controller
	asking  int         // number of calls that systemd has not answered
}

// New does no check and no IO: SetUpNode returns the error of a wrong configuration.
func New(config Config) *Cgroups {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Done == nil {
		config.Done = func(string, time.Duration) {}
	}
	return &Cgroups{config: config, self: "/proc/self/cgroup", names: naming{systemd: config.Driver == DriverSystemd, root: split(config.Root)}}
}

// PodsGroup returns the cgroup of all pods, as a path below the mount point. Without PerQOS that is Root.
func (c *Cgroups) PodsGroup() string {
	if !c.config.PerQOS {
		return "/" + strings.Join(split(c.config.Root), "/")
	}
	return c.names.path(podsRoot)
}

// UseDriver replaces the configured driver by the one that the runtime reports. Call it before SetUpNode only.
func (c *Cgroups) UseDriver(driver string) {
	c.config.Driver = driver
	c.names.systemd = driver == DriverSystemd
}

// SetPods replaces PodPidsLimit, CPUCFSQuota and CPUCFSPeriod, for the cgroups of pods that are created or resized from now on.
func (c *Cgroups) SetPods(pids int64, quota bool, period time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config.PodPidsLimit, c.config.CPUCFSQuota, c.config.CPUCFSPeriod = pids, quota, period
}

// podLimits returns the limits for a pod's cgroup.
func (c *Cgroups) podLimits(p *v1.Pod, size pod.Size) Limits {
	c.mu.Lock()
	config := Config{
		PodPidsLimit: c.config.PodPidsLimit, CPUCFSQuota: c.config.CPUCFSQuota, CPUCFSPeriod: c.config.CPUCFSPeriod,
		MemoryQoS: c.config.MemoryQoS, ReserveMemory: c.config.ReserveMemory,
	}
	c.mu.Unlock()
	return PodLimits(p, size, &config)
}

var enforceable = []string{
	"pods", "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible", "none",
}

// check validates the configuration.
func (c *Cgroups) check() error {
	if d := c.config.Driver; d != DriverCgroupfs && d != DriverSystemd {
		return fmt.Errorf("cgroupDriver %q is unknown: use %s or %s, the same as the runtime", d, DriverCgroupfs, DriverSystemd)
	}
	if strings.Contains("/"+c.config.Root+"/", "/../") {
		return fmt.Errorf("cgroupRoot %q must not have the element \"..\"", c.config.Root)
	}
	for i, e := range c.config.Enforce {
		if !slices.Contains(enforceable, e) {
			return fmt.Errorf("enforceNodeAllocatable[%d]: %q is not one of %s", i, e, strings.Join(enforceable, ", "))
		}
	}
	return nil
}

func (c *Cgroups) enforces(what string) bool { return slices.Contains(c.config.Enforce, what) }

// hierarchy returns the mounted cgroup hierarchy. The first call that succeeds reads the mounts; later calls return the same result.
func (c *Cgroups) hierarchy() (*hierarchy, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tree == nil {
		t, err := discover()
		if err != nil {
			return nil, err
		}
		c.tree = t
	}
	return c.tree, nil
}

// V2 reports whether the machine has only the unified hierarchy.
func (c *Cgroups) V2() (bool, error) {
	t, err := c.hierarchy()
	if err != nil {
		return false, err
	}
	return t.v2, nil
}

// HugePageSizes returns the page sizes, such as 2MB and 1GB, that cgroups can limit. It returns none without the hugetlb
// controller.
func (c *Cgroups) HugePageSizes() ([]string, error) {
	t, err := c.hierarchy()
	if err != nil {
		return nil, err
	}
	return t.hugePageSizes(), nil
}

// SwapController reports whether cgroups can limit swap. It is valid only after SetUpNode has created the cgroups. Without cgroups of QoS
// classes it asks the root of the hierarchy; on v2, where the root has no limits, the agent's own cgroup.
func (c *Cgroups) SwapController() (bool, error) {
	t, err := c.hierarchy()
	if err != nil {
		return false, err
	}
	group := c.names.qos(v1.PodQOSGuaranteed)
	switch {
	case c.config.PerQOS:
	case t.v2:
		if group, err = Own(c.self); err != nil {
			return false, err
		}
	default:
		group = "/"
	}
	return t.swap(group), nil
}
