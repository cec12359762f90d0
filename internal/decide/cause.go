package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// Cause is why the agent ends one container so that it starts again. A container that is ended for a cause may well
// end with 0 on TERM: its exit code then says nothing of whether it has done its work.
type Cause string

// The causes. None is the end of a container that its restart policy alone judges.
const (
	CauseNone    Cause = ""
	CauseChanged Cause = "Changed" // its definition changed
	CauseResize  Cause = "Resize"  // it restarts for its new resources
	CauseProbe   Cause = "Probe"   // its liveness or startup probe failed
	CauseSandbox Cause = "Sandbox" // its sandbox is lost or another is in its place
	CauseUnknown Cause = "Unknown" // the runtime does not know its state
)

// overrides reports whether a container that was ended for this cause starts again whatever its exit code is. One that
// was asked to change does so in any case. The others do so unless the policy is Never, which the exit code and the
// rules of the container are then held against; under Always everything starts again anyhow.
func (c Cause) overrides(spec *v1.PodSpec, container *v1.Container) bool {
	switch c {
	case CauseChanged, CauseResize:
		return true
	case CauseProbe, CauseSandbox, CauseUnknown:
		return restartPolicy(spec, container) == v1.RestartPolicyOnFailure
	case CauseNone:
	}
	return false
}

// crash reports whether the end of a container for this cause counts for its back-off. A checkpoint of an older agent
// names no cause: it kept only what was changed or resized.
func (c Cause) crash() bool { return c == CauseProbe || c == CauseSandbox || c == CauseUnknown }

// killFor ends one container for a cause, and settles that it starts again where the cause overrides its policy.
func (t *turn) killFor(cause Cause, inst *pod.Container, why pod.Why) {
	spec, begun := pod.SpecOf(t.in.Pod, inst.Name), len(t.plan.Do)
	t.kill(inst, t.restartGrace(spec, inst, t.memory(inst.Name)), why)
	if len(t.plan.Do) > begun {
		t.replace(cause, inst)
	}
}

// replace settles that a container that is being ended starts again. Regular init containers have rules of their own,
// ephemeral containers never start again.
func (t *turn) replace(cause Cause, inst *pod.Container) {
	spec := pod.SpecOf(t.in.Pod, inst.Name)
	if spec == nil || t.isEphemeral(inst.Name) || t.isInit(spec) && !IsSidecar(spec) ||
		t.in.Observed.Newest(inst.Name).ID != inst.ID || !cause.overrides(&t.in.Pod.Spec, spec) {
		return
	}
	t.plan.Replaced = append(t.plan.Replaced, Replacement{Name: inst.Name, ID: inst.ID, Cause: cause})
}

// Replacement is a container instance that is ended to start again, whatever it ends with.
type Replacement struct {
	Name, ID string
	Cause    Cause
}

// replaced returns the cause for which an instance was ended to start again.
func (cm *ContainerMemory) replaced(id string) (Cause, bool) {
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
