package nodestatus

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// These are the reasons of node events, as in upstream's kubelet.
const (
	EventStarting            = "Starting"
	EventRebooted            = "Rebooted"
	EventReady               = "NodeReady"
	EventNotReady            = "NodeNotReady"
	EventSchedulable         = "NodeSchedulable"
	EventNotSchedulable      = "NodeNotSchedulable"
	EventAllocatableEnforced = "NodeAllocatableEnforced"
	EventAllocatableFailed   = "FailedNodeAllocatableEnforcement"
	EventCgroupV1            = "CgroupV1"
	EventTmpfsOnDisk         = "PossibleMemoryBackedVolumesOnDisk"
)

// words holds the texts of one pressure condition.
type words struct {
	kind                            v1.NodeConditionType
	yesReason, yesMessage, yesEvent string
	noReason, noMessage, noEvent    string
	unknownReason, unit             string
}

// pressureWords has the texts of the pressure conditions, in upstream's words. It is never changed.
var pressureWords = [...]words{
	{
		kind:      v1.NodeMemoryPressure,
		yesReason: "KubeletHasInsufficientMemory", yesMessage: "kubelet has insufficient memory available", yesEvent: "NodeHasInsufficientMemory",
		noReason: "KubeletHasSufficientMemory", noMessage: "kubelet has sufficient memory available", noEvent: "NodeHasSufficientMemory",
		unknownReason: "KubeletHasNoMemoryReading", unit: "memory",
	},
	{
		kind:      v1.NodeDiskPressure,
		yesReason: "KubeletHasDiskPressure", yesMessage: "kubelet has disk pressure", yesEvent: "NodeHasDiskPressure",
		noReason: "KubeletHasNoDiskPressure", noMessage: "kubelet has no disk pressure", noEvent: "NodeHasNoDiskPressure",
		unknownReason: "KubeletHasNoDiskReading", unit: "disk",
	},
	{
		kind:      v1.NodePIDPressure,
		yesReason: "KubeletHasInsufficientPID", yesMessage: "kubelet has insufficient PID available", yesEvent: "NodeHasInsufficientPID",
		noReason: "KubeletHasSufficientPID", noMessage: "kubelet has sufficient PID available", noEvent: "NodeHasSufficientPID",
		unknownReason: "KubeletHasNoPIDReading", unit: "process ID",
	},
}

func (u *update) setConditions() {
	statuses := [...]pressure.Status{u.f.Pressure.Memory, u.f.Pressure.Disk, u.f.Pressure.PID}
	for i := range pressureWords {
		u.setPressure(&pressureWords[i], statuses[i])
	}
	u.setReady()
}

func (u *update) setPressure(w *words, status pressure.Status) {
	c := v1.NodeCondition{Type: w.kind}
	event := w.noEvent
	switch status {
	case pressure.True:
		c.Status, c.Reason, c.Message, event = v1.ConditionTrue, w.yesReason, w.yesMessage, w.yesEvent
	case pressure.False:
		c.Status, c.Reason, c.Message = v1.ConditionFalse, w.noReason, w.noMessage
	case pressure.Unknown:
		c.Status, c.Reason, event = v1.ConditionUnknown, w.unknownReason, ""
		c.Message = fmt.Sprintf("kubelet could not measure any %s signal that an eviction threshold is set for", w.unit)
	}
	if changed, _ := u.put(c); changed && event != "" {
		u.nodeEvent(event)
	}
}

func (u *update) setReady() {
	c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if len(u.f.Failing) > 0 {
		c.Message += "; failing and tried again: " + join(u.f.Failing)
	}
	event := EventReady
	if problems := u.notReady(); len(problems) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", join(problems)
		event = EventNotReady
	}
	// A new node that is not ready yet needs no event. A change of an existing condition gets one, and so does a new
	// node that is ready.
	if changed, existed := u.put(c); changed && (existed || event == EventReady) {
		u.nodeEvent(event)
	}
}

func (u *update) nodeEvent(reason string) {
	u.event(v1.EventTypeNormal, reason, "Node %s status is now: %s", u.s.Name, reason)
}

