package nodestatus

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// ResourcePIDs names process IDs in kubeReserved and systemReserved. It is not a resource of the Node.
const ResourcePIDs v1.ResourceName = "pid"

// HugePageResource returns the resource name of one page size, for example hugepages-2Mi.
func HugePageResource(pageBytes int64) v1.ResourceName {
	return v1.ResourceName(v1.ResourceHugePagesPrefix + resource.NewQuantity(pageBytes, resource.BinarySI).String())
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// isExtended reports whether a resource is an extended one: "Extended resources are fully-qualified resource names
// outside the kubernetes.io domain."
func isExtended(name v1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && !isKubernetes(domain)
}

// ParseReserved parses kubeReserved, systemReserved and reservedSystemCPUs. If reservedCPUs is set, the number of these CPUs replaces the
// cpu amounts in kubeReserved and systemReserved ("--reserved-cpus ... this explicit list supersedes the global values").
func ParseReserved(kube, system map[string]string, reservedCPUs string) (kubeOut, systemOut v1.ResourceList, err error) {
	var errs []error
	kubeOut = parseReservation("kubeReserved", kube, &errs)
	systemOut = parseReservation("systemReserved", system, &errs)
	if reservedCPUs != "" {
		set, err := cpuset.Parse(reservedCPUs)
		if err != nil {
			errs = append(errs, fmt.Errorf("reservedSystemCPUs: %q is not a CPU list such as 0-3,8: %w", reservedCPUs, err))
		}
		delete(kubeOut, v1.ResourceCPU)
		systemOut[v1.ResourceCPU] = *resource.NewQuantity(int64(set.Size()), resource.DecimalSI)
	}
	return kubeOut, systemOut, errors.Join(errs...)
}

func parseReservation(field string, m map[string]string, errs *[]error) v1.ResourceList {
	out := v1.ResourceList{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name := v1.ResourceName(key)
		switch name {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, ResourcePIDs:
		default:
			if !isHugePages(name) {
				*errs = append(*errs, fmt.Errorf("%s[%s]: cannot be reserved; cpu, memory, ephemeral-storage and pid can", field, key))
				continue
			}
		}
		q, err := resource.ParseQuantity(m[key])
		if err != nil || q.Sign() < 0 {
			*errs = append(*errs, fmt.Errorf("%s[%s]: %q is not a quantity of zero or more, such as 500m or 1Gi", field, key, m[key]))
			continue
		}
		out[name] = q
	}
	return out
}

// Capacity returns the machine's resources that kube-scheduler counts.
func Capacity(s *Settings, f *Facts) v1.ResourceList {
	out := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(int64(podLimit(s, f.Machine.CPUs)), resource.DecimalSI)}
	if f.Machine.CPUs > 0 {
		out[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(f.Machine.CPUs)*1000, resource.DecimalSI)
	}
	if f.Machine.MemoryBytes > 0 {
		out[v1.ResourceMemory] = *resource.NewQuantity(f.Machine.MemoryBytes, resource.BinarySI)
	}
	if f.EphemeralStorage > 0 && s.LocalStorageIsolation {
		out[v1.ResourceEphemeralStorage] = *resource.NewQuantity(f.EphemeralStorage, resource.BinarySI)
	}
	for size, pages := range f.Machine.HugePages {
		out[HugePageResource(size)] = *resource.NewQuantity(size*pages, resource.BinarySI)
	}
	for name, q := range f.Devices.Capacity {
		out[name] = q.DeepCopy()
	}
	for _, name := range f.Devices.Removed {
		out[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	return out
}

func podLimit(s *Settings, cpus int) int {
	if s.PodsPerCore > 0 && cpus > 0 {
		return min(s.PodsPerCore*cpus, s.MaxPods)
	}
	return s.MaxPods
}

// Allocatable returns what pods may use: "Node Allocatable = capacity - kube-reserved - system-reserved -
// eviction-threshold", never below zero, and without huge pages as ordinary memory.
func Allocatable(s *Settings, capacity v1.ResourceList) v1.ResourceList {
	var eviction v1.ResourceList
	if !s.AllocatableIgnoresEviction {
		eviction = pressure.HardReservation(s.Thresholds, capacity)
	}
	out := v1.ResourceList{}
	for name, q := range capacity {
		left := q.DeepCopy()
		for _, reserved := range []v1.ResourceList{s.KubeReserved, s.SystemReserved, eviction} {
			if r, ok := reserved[name]; ok {
				left.Sub(r)
			}
		}
		out[name] = positive(left)
	}
	if memory, ok := out[v1.ResourceMemory]; ok {
		for name, q := range capacity {
			if isHugePages(name) {
				memory.Sub(q)
			}
		}
		out[v1.ResourceMemory] = positive(memory)
	}
	return out
}

// CheckReservations returns an error if more of a resource is reserved than the machine has. Such a node could take no pod that requests the
// resource, and nothing else would say why.
func CheckReservations(s *Settings, capacity v1.ResourceList) error {
	eviction := pressure.HardReservation(s.Thresholds, capacity)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		var sum resource.Quantity
		for _, reserved := range []v1.ResourceList{s.KubeReserved, s.SystemReserved, eviction} {
			sum.Add(reserved[name])
		}
		if has := capacity[name]; sum.Cmp(has) > 0 {
			errs = append(errs, fmt.Errorf("%s: kubeReserved, systemReserved and evictionHard reserve %s, and the machine has %s", name, sum.String(), has.String()))
		}
	}
	return errors.Join(errs...)
}

func positive(q resource.Quantity) resource.Quantity {
	if q.Sign() < 0 {
		q.Set(0)
	}
	return q
}

// setResources updates capacity and allocatable, and keeps resources that others added.
func (u *update) setResources() {
	st := &u.node.Status
	if st.Capacity == nil {
		st.Capacity = v1.ResourceList{}
	}
	capacity := Capacity(u.s, u.f)
	if len(u.f.Machine.HugePages) > 0 { // remove page sizes that the machine no longer has
		for name := range st.Capacity {
			if _, ok := capacity[name]; !ok && isHugePages(name) {
				delete(st.Capacity, name)
			}
		}
	}
	maps.Copy(st.Capacity, capacity)
	st.Allocatable = Allocatable(u.s, st.Capacity)
	for name, q := range u.f.Devices.Allocatable {
		st.Allocatable[name] = q.DeepCopy()
	}
}
