package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// ReasonPreempting and MessagePreempting are the status of a pod that ended to make room.
const (
	ReasonPreempting  = "Preempting"
	MessagePreempting = "Preempted in order to admit critical pod"
	// DisruptionPreempting is the message of the condition DisruptionTarget of a pod that ended to make room.
	DisruptionPreempting = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// makeRoom chooses the pods that must end so that a critical pod fits. It ends as few guaranteed pods as possible, then as few burstable
// ones, then as few best-effort ones. Among equally good pods of a class it chooses the smaller ones.
func (in *Input) makeRoom(short []Shortage) Result {
	need := make(needs, len(short))
	for i, s := range short {
		need[i] = want{s.Resource, s.Missing()}
	}
	var classes [3][]*v1.Pod // the pods of the first class are ended first
	for _, o := range in.Others {
		if !preemptable(in.Pod, o) {
			continue
		}
		switch crispec.QOS(o) {
		case v1.PodQOSBestEffort:
			classes[0] = append(classes[0], o)
		case v1.PodQOSBurstable:
			classes[1] = append(classes[1], o)
		case v1.PodQOSGuaranteed:
			classes[2] = append(classes[2], o)
		}
	}
	if rest := need.without(slices.Concat(classes[:]...)); len(rest) > 0 {
		return refuse(ReasonUnexpected, descriptionUnableToMakeRoom, rest)
	}
	// A guaranteed pod ends only if the lower classes together do not free enough, and a burstable pod only if the
	// best-effort pods do not.
	guaranteed := fewest(classes[2], need.without(slices.Concat(classes[0], classes[1])))
	burstable := fewest(classes[1], need.without(slices.Concat(classes[0], guaranteed)))
	bestEffort := fewest(classes[0], need.without(slices.Concat(burstable, guaranteed)))
	return Result{
		Reason: short[0].Reason(), Message: short[0].String(),
		Preempt: slices.Concat(bestEffort, burstable, guaranteed),
	}
}

// preemptable reports whether p may be ended to make room for the pod other: p is not critical, or its priority is lower than that of
// other. A static pod without a priority is never ended.
func preemptable(other, p *v1.Pod) bool {
	if !crispec.IsCritical(p) {
		return true
	}
	if other.Spec.Priority == nil || p.Spec.Priority == nil {
		return false
	}
	return *other.Spec.Priority > *p.Spec.Priority
}

// want is the amount of a resource that must become free.
type want struct {
	name   v1.ResourceName
	amount int64
}

// needs lists the resources that pods must free, with the amounts.
type needs []want

// String returns the list as it appears in the message of a refusal.
func (n needs) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for _, w := range n {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", w.name, w.amount)
	}
	b.WriteByte(']')
	return b.String()
}

// without returns the resources that are still needed after these pods have ended.
func (n needs) without(pods []*v1.Pod) needs {
	var rest needs
	for _, w := range n {
		for _, p := range pods {
			if w.amount <= 0 {
				break
			}
			w.amount -= requestOf(p, w.name)
		}
		if w.amount > 0 {
			rest = append(rest, w)
		}
	}
	return rest
}

// distance measures how far the needs are from being met after the pod p has ended: the sum, over all needed resources, of the square of
// the fraction that is still missing.
func (n needs) distance(p *v1.Pod) float64 {
	var d float64
	for _, w := range n {
		if rest := w.amount - requestOf(p, w.name); rest > 0 {
			part := float64(rest) / float64(w.amount)
			d += part * part
		}
	}
	return d
}

// fewest chooses pods until their ends free what n needs. Each time it takes the pod after whose end the least is missing.
func fewest(pods []*v1.Pod, n needs) []*v1.Pod {
	pods = slices.Clone(pods)
	var out []*v1.Pod
	for len(n) > 0 && len(pods) > 0 {
		best := 0
		for i := 1; i < len(pods); i++ {
			d, b := n.distance(pods[i]), n.distance(pods[best])
			if d < b || (d == b && smaller(pods[i], pods[best])) {
				best = i
			}
		}
		out = append(out, pods[best])
		n = n.without(pods[best : best+1])
		pods = slices.Delete(pods, best, best+1)
	}
	return out
}

// smaller reports whether a requests less than b. If both request the same, it returns true, so that of equal pods the later one
// in the list is chosen.
func smaller(a, b *v1.Pod) bool {
	for _, name := range [...]v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if x, y := requestOf(a, name), requestOf(b, name); x != y {
			return x < y
		}
	}
	return true
}

func requestOf(p *v1.Pod, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	return amount(name, requestsOf(p)[name])
}
