package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// overrides reports whether a container that was ended for a cause starts again whatever its exit code is. One that
// was asked to change does so in any case. The others do so unless the policy is Never, which the exit code and the
// rules of the container are then held against; under Always everything starts again anyhow.
func overrides(c pod.Cause, spec *v1.PodSpec, container *v1.Container) bool {
	switch c {
	case pod.CauseChanged, pod.CauseResize:
		return true
	case pod.CauseLiveness, pod.CauseStartup, pod.CauseSandbox, pod.CauseUnknown:
		return restartPolicy(spec, container) == v1.RestartPolicyOnFailure
	case pod.CauseNone, pod.CausePostStart, pod.CauseStray, pod.CauseRestartAll:
	}
	return false
}

// crash reports whether the end of a container for this cause counts for its back-off. A checkpoint of an older agent
// names no cause where it was changed or resized, and other names for the rest.
func crash(c pod.Cause) bool {
	return c != pod.CauseNone && c != pod.CauseChanged && c != pod.CauseResize
}

// killFor ends one container for a cause, and settles that it starts again where the cause overrides its policy.
func (t *turn) killFor(cause pod.Cause, inst *pod.Container, why pod.Why) {
	begun := len(t.plan.Do)
	t.kill(inst, t.alone(inst, cause), cause, why)
	if len(t.plan.Do) > begun {
		t.replace(cause, inst)
	}
}

// replace settles that a container that is being ended starts again. Regular init containers have rules of their own,
// ephemeral containers never start again.
func (t *turn) replace(cause pod.Cause, inst *pod.Container) {
	spec := pod.SpecOf(t.in.Pod, inst.Name)
	if spec == nil || t.isEphemeral(inst.Name) || t.isInit(spec) && !pod.IsSidecar(spec) ||
		t.in.Observed.Newest(inst.Name).ID != inst.ID || !overrides(cause, &t.in.Pod.Spec, spec) {
		return
	}
	t.plan.Replaced = append(t.plan.Replaced, Replacement{Name: inst.Name, ID: inst.ID, Cause: cause})
}

// Replacement is a container instance that is ended to start again, whatever it ends with.
type Replacement struct {
	Name, ID string
	Cause    pod.Cause
}

// replaced returns the cause for which an instance was ended to start again.
func (cm *ContainerMemory) replaced(id string) (pod.Cause, bool) {
	return cm.ReplacedFor, id != "" && cm.ReplacedID == id
}

// StartsAgain reports whether a container that ended is started again: it was ended for that, or its restart policy says
// so.
func StartsAgain(spec *v1.PodSpec, c *v1.Container, cm *ContainerMemory, id string, exitCode int32) bool {
	if _, replaced := cm.replaced(id); replaced {
		return true
	}
	return MayRestart(spec, c, exitCode)
}
