package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/wherry-node/wherry/agent/simulated"
)

// Selector chooses nodes of a fleet, or of those that Group and Labels leave: the nodes with these Names, Count random nodes, Percent of
// the nodes (random ones), or All nodes.
type Selector struct {
	Names []string `json:"names"`
	// Group is the name of a group of the fleet.
	Group string `json:"group"`
	// Labels is a label selector, such as "topology.kubernetes.io/zone=z1,disk!=slow". It is about the labels that the fleet gives to its
	// Nodes: those of the group, its region and its zone. Labels that others add to a Node do not count.
	Labels  string  `json:"labels"`
	Count   int     `json:"count"`
	Percent float64 `json:"percent"`
	All     bool    `json:"all"`
	// Seed decides which nodes Count and Percent choose. The same seed chooses the same nodes, if the fleet has the same nodes.
	Seed uint64 `json:"seed"`
}

// ErrNoNode means that no node matches a selector.
var ErrNoNode = errors.New("no node is chosen")

// Check returns an error unless exactly one of Names, Count, Percent and All is set, and all fields have valid values. The error is a
// *simulated.FieldError if a single field is wrong. Check cannot know the fleet's groups and nodes.
func (s *Selector) Check() error {
	ways := 0
	for _, is := range []bool{len(s.Names) > 0, s.Count != 0, s.Percent != 0, s.All} {
		if is {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("choose the nodes in one way: by names, by a count, by a percentage, or all")
	case s.Count < 0:
		return wrong("count", "%d: choose a positive number of nodes", s.Count)
	case !(s.Percent >= 0 && s.Percent <= 100): // NaN is no part of the nodes
		return wrong("percent", "%g: choose at most 100 percent of the nodes", s.Percent)
	}
	if _, err := s.labels(); err != nil {
		return &simulated.FieldError{Field: "labels", Err: err}
	}
	return nil
}

// maxLabels is the largest length of Selector.Labels in bytes.
const maxLabels = 4096

// labels returns the parsed field Labels. If the field is empty, the result matches all labels.
func (s *Selector) labels() (labels.Selector, error) {
	if len(s.Labels) > maxLabels {
		return nil, fmt.Errorf("the label selector has %d bytes, more than %d", len(s.Labels), maxLabels)
	}
	parsed, err := labels.Parse(s.Labels)
	if err != nil {
		return nil, fmt.Errorf("label selector %q: %w", s.Labels, err)
	}
	return parsed, nil
}

// choose returns the chosen nodes, sorted by name. The caller holds the lock.
func (f *Fleet) choose(s Selector) ([]*node, error) {
	switch err := simulated.Within("nodes", s.Check()); {
	case err != nil:
		return nil, err
	case s.Group != "" && !slices.ContainsFunc(f.cfg.Groups, func(g Group) bool { return g.Name == s.Group }):
		return nil, f.noGroup(s.Group)
	}
	with, err := s.labels()
	if err != nil {
		return nil, err
	}
	var of []*node
	for _, n := range f.nodes {
		if !n.leaves && (s.Group == "" || n.group.Name == s.Group) && (with.Empty() || with.Matches(labels.Set(n.group.labels(f.cfg.Name, n.index)))) {
			of = append(of, n)
		}
	}
	byName := func(a, b *node) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(of, byName)
	for _, name := range s.Names {
		if !slices.ContainsFunc(of, func(n *node) bool { return n.name == name }) {
			return nil, fmt.Errorf("node %q: %w: the fleet has no such node%s", name, ErrNoNode, s.among())
		}
	}
	if len(s.Names) > 0 {
		return slices.DeleteFunc(of, func(n *node) bool { return !slices.Contains(s.Names, n.name) }), nil
	}
	most := len(of)
	if s.Count > 0 {
		most = min(most, s.Count)
	} else if s.Percent > 0 {
		most = min(most, int(float64(most)*s.Percent/100+0.5))
	}
	if most == 0 {
		return nil, fmt.Errorf("%w: %d nodes could be%s", ErrNoNode, len(of), s.among())
	}
	if most < len(of) {
		rand.New(rand.NewPCG(s.Seed, 1)).Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		of = of[:most]
		slices.SortFunc(of, byName)
	}
	return of, nil
}

// among returns text that says which nodes Group and Labels leave, for errors.
func (s *Selector) among() string {
	var text string
	if s.Group != "" {
		text = fmt.Sprintf(" in group %q", s.Group)
	}
	if s.Labels != "" {
		text += fmt.Sprintf(" with labels %q", s.Labels)
	}
	return text
}
