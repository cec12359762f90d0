package fleet

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// keptLabels are the keys of the labels by which pods can find the nodes of a snapshot. A rule about another label, which the snapshot leaves out, would
// keep the pods of the copy from every node.
type keptLabels map[string]bool

// keptOf returns the keys of the labels that nodes of these groups have.
func keptOf(groups []groupSaved) keptLabels {
	kept := keptLabels{v1.LabelOSStable: true, v1.LabelArchStable: true, "beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true}
	for i := range groups {
		g := &groups[i]
		for key := range g.Labels {
			kept[key] = true
		}
		kept[v1.LabelTopologyRegion] = kept[v1.LabelTopologyRegion] || g.Region != ""
		kept[v1.LabelTopologyZone] = kept[v1.LabelTopologyZone] || len(g.Zones) > 0
	}
	return kept
}

// selector returns the node selector of a pod without the labels that the snapshot leaves out.
func (k keptLabels) selector(s map[string]string) map[string]string {
	s = maps.Clone(s)
	maps.DeleteFunc(s, func(key, _ string) bool { return !k[key] })
	return s
}

// affinity returns the affinity of a pod without what requires a label that the snapshot leaves out, or a node by its name. The nodes of a DaemonSet's pod are
// chosen by the controller, which names the node in the pod, so all that it requires of the node goes. a is not changed.
func (k keptLabels) affinity(a *v1.Affinity, kind WorkloadKind) *v1.Affinity {
	if a == nil || a.NodeAffinity == nil {
		return a
	}
	kept := *a
	if kept.NodeAffinity = nil; kind != KindDaemonSet {
		node := *a.NodeAffinity
		if node.RequiredDuringSchedulingIgnoredDuringExecution = k.required(node.RequiredDuringSchedulingIgnoredDuringExecution); node.RequiredDuringSchedulingIgnoredDuringExecution != nil ||
			len(node.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			kept.NodeAffinity = &node
		}
	}
	if kept == (v1.Affinity{}) {
		return nil
	}
	return &kept
}

// required returns what the terms require of labels that the snapshot has. One term is enough for a node, so a term of which nothing is left means that
// nothing is required.
func (k keptLabels) required(s *v1.NodeSelector) *v1.NodeSelector {
	if s == nil {
		return nil
	}
	var terms []v1.NodeSelectorTerm
	for _, t := range s.NodeSelectorTerms {
		left := slices.DeleteFunc(slices.Clone(t.MatchExpressions), func(r v1.NodeSelectorRequirement) bool { return !k[r.Key] })
		if len(left) == 0 {
			return nil
		}
		terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: left})
	}
	return &v1.NodeSelector{NodeSelectorTerms: terms}
}
