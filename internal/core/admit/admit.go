package admit

import (
	"fmt"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// The reasons of a refusal, as they appear in status.reason of the pod. If a resource does not suffice, the reason is
// ReasonOutOf and the resource's name: OutOfcpu, OutOfmemory, OutOfpods, OutOfexample.com/gpu.
const (
	ReasonOutOf                 = "OutOf"
	ReasonEvicted               = "Evicted"
	ReasonSysctl                = "SysctlForbidden"
	ReasonNodeInfo              = "InvalidNodeInfo"
	ReasonOSLabel               = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonOS                    = "PodOSNotSupported"
	ReasonGroupsPolicy          = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeAffinity          = "NodeAffinity"
	ReasonNodeName              = "NodeName"
	ReasonNodePorts             = "NodePorts"
	ReasonTaint                 = "TaintToleration"
	ReasonAppArmor              = "AppArmor"
	ReasonUnexpected            = "UnexpectedAdmissionError"
	messagePredicate            = "Predicate %s failed: %s"
	descriptionAffinity         = "node(s) didn't match Pod's node affinity/selector"
	descriptionName             = "node(s) didn't match the requested node name"
	descriptionPorts            = "node(s) didn't have free ports for the requested pod ports"
	descriptionTaint            = "node(s) had taints that the pod didn't tolerate"
	descriptionAppArmor         = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
	descriptionAppArmorNoName   = "Cannot enforce AppArmor: invalid empty AppArmor profile name of container %s"
	descriptionUnableToMakeRoom = "Unexpected error while attempting to recover from admission failure: " +
		"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: %s"
)

// ShortOfResources reports whether a pod was refused because the node has too little of a resource for it. reason and message are
// those of the pod's status.
func ShortOfResources(reason, message string) bool {
	room, _, _ := strings.Cut(descriptionUnableToMakeRoom, "%s")
	return strings.HasPrefix(reason, ReasonOutOf) || reason == ReasonUnexpected && strings.Contains(message, room)
}

// Input is the input of Admit.
type Input struct {
	Pod *v1.Pod
	// Others are the admitted pods of the node that are not terminal, without Pod. Admit adds up the requests in their specs, so during a
	// resize the caller puts the allocated resources into the spec.
	Others []*v1.Pod
	// Node is the newest known Node: labels, taints, allocatable, features. Nil: the Node is not known, and no pod is
	// admitted.
	Node *v1.Node
	// AllowedUnsafeSysctls is KubeletConfiguration.allowedUnsafeSysctls; a pattern ends in *.
	AllowedUnsafeSysctls []string
	// Kernel is the kernel release ("6.1.0-18-amd64"), because some sysctls are safe only from a certain version on. If it is empty,
	// these sysctls are not safe.
	Kernel string
	// Pressure lists the node's pressure conditions that are true now.
	Pressure []v1.NodeConditionType
	// AppArmor says whether the kernel enforces AppArmor profiles.
	AppArmor bool
	// OS is the node's operating system; empty: the one of this program.
	OS string
}

// Result is one of three answers. The pod is admitted (OK), or it is refused (Reason and Message say why), or the pods in Preempt must
// end first. In the last case Reason and Message say which resource is short, the caller ends these pods with the reason Preempting, and
// calls Admit again when they have ended.
type Result struct {
	OK      bool
	Reason  string
	Message string
	// Detail says what is behind the message, which has upstream's words: the taint, the port and the pod that has it, the operating
	// systems. It may be empty.
	Detail  string
	Preempt []*v1.Pod
	// Passing is set if the reason of a refusal is temporary. The refusal of a pod from the API is final nevertheless, because its
	// controller creates another pod; a static pod waits until it can be admitted.
	Passing bool
}

// ByNode reports whether the pod is refused because of data in the Node object of the API: its labels, its taints, its allocatable
// resources, the features of its runtime. If the known Node is older than the pod's binding, such a refusal may be wrong.
func (r Result) ByNode() bool {
	switch r.Reason {
	case ReasonNodeAffinity, ReasonTaint, ReasonGroupsPolicy, ReasonNodeInfo, ReasonUnexpected:
		return !r.OK
	}
	return !r.OK && strings.HasPrefix(r.Reason, ReasonOutOf)
}

func refuse(reason, format string, args ...any) Result {
	return Result{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Admit decides whether the node takes one pod, by the checks that the package documentation lists.
func Admit(in Input) Result {
	if in.OS == "" {
		in.OS = runtime.GOOS
	}
	if r, bad := in.pressure(); bad {
		return r
	}
	if r, bad := in.sysctls(); bad {
		return r
	}
	if in.Node == nil {
		return refuse(ReasonNodeInfo, "Kubelet cannot get node info.")
	}
	if r, bad := in.beyondPreemption(); bad {
		return r
	}
	short := Shortages(in.Pod, in.Others, in.Node)
	failed := in.predicates()
	critical := crispec.IsCritical(in.Pod)
	switch {
	case len(short) > 0 && !(critical && len(failed) > 0):
		if critical {
			return in.makeRoom(short)
		}
		return refuse(short[0].Reason(), "%s", short[0])
	case len(failed) > 0:
		return failed[0]
	}
	if r, bad := in.apparmor(); bad {
		return r
	}
	return Result{OK: true}
}

// pressure refuses pods while the node is under pressure. If memory pressure is the only condition, it refuses only best-effort pods
// that do not tolerate the taint of memory pressure. Otherwise it refuses all pods. It never refuses critical pods.
func (in *Input) pressure() (Result, bool) {
	if len(in.Pressure) == 0 || crispec.IsCritical(in.Pod) {
		return Result{}, false
	}
	if len(in.Pressure) == 1 && in.Pressure[0] == v1.NodeMemoryPressure {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if crispec.QOS(in.Pod) != v1.PodQOSBestEffort || tolerated(in.Pod, &taint) {
			return Result{}, false
		}
	}
	return refuse(ReasonEvicted, "The node had condition: %v. ", in.Pressure), true
}

// tolerated reports whether a pod tolerates a taint. A toleration must have the taint's key and effect (empty matches
// all), and the operator Exists or the taint's value. (The operators that compare numbers are alpha and off by
// default.)
func tolerated(p *v1.Pod, taint *v1.Taint) bool {
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		if (t.Effect != "" && t.Effect != taint.Effect) || (t.Key != "" && t.Key != taint.Key) {
			continue
		}
		switch t.Operator {
		case "", v1.TolerationOpEqual:
			if t.Value == taint.Value {
				return true
			}
		case v1.TolerationOpExists:
			return true
		}
	}
	return false
}

// beyondPreemption makes the checks that do not depend on other pods, so that no preemption can change their results.
func (in *Input) beyondPreemption() (Result, bool) {
	if want, ok := in.Pod.Labels[v1.LabelOSStable]; ok && want != in.OS {
		return in.otherOS(want, refuse(ReasonOSLabel, "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label")), true
	}
	if o := in.Pod.Spec.OS; o != nil && string(o.Name) != in.OS {
		return in.otherOS(string(o.Name), refuse(ReasonOS, "Failed to admit pod as the OS field doesn't match node OS")), true
	}
	sc := in.Pod.Spec.SecurityContext
	if sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		f := in.Node.Status.Features
		if f == nil || f.SupplementalGroupsPolicy == nil || !*f.SupplementalGroupsPolicy {
			return refuse(ReasonGroupsPolicy, "SupplementalGroupsPolicy=%s is not supported in this node",
				v1.SupplementalGroupsPolicyStrict), true
		}
	}
	return Result{}, false
}

// otherOS adds to a refusal for which operating system the pod is, and which one the node has.
func (in *Input) otherOS(want string, r Result) Result {
	r.Detail = fmt.Sprintf("the pod is for %s, and this node has %s", want, in.OS)
	return r
}

// apparmor refuses a profile that the node cannot enforce.
func (in *Input) apparmor() (Result, bool) {
	sc := in.Pod.Spec.SecurityContext
	required := sc != nil && sc.AppArmorProfile != nil && sc.AppArmorProfile.Type != v1.AppArmorProfileTypeUnconfined
	nameless := ""
	for c := range crispec.Containers(in.Pod) {
		a := crispec.AppArmor(in.Pod, c)
		if a == nil || a.Type == v1.AppArmorProfileTypeUnconfined {
			continue
		}
		required = true
		if a.Type == v1.AppArmorProfileTypeLocalhost && (a.LocalhostProfile == nil || strings.TrimSpace(*a.LocalhostProfile) == "") {
			nameless = c.Name
		}
	}
	switch {
	case !required:
		return Result{}, false
	case !in.AppArmor:
		return refuse(ReasonAppArmor, descriptionAppArmor), true
	case nameless != "":
		return refuse(ReasonAppArmor, descriptionAppArmorNoName, nameless), true
	}
	return Result{}, false
}