// put writes one condition. It limits the length of the message, which may come from a runtime or an error. changed reports whether the
// condition's status has changed; existed reports whether the Node already had the condition.
func (u *update) put(c v1.NodeCondition) (changed, existed bool) {
	now := metav1.NewTime(u.f.Clock.Shows(u.f.Now))
	c.Message = pod.Text(c.Message)
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	list := u.node.Status.Conditions
	i := slices.IndexFunc(list, func(have v1.NodeCondition) bool { return have.Type == c.Type })
	if i < 0 {
		u.node.Status.Conditions = append(list, c)
		return true, false
	}
	changed = list[i].Status != c.Status
	if !changed {
		c.LastTransitionTime = list[i].LastTransitionTime
	}
	list[i] = c
	return changed, true
}

// KeepTransitions gives each condition of a Node that was built anew the time since which an earlier Node has had the same status. earlier
// may be nil.
func KeepTransitions(node, earlier *v1.Node) {
	if earlier == nil {
		return
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		for _, was := range earlier.Status.Conditions {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
}

// join joins problems in the form of Kubernetes' aggregated errors: a single problem as it is, several in brackets, and each only
// once.
func join(problems []string) string {
	var each []string
	for _, p := range problems {
		if p != "" && !slices.Contains(each, p) {
			each = append(each, p)
		}
	}
	if len(each) == 1 {
		return each[0]
	}
	return "[" + strings.Join(each, ", ") + "]"
}

// notReady lists all reasons why the node cannot take pods.
func (u *update) notReady() []string {
	problems := runtimeProblems(u.f)
	problems = append(problems, u.f.Problems...)
	if len(problems) > 0 {
		problems = append(problems, u.f.Failing...)
	}
	var missing []string
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage} {
		if name == v1.ResourceEphemeralStorage && !u.s.LocalStorageIsolation {
			continue
		}
		if _, ok := u.node.Status.Capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if len(missing) > 0 {
		problems = append(problems, "missing node capacity for resources: "+strings.Join(missing, ", "))
	}
	return problems
}

// NetworkReady returns whether the runtime reports that the pod network is ready, and the message for pods and the node
// if not.
func NetworkReady(status *runtimeapi.StatusResponse) (ready bool, message string) {
	if status == nil {
		return false, "network state unknown"
	}
	c := runtimeCondition(status, runtimeapi.NetworkReady)
	if c.GetStatus() {
		return true, ""
	}
	return false, "container runtime network not ready: " + conditionText(runtimeapi.NetworkReady, c)
}

// RuntimeReady reports whether the runtime reports that it is ready.
func RuntimeReady(status *runtimeapi.StatusResponse) bool {
	return runtimeCondition(status, runtimeapi.RuntimeReady).GetStatus()
}

// runtimeDown returns the problem of a runtime that does not answer; "": there is none.
func (f *Facts) runtimeDown() string {
	switch {
	case f.Runtime.LastReady.IsZero():
		return "container runtime status check may not have completed yet"
	case f.Now.Sub(f.Runtime.LastReady) >= RuntimeDownAfter:
		return "container runtime is down"
	}
	return ""
}

func runtimeProblems(f *Facts) []string {
	var out []string
	withCause := func(text string) string {
		if f.Runtime.Err != "" {
			return text + ": " + f.Runtime.Err
		}
		return text
	}
	if down := f.runtimeDown(); down != "" {
		out = append(out, withCause(down))
	}
	status := f.Runtime.Status
	if status != nil && !RuntimeReady(status) {
		out = append(out, "container runtime not ready: "+conditionText(runtimeapi.RuntimeReady, runtimeCondition(status, runtimeapi.RuntimeReady)))
	}
	if ok, message := NetworkReady(status); !ok {
		out = append(out, message)
	}
	return out
}

func runtimeCondition(status *runtimeapi.StatusResponse, kind string) *runtimeapi.RuntimeCondition {
	for _, c := range status.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

func conditionText(kind string, c *runtimeapi.RuntimeCondition) string {
	if c == nil {
		return "the runtime does not report " + kind
	}
	return fmt.Sprintf("%s=%t reason:%s message:%s", kind, c.GetStatus(), c.GetReason(), c.GetMessage())
}
