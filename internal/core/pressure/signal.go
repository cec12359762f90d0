package pressure

import (
	"fmt"
	"math"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is the name of a measured value, as in KubeletConfiguration's evictionHard.
type Signal string

// These are the signals of Linux nodes.
const (
	MemoryAvailable            Signal          = "memory.available"
	NodefsAvailable            Signal          = "nodefs.available"
	NodefsInodesFree           Signal          = "nodefs.inodesFree"
	ImagefsAvailable           Signal          = "imagefs.available"
	ImagefsInodesFree          Signal          = "imagefs.inodesFree"
	ContainerfsAvailable       Signal          = "containerfs.available"
	ContainerfsInodesFree      Signal          = "containerfs.inodesFree"
	PIDAvailable               Signal          = "pid.available"
	AllocatableMemoryAvailable Signal          = "allocatableMemory.available"
	enforcePods                                = "pods"
	resourceInodes             v1.ResourceName = "inodes"
	resourcePIDs               v1.ResourceName = "pids"
)

// signals lists every signal, in the order in which the node relieves shortages: memory first.
var signals = [...]Signal{
	MemoryAvailable, AllocatableMemoryAvailable, NodefsAvailable, NodefsInodesFree, ImagefsAvailable,
	ImagefsInodesFree, ContainerfsAvailable, ContainerfsInodesFree, PIDAvailable,
}

func (s Signal) order() int {
	for i, known := range signals {
		if s == known {
			return i
		}
	}
	return -1
}

// Condition returns the node condition of the signal; empty for an unknown signal.
func (s Signal) Condition() v1.NodeConditionType {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.NodeMemoryPressure
	case NodefsAvailable, NodefsInodesFree, ImagefsAvailable, ImagefsInodesFree, ContainerfsAvailable, ContainerfsInodesFree:
		return v1.NodeDiskPressure
	case PIDAvailable:
		return v1.NodePIDPressure
	}
	return ""
}

// Resource returns the name of the resource that is short, for the event and status of an evicted pod ("The node was low on
// resource: memory").
func (s Signal) Resource() v1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.ResourceMemory
	case NodefsAvailable, ImagefsAvailable, ContainerfsAvailable:
		return v1.ResourceEphemeralStorage
	case NodefsInodesFree, ImagefsInodesFree, ContainerfsInodesFree:
		return resourceInodes
	case PIDAvailable:
		return resourcePIDs
	}
	return ""
}

// Amount writes an amount of the signal's resource for people: bytes are rounded to about three digits, other amounts are written in full.
func (s Signal) Amount(n int64) string {
	switch s.Resource() {
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		shift := 0
		for n>>shift >= 10<<10 && shift < 30 {
			shift += 10
		}
		return resource.NewQuantity(n>>shift<<shift, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
}

// Observation is one reading of a signal, in bytes, inodes or processes.
type Observation struct {
	Available int64
	Capacity  int64
}

// Signals are the readings that were taken together in one measurement. A signal that could not be read is absent.
type Signals map[Signal]Observation

// Read returns the reading of a signal; false: it was not read, or it has a capacity of 0. Some file systems report 0 for everything, which
// does not mean that they are full.
func (s Signals) Read(name Signal) (Observation, bool) {
	o, ok := s[name]
	return o, ok && o.Capacity > 0
}

// Value is an amount: absolute, or a fraction of the capacity. One of the two is set.
type Value struct {
	Quantity *resource.Quantity
	Fraction float64 // part of the capacity, above 0 and at most 1
}

// Of returns the amount for a capacity, in the capacity's unit.
func (v Value) Of(capacity int64) int64 {
	if v.Quantity != nil {
		return v.Quantity.Value()
	}
	return int64(math.Floor(float64(capacity) * v.Fraction))
}

// String returns the form of the configuration: 100Mi or 10%.
func (v Value) String() string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(v.Fraction*100, 'f', -1, 32) + "%"
}

// Threshold is one line of evictionHard or evictionSoft. Grace zero means hard.
type Threshold struct {
	Signal     Signal
	Value      Value
	Grace      time.Duration
	MinReclaim *Value
}

// Wanted returns how much has to be available before reclaiming ends: the threshold and its minimum reclaim, in the capacity's unit.
func (t Threshold) Wanted(capacity int64) int64 {
	limit := t.Value.Of(capacity)
	if t.MinReclaim == nil {
		return limit
	}
	more := max(t.MinReclaim.Of(capacity), 0)
	if limit > math.MaxInt64-more {
		return math.MaxInt64
	}
	return limit + more
}

// Hard reports whether pods are evicted as soon as the threshold is met.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// String returns the form of the configuration: memory.available<100Mi.
func (t Threshold) String() string {
	s := fmt.Sprintf("%s<%s", t.Signal, t.Value)
	if !t.Hard() {
		s += " for " + t.Grace.String()
	}
	return s
}
