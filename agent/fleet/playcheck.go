package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-node/wherry/agent/simulated"
)

// mostWrong bounds the errors that Check returns for one scenario.
const mostWrong = 50

// Check returns an error, which joins all problems, if an event of a scenario can never happen in this fleet: because it names a group that
// the fleet does not have, a node that it cannot have even after Scale, or devices that none of the nodes has. If ParseScenario has read the
// scenario, each problem has file and line.
func (f *Fleet) Check(s *Scenario) error {
	var errs []error
	for i := range s.Events {
		f.checkEvent(&s.Events[i], func(field string, err error) {
			path := fmt.Sprintf("events[%d].%s", i, field)
			err = fmt.Errorf("%s: %w", path, err)
			if s.where != nil {
				err = fmt.Errorf("%s: %w", s.where(path), err)
			}
			errs = append(errs, err)
		})
		if len(errs) > mostWrong {
			return errors.Join(append(errs[:mostWrong], fmt.Errorf("more than %d problems in all", mostWrong))...)
		}
	}
	return errors.Join(errs...)
}

// checkEvent calls bad for each field of the event that does not fit the fleet.
func (f *Fleet) checkEvent(e *Event, bad func(field string, err error)) {
	var groups, named []*Group // those in which nodes are chosen, and those of the nodes that are chosen by name
	for i := range f.cfg.Groups {
		if g := &f.cfg.Groups[i]; e.Nodes.Group == "" || g.Name == e.Nodes.Group {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		bad("nodes.group", fmt.Errorf("%q: %w", brief(e.Nodes.Group), ErrNoGroup))
		return
	}
	with, err := e.Nodes.labels()
	if err != nil {
		bad("nodes.labels", err)
		return
	}
	if groups = slices.DeleteFunc(groups, func(g *Group) bool { return !g.canMatch(f.cfg.Name, with) }); len(groups) == 0 {
		bad("nodes.labels", fmt.Errorf("%q: the fleet cannot have a node with such labels", brief(e.Nodes.Labels)))
		return
	}
	for i, name := range e.Nodes.Names {
		at := slices.IndexFunc(groups, func(g *Group) bool { return g.canHave(f.cfg.Name, name) })
		if at < 0 {
			bad(fmt.Sprintf("nodes.names[%d]", i), fmt.Errorf("%q: the fleet cannot have such a node: its names are like %s", brief(name), groups[0].nodeName(f.cfg.Name, 1)))
			return
		}
		named = append(named, groups[at])
	}
	if e.Fault.Kind != FaultDevices {
		return
	}
	has := func(g *Group) bool { return g.hasDevices(e.Fault.Devices.Resource) }
	lacks := func(g *Group) bool { return !has(g) }
	if slices.ContainsFunc(named, lacks) || !slices.ContainsFunc(groups, has) { // of nodes chosen by name, all must have them
		bad("devices.resource", fmt.Errorf("%q: the chosen nodes have no such devices: see devices in the template", brief(e.Fault.Devices.Resource)))
	}
}

// hasDevices reports whether the group's nodes have devices of a resource.
func (g *Group) hasDevices(resource string) bool {
	return slices.ContainsFunc(g.Devices, func(d simulated.Devices) bool { return d.Resource == resource })
}

// canMatch reports whether the group can have a node whose labels match. Labels of nodes of one group differ only in the zone.
func (g *Group) canMatch(fleet string, with labels.Selector) bool {
	for index := 1; index <= max(1, len(g.Zones)); index++ {
		if with.Matches(labels.Set(g.labels(fleet, index))) {
			return true
		}
	}
	return false
}

// canHave reports whether a node of this name can be in the group, whatever the number of its nodes is.
func (g *Group) canHave(fleet, name string) bool {
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return false
	}
	longest := len(strconv.Itoa(MaxNodes))
	for from := range name {
		for to := from + 1; to <= min(len(name), from+longest); to++ {
			index, err := strconv.Atoi(name[from:to])
			if err != nil || index < 1 || index > MaxNodes {
				break
			}
			if g.nodeName(fleet, index) == name {
				return true
			}
		}
	}
	return false
}
