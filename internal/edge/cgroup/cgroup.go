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
)

// The drivers: who makes the groups. It must be the runtime's driver too.
const (
	DriverCgroupfs = "cgroupfs"
	DriverSystemd  = "systemd"
)

var (
	// ErrBusy is a group that still has processes. Try again once they have ended.
	ErrBusy = errors.New("processes remain")
	// ErrNotEnforced is a limit on the groups above pods that could not be set, for instance because more memory
	// is in use than it allows. Pods run; SetUpNode may be tried again.
	ErrNotEnforced = errors.New("limits are not enforced")
)

// Config of the groups.
type Config struct {
	// Root is the group below which everything lies, as KubeletConfiguration.cgroupRoot: "" or "/" for the top.
	// It must exist.
	Root   string
	Driver string
	// PerQOS is KubeletConfiguration.cgroupsPerQOS. When false no group is made, and containers go below Root.
	PerQOS bool
	// PodPidsLimit is KubeletConfiguration.podPidsLimit; <= 0: none.
	PodPidsLimit int64
	// CPUCFSQuota and CPUCFSPeriod as in KubeletConfiguration; a zero period is 100 ms.
	CPUCFSQuota  bool
	CPUCFSPeriod time.Duration
	// Enforce is enforceNodeAllocatable: pods, system-reserved, kube-reserved, system-reserved-compressible,
	// kube-reserved-compressible, none.
	Enforce []string
	// Reservations, and the existing groups that they are enforced on.
	SystemReserved, KubeReserved             v1.ResourceList
	SystemReservedCgroup, KubeReservedCgroup string

	Log *slog.Logger
}

// Cgroups are the groups of one node.
type Cgroups struct {
	config Config
	names  naming

	mu        sync.Mutex
	tree      *hierarchy // nil until first used
	burstable int64      // shares last written; 0: none
	warned    bool       // of the missing hugetlb controller
	asking    int        // calls that systemd has not answered
}

// New checks nothing and does no IO: a wrong configuration is an error of SetUpNode.
func New(config Config) *Cgroups {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Cgroups{config: config, names: naming{systemd: config.Driver == DriverSystemd, root: split(config.Root)}}
}

// PodsGroup is the group of all pods, below the mount point; where no groups are made per class, the root of all.
func (c *Cgroups) PodsGroup() string {
	if !c.config.PerQOS {
		return "/" + strings.Join(split(c.config.Root), "/")
	}
	return c.names.path(podsRoot)
}

// UseDriver replaces the configured driver by the one that the runtime says it has. Only before SetUpNode.
func (c *Cgroups) UseDriver(driver string) {
	c.config.Driver = driver
	c.names.systemd = driver == DriverSystemd
}

var enforceable = []string{
	"pods", "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible", "none",
}

// check validates the configuration.
func (c *Cgroups) check() error {
	if d := c.config.Driver; d != DriverCgroupfs && d != DriverSystemd {
		return fmt.Errorf("cgroupDriver %q is not known: use %s or %s, whichever the runtime uses", d, DriverCgroupfs, DriverSystemd)
	}
	if strings.Contains("/"+c.config.Root+"/", "/../") {
		return fmt.Errorf("cgroupRoot %q must not go upwards", c.config.Root)
	}
	for i, e := range c.config.Enforce {
		if !slices.Contains(enforceable, e) {
			return fmt.Errorf("enforceNodeAllocatable[%d]: %q is not one of %s", i, e, strings.Join(enforceable, ", "))
		}
	}
	return nil
}

func (c *Cgroups) enforces(what string) bool { return slices.Contains(c.config.Enforce, what) }

// hierarchy finds out once what the machine has mounted.
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

// V2 reports whether the machine has the unified hierarchy alone.
func (c *Cgroups) V2() (bool, error) {
	t, err := c.hierarchy()
	if err != nil {
		return false, err
	}
	return t.v2, nil
}

// HugePageSizes are the page sizes, as 2MB and 1GB, that can be limited here: none without the hugetlb controller.
func (c *Cgroups) HugePageSizes() ([]string, error) {
	t, err := c.hierarchy()
	if err != nil {
		return nil, err
	}
	return t.hugePageSizes(), nil
}

// SwapController reports whether the swap of a group can be limited here. It is known once SetUpNode has made the
// groups.
func (c *Cgroups) SwapController() (bool, error) {
	t, err := c.hierarchy()
	if err != nil {
		return false, err
	}
	return t.swap(c.names.qos(v1.PodQOSGuaranteed)), nil
}
