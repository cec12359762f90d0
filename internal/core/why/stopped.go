package why

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/shutdown"
)

// stopped fills the answer for a pod that the node refused or ended, and that has no running containers.
func stopped(in *Input, a *Answer) bool {
	var reason, message, detail string
	rejected := false
	switch t := in.Turn; {
	case t != nil && t.Memory.Stop != nil:
		s := t.Memory.Stop
		reason, message, detail, rejected, a.Since = s.Reason, s.Message, s.Detail, s.Rejected, s.Since
	case in.Pod.Status.Phase == v1.PodFailed && in.Pod.Status.Reason != "":
		reason, message = in.Pod.Status.Reason, in.Pod.Status.Message
		rejected = len(in.Pod.Status.ContainerStatuses) == 0
	default:
		return false
	}
	a.set(stopCause(reason, message, rejected), "%s", strings.TrimSuffix(reason+": "+message, ": "))
	a.fact("detail", detail)
	switch a.Cause {
	case DoesNotFit:
		a.do("lower the requests of the pod, or free some on the node: %s", nodeCommand(in))
	case TaintRefuses:
		a.do("add a toleration of the taint to the pod, or remove the taint from the node: %s", nodeCommand(in))
	case PortTaken:
		a.do("end the pod that has the port, or give this one another hostPort or another node")
	case LabelsDiffer:
		a.do("change the pod's nodeSelector or affinity, or the labels of the node: %s", nodeCommand(in))
	case PressureRefuses:
		a.do("see what the node is short of, and what ends that: wherry explain node")
	case SysctlForbidden:
		a.do("remove the sysctl from the pod, or allow it on this node: allowedUnsafeSysctls in the agent's configuration")
	case AppArmorRefuses:
		a.do("boot the node with AppArmor and name a profile that it has, or remove the profile from the pod")
	case OSDiffers:
		a.do("bind the pod to a node with its operating system, or correct spec.os and the label kubernetes.io/os of the pod")
	case GroupsPolicyRefuses:
		a.do("use a newer container runtime on this node, or supplementalGroupsPolicy: Merge in the pod")
	case Evicted:
		a.do("see what the node was short of: %s; give the pod requests that match what it uses", nodeCommand(in))
	case VolumeLimitReached:
		a.do("%s", volumeLimitAdvice)
	case Preempted:
		a.do("its controller makes another pod; nothing is to be done on this node")
	}
	a.then(time.Time{}, "nothing: the pod stays as it is until somebody deletes it")
	return true
}

// volumeLimitAdvice is the advice about a pod that needs a volume which its node cannot have beside its others.
const volumeLimitAdvice = "its controller makes another pod, which is bound to another node; see how many volumes of the driver this node can have: kubectl describe csinode"

// stopCause returns the cause that belongs to a status.reason and its message.
func stopCause(reason, message string, rejected bool) Cause {
	switch {
	case admit.ShortOfResources(reason, message):
		return DoesNotFit
	case reason == admit.ReasonPreempting:
		return Preempted
	case reason == shutdown.ReasonTerminated, reason == shutdown.ReasonRefused:
		return NodeShutsDown
	case reason == decide.ReasonDeadlineExceeded:
		return DeadlineExceeded
	case reason == decide.ReasonVolumeLimit:
		return VolumeLimitReached
	case reason == admit.ReasonEvicted && rejected:
		return PressureRefuses
	case reason == admit.ReasonEvicted:
		return Evicted
	}
	switch cause := refusalCause(reason); {
	case cause != "":
		return cause
	case rejected:
		return Refused
	}
	return Stopped
}

// refusalCause returns the cause that belongs to a reason that only refusals have; "": the reason is another one. It needs no memory of the
// refusal, which is lost with the pod's checkpoint.
func refusalCause(reason string) Cause {
	switch reason {
	case admit.ReasonTaint:
		return TaintRefuses
	case admit.ReasonNodePorts:
		return PortTaken
	case admit.ReasonNodeAffinity:
		return LabelsDiffer
	case admit.ReasonSysctl:
		return SysctlForbidden
	case admit.ReasonAppArmor:
		return AppArmorRefuses
	case admit.ReasonOS, admit.ReasonOSLabel:
		return OSDiffers
	case admit.ReasonGroupsPolicy:
		return GroupsPolicyRefuses
	case admit.ReasonNodeInfo, admit.ReasonNodeName, admit.ReasonUnexpected:
		return Refused
	}
	return ""
}
