package nodestatus

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Same reports whether two measurements make no difference: with the same Settings and the same Node, Update returns the same for both,
// except for times. It may be false for measurements that make none, for example if a list has another order.
func (f *Facts) Same(g *Facts) bool {
	p, q := &f.Pressure, &g.Pressure
	return f.EphemeralStorage == g.EphemeralStorage && equality.Semantic.DeepEqual(f.Machine, g.Machine) &&
		f.Network.same(&g.Network) && equality.Semantic.DeepEqual(f.Devices, g.Devices) &&
		f.Runtime.same(&g.Runtime) && f.runtimeDown() == g.runtimeDown() &&
		f.ImagesKnown == g.ImagesKnown && slices.EqualFunc(f.Images, g.Images, sameImage) &&
		f.VolumesKnown == g.VolumesKnown && slices.Equal(f.VolumesInUse, g.VolumesInUse) &&
		p.Memory == q.Memory && p.Disk == q.Disk && p.PID == q.PID &&
		slices.Equal(f.Problems, g.Problems) && slices.Equal(f.Failing, g.Failing)
}

func (n *Network) same(m *Network) bool {
	return slices.Equal(n.Interfaces, m.Interfaces) && slices.Equal(n.Resolved, m.Resolved) && n.DefaultV4 == m.DefaultV4 && n.DefaultV6 == m.DefaultV6
}

// same compares what Update uses of the runtime's answers, except LastReady.
func (r *Runtime) same(o *Runtime) bool {
	if r.Name != o.Name || r.Version != o.Version || r.Err != o.Err {
		return false
	}
	a, b := r.Status, o.Status
	if a == nil || b == nil {
		return a == b
	}
	x, y := a.GetFeatures(), b.GetFeatures()
	return (x == nil) == (y == nil) && x.GetSupplementalGroupsPolicy() == y.GetSupplementalGroupsPolicy() &&
		slices.EqualFunc(a.GetStatus().GetConditions(), b.GetStatus().GetConditions(), sameCondition) &&
		slices.EqualFunc(a.GetRuntimeHandlers(), b.GetRuntimeHandlers(), sameHandler)
}

func sameCondition(a, b *runtimeapi.RuntimeCondition) bool {
	return a.GetType() == b.GetType() && a.GetStatus() == b.GetStatus() && a.GetReason() == b.GetReason() && a.GetMessage() == b.GetMessage()
}

func sameHandler(a, b *runtimeapi.RuntimeHandler) bool {
	x, y := a.GetFeatures(), b.GetFeatures()
	return a.GetName() == b.GetName() && x.GetRecursiveReadOnlyMounts() == y.GetRecursiveReadOnlyMounts() && x.GetUserNamespaces() == y.GetUserNamespaces()
}

func sameImage(a, b *runtimeapi.Image) bool {
	return a == b || a.GetId() == b.GetId() && a.GetSize() == b.GetSize() && slices.Equal(a.GetRepoTags(), b.GetRepoTags()) &&
		slices.Equal(a.GetRepoDigests(), b.GetRepoDigests())
}
