package decide

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// ensureSetUp plans the set-up of the pod's directories, cgroup and volumes. The sandbox and the starts of containers wait for the first
// set-up; image pulls do not. Nothing waits for a later one, which only renews content: it may fail for hours if the API server is away or an
// object was deleted, and a container that has ended must start again all the same.
func (t *turn) ensureSetUp() {
	m, why := t.in.Memory, WhyVolumes
	switch {
	case m.Outdated:
		why = WhyRefresh
	case m.SetUp, t.needsNetwork() && len(t.in.Observed.Sandboxes) == 0:
		return
	}
	if !t.busy(pod.OpSetUp) && !t.busy(pod.OpResize) && t.due(pod.OpSetUp, "") {
		t.begin(pod.Action{Op: pod.OpSetUp, Size: t.groupNow(), Renews: m.Outdated, Why: why})
	}
}

// needsNetwork reports whether the pod cannot get a sandbox because the node's pod network is not ready.
func (t *turn) needsNetwork() bool { return !t.in.Node.NetworkReady && !t.in.Pod.Spec.HostNetwork }

// UsableSandbox returns the sandbox in which containers may run, or nil and why there is none.
func UsableSandbox(p *v1.Pod, o *pod.Observed) (*pod.Sandbox, pod.Why) {
	sb := o.NewestSandbox()
	if sb == nil {
		return nil, WhyFirstSandbox
	}
	ready := 0
	for i := range o.Sandboxes {
		if o.Sandboxes[i].Ready {
			ready++
		}
	}
	switch {
	case ready > 1:
		return nil, WhySandboxMany
	case !sb.Ready:
		return nil, WhySandboxDead
	case sb.HostNetwork != p.Spec.HostNetwork:
		return nil, WhySandboxNetwork
	case !sb.HostNetwork && len(sb.IPs) == 0:
		return nil, WhySandboxNoIP
	}
	return sb, ""
}

// ensureSandbox sets t.sandbox to the sandbox in which containers may run. If the pod's sandbox is not usable, it plans to replace it: the
// containers in it end, then the sandbox is stopped, then a new one runs.
func (t *turn) ensureSandbox() {
	if t.busy(pod.OpRunSandbox) {
		return
	}
	sb, why := UsableSandbox(t.in.Pod, t.in.Observed)
	if sb != nil {
		t.sandbox = sb
		return
	}
	if t.stopAlive(pod.CauseSandbox, why) || t.busy(pod.OpStartContainer) || t.stale || t.stopSandboxes(why) {
		return
	}
	if t.needsNetwork() {
		t.noNetwork = true
		return
	}
	if t.in.Memory.SetUp && t.due(pod.OpRunSandbox, "") {
		t.begin(pod.Action{Op: pod.OpRunSandbox, Attempt: t.nextSandboxAttempt(), Why: why})
	}
}

// stopSandboxes stops every sandbox that may still hold resources. It reports whether a stop is still under way.
func (t *turn) stopSandboxes(why pod.Why) bool {
	left := false
	for i := range t.in.Observed.Sandboxes {
		sb := &t.in.Observed.Sandboxes[i]
		// Only the newest sandbox can have died without being stopped, because the agent runs a new one only after it stopped the
		// older ones.
		if !sb.Ready && (i > 0 || slices.Contains(t.in.Memory.StoppedSandboxes, sb.ID)) {
			continue
		}
		left = true
		if t.due(pod.OpStopSandbox, sb.ID) {
			t.begin(pod.Action{Op: pod.OpStopSandbox, ID: sb.ID, Why: why})
		}
	}
	return left
}

func (t *turn) nextSandboxAttempt() uint32 {
	var attempt uint32
	if sb := t.in.Observed.NewestSandbox(); sb != nil {
		attempt = following(sb.Attempt)
	}
	if t.in.Memory.SandboxAttemptKnown {
		attempt = max(attempt, following(t.in.Memory.SandboxAttempt))
	}
	return attempt
}

// following returns the attempt after another one. After the last number it returns that number again, since attempts never go back to 0: the runtime
// then says that the name is taken. Only a runtime that makes numbers up comes that far.
func following(attempt uint32) uint32 {
	if attempt == math.MaxUint32 {
		return attempt
	}
	return attempt + 1
}

// inSandbox reports whether a container belongs to the present sandbox.
func (t *turn) inSandbox(c *pod.Container) bool {
	return t.sandbox != nil && c.SandboxID == t.sandbox.ID
}
