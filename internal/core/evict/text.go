package evict

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// These are the names of the annotations of an Evicted event, as upstream's kubelet writes them.
const (
	annotationContainers = "offending_containers"
	annotationUsage      = "offending_containers_usage"
	annotationPod        = "offending_pod"
	annotationPodUsage   = "offending_pod_usage"
	annotationStarved    = "starved_resource"
)

// ThresholdMet is the message of the node's EvictionThresholdMet event, in upstream's words.
func ThresholdMet(c pressure.Crossing) string {
	return fmt.Sprintf("Attempting to reclaim %s", c.Threshold.Signal.Resource())
}

// Shortage describes a threshold that is met, in a text for people.
func Shortage(c pressure.Crossing) string {
	kind := "evictionHard"
	if !c.Threshold.Hard() {
		kind = "evictionSoft"
	}
	text := fmt.Sprintf("%s is %s, below %s %s", c.Threshold.Signal, format(c, c.Observed.Available), kind, c.Threshold.Value)
	if m := c.Threshold.MinReclaim; m != nil && c.Observed.Available >= c.Threshold.Value.Of(c.Observed.Capacity) {
		text += fmt.Sprintf(" with evictionMinimumReclaim %s", m)
	}
	return text
}

// NoPod describes a threshold that is met and for which no pod can be evicted, in a text for people.
func NoPod(c pressure.Crossing) string { return Shortage(c) + ": no pod can be evicted" }

// format writes an amount of the resource that is short: bytes as 50Mi, other amounts as numbers.
func format(c pressure.Crossing, n int64) string {
	switch c.Threshold.Signal.Resource() {
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
}

// message returns the message of a pod's status in the form that upstream's kubelet writes and tools read, and the annotations of
// its event.
func message(p *Pod, c pressure.Crossing) (string, map[string]string) {
	starved := c.Threshold.Signal.Resource()
	notes := map[string]string{annotationStarved: string(starved)}
	limit := c.Threshold.Value.Of(c.Observed.Capacity)
	quantity := resource.NewQuantity(limit, resource.BinarySI).String()
	if q := c.Threshold.Value.Quantity; q != nil {
		quantity = q.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", starved, quantity, format(c, c.Observed.Available))
	if p.Usage == nil {
		return b.String(), notes
	}
	if r := p.Pod.Spec.Resources; r != nil && starved == v1.ResourceMemory {
		if request, ok := r.Requests[starved]; ok {
			used := format(c, amount(p.Usage.Memory))
			fmt.Fprintf(&b, "Pod %s was using %s, request is %s, has larger consumption of %s. ", p.Pod.Name, used, request.String(), starved)
			notes[annotationPod], notes[annotationPodUsage] = p.Pod.Name, used
		}
	}
	var names, usages []string
	for i := range p.Usage.Containers {
		u := &p.Usage.Containers[i]
		used := u.Memory
		if starved == v1.ResourceEphemeralStorage {
			used = u.Disk
		} else if starved != v1.ResourceMemory {
			used = nil
		}
		request, known := requestOf(p.Pod, u.Name, starved)
		if used == nil || !known || amount(*used) <= request.Value() {
			continue
		}
		text := format(c, amount(*used))
		fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", u.Name, text, request.String(), starved)
		names, usages = append(names, u.Name), append(usages, text)
	}
	notes[annotationContainers], notes[annotationUsage] = strings.Join(names, ","), strings.Join(usages, ",")
	return b.String(), notes
}

// requestOf returns what a container requests. It returns false if the pod has no container of this name, or if the container is
// ephemeral.
func requestOf(p *v1.Pod, name string, of v1.ResourceName) (resource.Quantity, bool) {
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Resources.Requests[of], true
			}
		}
	}
	return resource.Quantity{}, false
}

