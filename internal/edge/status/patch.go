package status

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// ownership says which component may write a condition type.
type ownership uint8

const (
	foreign ownership = iota // another component's condition: never sent
	shared                   // a condition of this node if the wanted status has it; otherwise the present condition is kept
	owned                    // a condition of this node only: if the wanted status lacks it, it is removed
)

// owner returns who may write conditions of type t.
func owner(t v1.PodConditionType) ownership {
	switch t {
	case v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return owned
	case v1.PodScheduled, v1.DisruptionTarget:
		return shared
	}
	return foreign
}

// terminal reports whether a phase is terminal, so that a pod never leaves it: "Succeeded: all containers in the pod have terminated
// in success, and will not be restarted".
func terminal(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// merge returns a copy of want in which two kinds of fields come from base: those that other components own, and those that the API never
// lets change back. It changes neither argument; the result shares memory with both.
func merge(base, want *v1.PodStatus) v1.PodStatus {
	out := *want
	if terminal(base.Phase) && out.Phase != base.Phase {
		out.Phase, out.Reason, out.Message = base.Phase, base.Reason, base.Message
	}
	if base.QOSClass != "" {
		out.QOSClass = base.QOSClass
	}
	if base.StartTime != nil {
		out.StartTime = base.StartTime
	}
	if out.NominatedNodeName == "" {
		out.NominatedNodeName = base.NominatedNodeName
	}
	// The resource claim controller and kube-scheduler write these fields.
	out.ResourceClaimStatuses = base.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = base.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = base.NodeAllocatableResourceClaimStatuses
	out.Conditions = mergeConditions(base.Conditions, want.Conditions)
	return out
}

// mergeConditions returns the conditions of the merged status: conditions that only other components write come from base, conditions
// of this node come from want (see ownership). It keeps the order of base, so that equal statuses compare as equal.
func mergeConditions(base, want []v1.PodCondition) []v1.PodCondition {
	out := make([]v1.PodCondition, 0, max(len(base), len(want)))
	for i := range base {
		b := &base[i]
		own := owner(b.Type)
		w := condition(want, b.Type)
		switch {
		case own == foreign, own == shared && w == nil:
			out = append(out, *b)
		case w != nil:
			c := *w
			if c.Status == b.Status {
				c.LastTransitionTime = b.LastTransitionTime
			}
			c.LastProbeTime = b.LastProbeTime
			out = append(out, c)
		}
	}
	for i := range want {
		if owner(want[i].Type) != foreign && condition(base, want[i].Type) == nil {
			out = append(out, want[i])
		}
	}
	return out
}

func condition(cs []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	if i := slices.IndexFunc(cs, func(c v1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &cs[i]
	}
	return nil
}

// normalize returns a copy of s in the form in which the API returns it: times in whole seconds, and a transition time in
// every condition.
func normalize(s *v1.PodStatus, now time.Time) *v1.PodStatus {
	s = s.DeepCopy()
	seconds := func(t *metav1.Time) {
		if t != nil && !t.IsZero() {
			*t = metav1.NewTime(t.Truncate(time.Second))
		}
	}
	seconds(s.StartTime)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
		seconds(&c.LastTransitionTime)
		seconds(&c.LastProbeTime)
	}
	for c := range pod.Statuses(s) {
		for _, st := range []*v1.ContainerState{&c.State, &c.LastTerminationState} {
			if st.Running != nil {
				seconds(&st.Running.StartedAt)
			}
			if st.Terminated != nil {
				seconds(&st.Terminated.StartedAt)
				seconds(&st.Terminated.FinishedAt)
			}
		}
	}
	return s
}

// keepTransitions copies transition times from the old conditions (before) to the new ones (now), for the conditions whose status is the
// same in both.
func keepTransitions(before, now []v1.PodCondition) {
	for i := range now {
		if b := condition(before, now[i].Type); b != nil && b.Status == now[i].Status {
			now[i].LastTransitionTime = b.LastTransitionTime
		}
	}
}

// differs reports whether want must be sent to the API, whose status of the pod is base.
func differs(base, want *v1.PodStatus) bool {
	m := merge(base, want)
	return !mergepatch.Equal(&m, base)
}

// urgent reports whether other components act upon the difference: readiness, phase or addresses. All other fields are read only
// by people.
func urgent(base, want *v1.PodStatus) bool {
	m := merge(base, want)
	if m.Phase != base.Phase || m.PodIP != base.PodIP || len(m.PodIPs) != len(base.PodIPs) {
		return true
	}
	for _, t := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.DisruptionTarget} {
		b, w := condition(base.Conditions, t), condition(m.Conditions, t)
		if (b == nil) != (w == nil) || (b != nil && b.Status != w.Status) {
			return true
		}
	}
	return false
}

