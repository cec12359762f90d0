package nodestatus

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

// Reconcile adopts an existing Node; wanted is the result of Build. It updates the default labels, the
// controller-managed attach annotation and huge pages. With zeroExtended it sets extended resources to zero ("the
// device plugins have to register again"). Spec and everything else stay. The second result says whether the Node has
// changed.
func Reconcile(wanted, existing *v1.Node, zeroExtended bool) (*v1.Node, bool) {
	node := existing.DeepCopy()
	for _, key := range adoptedLabels {
		want, ok := wanted.Labels[key]
		if !ok {
			continue
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		if node.Labels[key] = want; want == "" {
			delete(node.Labels, key)
		}
	}
	if want, ok := wanted.Annotations[AnnotationControllerAttach]; ok {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[AnnotationControllerAttach] = want
	} else {
		delete(node.Annotations, AnnotationControllerAttach)
	}
	reconcileResources(wanted, node, zeroExtended)
	return node, !mergepatch.Equal(existing, node)
}

func reconcileResources(wanted, node *v1.Node, zeroExtended bool) {
	st := &node.Status
	if st.Capacity == nil {
		st.Capacity = maps.Clone(wanted.Status.Capacity)
	}
	if st.Allocatable == nil {
		st.Allocatable = maps.Clone(wanted.Status.Allocatable)
	}
	for _, pair := range []struct{ have, want v1.ResourceList }{
		{st.Capacity, wanted.Status.Capacity}, {st.Allocatable, wanted.Status.Allocatable},
	} {
		for name := range pair.have {
			if _, ok := wanted.Status.Capacity[name]; !ok && isHugePages(name) {
				delete(pair.have, name)
			}
			if zeroExtended && isExtended(name) {
				pair.have[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
		for name, q := range pair.want {
			if isHugePages(name) {
				pair.have[name] = q.DeepCopy()
			}
		}
	}
}

// Changed reports whether two statuses differ in anything but heartbeat times and the order of conditions.
func Changed(old, now *v1.NodeStatus) bool {
	if len(old.Conditions) != len(now.Conditions) {
		return true
	}
	for i := range now.Conditions {
		c := now.Conditions[i]
		j := slices.IndexFunc(old.Conditions, func(have v1.NodeCondition) bool { return have.Type == c.Type })
		if j < 0 {
			return true
		}
		have := old.Conditions[j]
		have.LastHeartbeatTime = c.LastHeartbeatTime
		if !mergepatch.Equal(&have, &c) {
			return true
		}
	}
	a, b := *old, *now
	a.Conditions, b.Conditions = nil, nil
	return !mergepatch.Equal(&a, &b)
}

// Ready reports whether the Node's Ready condition is True.
func Ready(node *v1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