// why explains to people why the first pod in the order is evicted.
func why(in *Input, c pressure.Crossing, order []claim) string {
	first := &order[0]
	var b strings.Builder
	b.WriteString(Shortage(c))
	if !c.Threshold.Hard() {
		fmt.Fprintf(&b, " for %s", c.Threshold.Grace)
	}
	switch {
	case first.pod.Usage == nil:
		b.WriteString("; what the pod uses could not be measured")
	case first.evades:
		fmt.Fprintf(&b, "; directories in the pod's volumes lie too deep in each other or are moved all the time, so the pod counts as the one that uses the most; found: %s",
			strings.TrimSpace(c.Threshold.Signal.Amount(first.used)+" "+what(c.Threshold.Signal)))
	case what(c.Threshold.Signal) != "": // inodes and processes cannot be requested
		fmt.Fprintf(&b, "; the pod has %s %s", c.Threshold.Signal.Amount(first.used), what(c.Threshold.Signal))
	case first.exceeds:
		fmt.Fprintf(&b, "; the pod uses %s, %s more than it requests", c.Threshold.Signal.Amount(first.used), c.Threshold.Signal.Amount(first.over()))
	case first.mayExceed():
		fmt.Fprintf(&b, "; no pod is known to use more than it requests, and this one uses at least %s", c.Threshold.Signal.Amount(first.used))
	case slices.ContainsFunc(order, func(o claim) bool { return o.mayExceed() }):
		fmt.Fprintf(&b, "; no pod is known to use more than it requests, and this one uses %s", c.Threshold.Signal.Amount(first.used))
	default:
		fmt.Fprintf(&b, "; no pod uses more than it requests, and this one uses %s", c.Threshold.Signal.Amount(first.used))
	}
	if u := first.pod.Usage; u != nil {
		unknown := u.unknown(c.Threshold.Signal, in.Layout)
		if first.evades {
			unknown &^= volumes // said before
		}
		b.WriteString(beside(unknown))
	}
	fmt.Fprintf(&b, ", priority %d", first.priority)
	if len(order) > 1 {
		fmt.Fprintf(&b, ", first of %d pods", len(order))
		if n := partly(order[1:]); n > 0 {
			fmt.Fprintf(&b, ", and of %d of the others not all could be measured", n)
		}
	} else {
		b.WriteString(", the only pod that may go")
	}
	if t := in.Tried; t != nil && useOf(c.Threshold.Signal) == DiskUse { // nothing is removed for memory and process IDs
		b.WriteString("; ")
		b.WriteString(t.String())
	}
	return b.String()
}

// partly counts the pods of which only a part could be measured.
func partly(order []claim) (n int) {
	for i := range order {
		if order[i].partly {
			n++
		}
	}
	return n
}

// beside names the parts of a pod's data that could not be measured completely.
func beside(unknown part) string {
	var parts []string
	if unknown&layers != 0 {
		parts = append(parts, "what its containers wrote")
	}
	if unknown&volumes != 0 {
		parts = append(parts, "a part of its volumes")
	}
	if unknown&logs != 0 {
		parts = append(parts, "a part of its logs")
	}
	if parts == nil {
		return ""
	}
	return " beside " + strings.Join(parts, " and ") + ", which could not be measured"
}

// what returns the name of the unit of a signal, for example "inodes"; "": bytes.
func what(s pressure.Signal) string {
	switch s {
	case pressure.PIDAvailable:
		return "processes"
	case pressure.NodefsInodesFree, pressure.ImagefsInodesFree, pressure.ContainerfsInodesFree:
		return "inodes"
	case pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable, pressure.NodefsAvailable, pressure.ImagefsAvailable, pressure.ContainerfsAvailable:
	}
	return ""
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// String says what was removed before a pod had to be evicted.
func (t *Tried) String() string {
	var parts []string
	if t.Containers > 0 {
		parts = append(parts, count(t.Containers, "dead container"))
	}
	if t.Images > 0 {
		parts = append(parts, fmt.Sprintf("%s (%s)", count(t.Images, "unused image"), pressure.NodefsAvailable.Amount(amount(t.Bytes))))
	}
	text := "there was nothing to remove before"
	if parts != nil {
		text = "removed before: " + strings.Join(parts, ", ")
	}
	if t.Err != "" {
		text += " (" + t.Err + ")"
	}
	return text
}
