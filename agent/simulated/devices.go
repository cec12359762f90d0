package simulated

import (
	"errors"
	"slices"

	"github.com/wherry-node/wherry/agent"
)

// Devices is a number of devices of a node that pods request as an extended resource, as those of a device plugin.
type Devices struct {
	Resource string `json:"resource"` // for example example.com/gpu
	Count    int    `json:"count"`
}

// DeviceFault makes devices of a node unhealthy: they stay in the node's capacity, and leave what it can give to pods.
type DeviceFault struct {
	Resource string `json:"resource"`
	// Unhealthy is how many devices are unhealthy; 0: all.
	Unhealthy int `json:"unhealthy"`
}

// Check returns a *FieldError if the fault is not valid.
func (f *DeviceFault) Check() error {
	switch {
	case f.Resource == "":
		return wrong("resource", "name the resource of the devices, such as example.com/gpu")
	case f.Unhealthy < 0:
		return wrong("unhealthy", "the number of devices must not be negative")
	}
	return nil
}

// devices are the devices of a machine with their faults. Its methods may be called concurrently.
type devices struct {
	all    []Devices // does not change
	faults lasting[DeviceFault]
}

// now returns the present numbers of devices.
func (d *devices) now() []agent.Devices {
	faults := d.faults.now()
	out := make([]agent.Devices, 0, len(d.all))
	for _, one := range d.all {
		count := int64(one.Count)
		now := agent.Devices{Resource: one.Resource, Count: count, Healthy: count}
		for _, f := range faults {
			switch {
			case f.Resource != one.Resource:
			case f.Unhealthy == 0:
				now.Healthy = 0
			default:
				now.Healthy = min(now.Healthy, max(0, count-int64(f.Unhealthy)))
			}
		}
		out = append(out, now)
	}
	return out
}

// Fail makes devices unhealthy until remove is called. If two faults concern the same devices, the larger number counts. remove may be called
// more than once. It returns an error if the node has no such devices.
func (n *Node) Fail(f DeviceFault) (remove func(), err error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	d := &n.devices
	if !slices.ContainsFunc(d.all, func(one Devices) bool { return one.Resource == f.Resource }) {
		return nil, errors.New("the node has no devices " + f.Resource)
	}
	return d.faults.add(f), nil
}