// allEnded reports whether the status shows every container as terminated.
func allEnded(s *v1.PodStatus) bool {
	for c := range pod.Statuses(s) {
		if c.State.Terminated == nil {
			return false
		}
	}
	return len(s.ContainerStatuses) > 0
}

// beginning reports whether the API has no status from a node yet, and the new status only says that containers are being
// created.
func beginning(base, want *v1.PodStatus) bool {
	if base.StartTime != nil || len(base.ContainerStatuses) > 0 || want.Phase != v1.PodPending || want.Reason != "" || want.Message != "" {
		return false
	}
	for c := range pod.BaseStatuses(want) {
		if w := c.State.Waiting; w == nil || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return false
		}
	}
	return len(want.ContainerStatuses) > 0
}

// generationOnly reports whether the only change is that the node has observed a new generation of the pod.
func generationOnly(base, want *v1.PodStatus) bool {
	m := merge(base, want)
	if m.ObservedGeneration == base.ObservedGeneration {
		return false
	}
	m.ObservedGeneration = base.ObservedGeneration
	for i := range m.Conditions {
		if had := condition(base.Conditions, m.Conditions[i].Type); had != nil {
			m.Conditions[i].ObservedGeneration = had.ObservedGeneration
		}
	}
	return mergepatch.Equal(&m, base)
}

// sandboxOnly reports whether the only change is that a pending pod got its sandbox, and with it its address.
func sandboxOnly(base, want *v1.PodStatus) bool {
	m := merge(base, want)
	if m.Phase != v1.PodPending || m.PodIP == base.PodIP {
		return false
	}
	m.PodIP, m.PodIPs = base.PodIP, base.PodIPs
	had := condition(base.Conditions, v1.PodReadyToStartContainers)
	if c := condition(m.Conditions, v1.PodReadyToStartContainers); c != nil && had != nil {
		*c = *had
	}
	return mergepatch.Equal(&m, base)
}

// buildPatch returns the strategic merge patch that turns base into want for the pod with this UID, or nil if nothing
// has to change.
func buildPatch(uid types.UID, base, want *v1.PodStatus) ([]byte, error) {
	merged := merge(base, want)
	status := mergepatch.Struct(base, &merged)
	// The API merges these lists by a key. Conditions: send only changed conditions that this node writes. Addresses: replace the
	// whole list, because a merge would keep addresses that the pod no longer has.
	delete(status, "conditions")
	conditions := mergepatch.Keyed("type", func(c *v1.PodCondition) string { return string(c.Type) }, base.Conditions, merged.Conditions)
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if _, ok := status["podIPs"]; ok {
		status["podIPs"] = mergepatch.Replace(merged.PodIPs)
	}
	if _, ok := status["hostIPs"]; ok {
		status["hostIPs"] = mergepatch.Replace(merged.HostIPs)
	}
	if len(status) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
}

// within reports whether the patch whole contains everything that the patch part contains.
func within(part, whole []byte) bool {
	var p, w any
	if json.Unmarshal(part, &p) != nil || json.Unmarshal(whole, &w) != nil {
		return false
	}
	return contains(w, p)
}

// contains reports whether every member and every element of part is in whole.
func contains(whole, part any) bool {
	switch p := part.(type) {
	case map[string]any:
		w, ok := whole.(map[string]any)
		for k, v := range p {
			has, there := w[k]
			if ok = ok && there && contains(has, v); !ok {
				return false
			}
		}
		return ok
	case []any:
		for _, v := range p {
			if !slices.ContainsFunc(list(whole), func(has any) bool { return reflect.DeepEqual(has, v) }) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(whole, part)
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}
