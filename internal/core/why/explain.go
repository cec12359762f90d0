package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Input has everything that an answer depends on.
type Input struct {
	// Pod is the pod with the status that the node last computed; never nil.
	Pod *v1.Pod
	// Turn is what the last turn of the pod's worker read and decided. It is nil if the worker took no turn in time.
	Turn *Turn
	// Failing are the probes whose last check failed.
	Failing []FailingProbe
	// Pulls are the image pulls of the node that have not ended.
	Pulls []Pull
	// Hangs is how long the current inspection has waited for the runtime. InspectionError is the error of the last inspection that
	// ended.
	Hangs           time.Duration
	InspectionError string
	// MemoryPeak is the most memory, in bytes, that all containers of the pod have used together; 0: unknown.
	MemoryPeak uint64
	// Standalone: the node has no API server, so the advice names commands that ask the node itself.
	Standalone bool
	Now        time.Time
}

// Turn is what a turn of the pod's worker read and decided.
type Turn struct {
	Observed *pod.Observed // never nil
	Memory   decide.Memory // a copy
	Node     decide.Node
	Phase    decide.Phase
	WakeAt   time.Time // when the worker takes its next turn without an event; zero: never
	Queued   bool      // the pod waits until other pods have started
	Place    int       // if Queued: the pod's position among the waiting pods; 1: it is the next
	Waiting  int       // if Queued: how many pods wait
	Flights  []Flight  // actions in flight, oldest first
	Looked   bool      // the agent has inspected the pod, or listed the runtime's pods, since it began
}

// Flight is an action that has begun and not ended.
type Flight struct {
	Action pod.Action
	Began  time.Time
}

// FailingProbe is a probe whose last check failed.
type FailingProbe struct {
	Container string
	Kind      string // startup, liveness or readiness
	Times     int    // failures in a row; the quick extra probes before a regular one do not count
	Threshold int    // the number of failures in a row after which the failure takes effect
	Output    string
}

// Pull is an image pull that has not ended.
type Pull struct {
	Image  string    // as in the spec of a container
	Began  time.Time // when a pod first needed the pull
	Queued bool      // the pull waits until fewer pulls run
	// Reported: Received and Total are known. They are bytes of all parts of images that the runtime receives in the Running pulls, because
	// it does not say to which image a part belongs. Total has only the parts whose size is known.
	Reported        bool
	Received, Total int64
	Running         int
	Moved           time.Time // when data last arrived
	Stalled         string    // says since when nothing happens; "": the pull goes on
}

// rule fills the answer for a pod in one situation. It returns false if the pod is not in this situation.
type rule func(in *Input, a *Answer) bool

// rules are tried in this order, and the first that applies fills the answer. Rules about the end of a pod come before rules about
// its start, and rules about the whole pod before rules about one container.
var rules = [...]rule{
	inspection,
	notLooked,
	ending,
	stopped,
	finished,
	waitsForNode,
	setUp,
	sandbox,
	containers,
	readinessGates,
	resizes,
	well,
}

// Explain returns the answer for a pod.
func Explain(in *Input) Answer {
	var a Answer
	for _, r := range rules {
		if r(in, &a) {
			break
		}
	}
	return a
}

// flight returns the oldest action in flight with one of these verbs, or nil.
func (in *Input) flight(ops ...pod.Op) *Flight {
	if in.Turn == nil {
		return nil
	}
	for i := range in.Turn.Flights {
		if f := &in.Turn.Flights[i]; slices.Contains(ops, f.Action.Op) {
			return f
		}
	}
	return nil
}

// flightOf returns the action in flight with this verb for this container, or nil.
func (in *Input) flightOf(container string, op pod.Op) *Flight {
	if in.Turn == nil {
		return nil
	}
	for i := range in.Turn.Flights {
		if f := &in.Turn.Flights[i]; f.Action.Op == op && f.Action.Container == container {
			return f
		}
	}
	return nil
}

// retry returns the back-off of the first failed action with one of these verbs, or nil.
func (in *Input) retry(ops ...pod.Op) *decide.Retry {
	if in.Turn == nil {
		return nil
	}
	for i := range in.Turn.Memory.Retry {
		if r := &in.Turn.Memory.Retry[i]; slices.Contains(ops, r.Op) && r.Message != "" {
			return r
		}
	}
	return nil
}

// inspection fills the answer if the inspection of the pod hangs or fails, so that the node does not know which containers run.
func inspection(in *Input, a *Answer) bool {
	switch {
	case in.Hangs > 0:
		a.set(RuntimeHangs, "the container runtime does not answer when it is asked about this pod")
		a.Since = in.Now.Add(-in.Hangs)
		a.then(time.Time{}, "the node decides nothing about the pod until the runtime answers")
		a.do("look at the runtime: crictl pods --name %s; journalctl -u containerd", in.Pod.Name)
		return true
	case in.InspectionError != "":
		a.set(InspectionFailed, "the container runtime cannot say what runs of this pod")
		a.fact("runtime", in.InspectionError)
		a.then(time.Time{}, "the node asks again")
		a.do("look at the runtime: crictl pods --name %s; journalctl -u containerd", in.Pod.Name)
		return true
	}
	return false
}

// finished fills the answer for a pod whose containers have all ended for good.
func finished(in *Input, a *Answer) bool {
	switch in.Pod.Status.Phase {
	case v1.PodSucceeded:
		a.set(Completed, "all containers have completed")
		return true
	case v1.PodFailed:
	default:
		return false
	}
	a.set(Failed, "the pod has failed and is not started again (restartPolicy %s)", in.Pod.Spec.RestartPolicy)
	for s := range pod.BaseStatuses(&in.Pod.Status) {
		if end := s.State.Terminated; end != nil && end.ExitCode != 0 {
			a.Container, a.Since = s.Name, end.FinishedAt.Time
			what, cause := "container", Failed
			if c := pod.SpecOf(in.Pod, s.Name); slices.ContainsFunc(in.Pod.Spec.InitContainers, func(i v1.Container) bool { return i.Name == s.Name }) && !pod.IsSidecar(c) {
				what, cause = "init container", InitFailed
			}
			a.set(endCause(end, cause), "%s %q %s, and is not started again", what, s.Name, endText(end))
			a.lastWords(end)
			a.do("%s", logsCommand(in, s.Name, false))
			break
		}
	}
	return true
}

// notLooked fills the answer as long as the agent has not inspected the pod yet and therefore does not know which containers run.
func notLooked(in *Input, a *Answer) bool {
	switch {
	case in.Turn == nil, in.Pod.Status.Phase == v1.PodFailed, in.Pod.Status.Phase == v1.PodSucceeded:
		return false // other rules give the answer from the pod's status
	case !in.Turn.Looked:
		a.set(NotLooked, "the agent has just started and has not inspected the pod yet")
		a.then(time.Time{}, "the runtime is asked for all pods first")
		return true
	}
	return false
}

// waitsForNode fills the answer for a pod whose sandbox cannot be created yet because of the node or of another pod.
func waitsForNode(in *Input, a *Answer) bool {
	t := in.Turn
	if t == nil || t.Observed.NewestSandbox() != nil {
		return false
	}
	switch {
	case !t.Memory.Admitted:
		a.set(AdmissionWaits, "the node cannot decide yet whether it takes the pod, because it does not know its own Node object or other pods have to end first")
		a.then(t.WakeAt, "it asks again")
	case t.Node.Predecessor:
		a.set(PredecessorRemains, "an earlier pod of the same name still has containers or volumes on this node")
		a.then(time.Time{}, "the pod starts when the earlier one is gone")
	case t.Queued:
		a.set(Queued, "the pod waits until other pods of this node have started")
		if t.Place > 0 {
			a.fact("queue", fmt.Sprintf("the pod is number %d of %d pods that wait to start", t.Place, t.Waiting))
		}
		a.then(time.Time{}, "it starts when one of them has started")
	case !t.Node.NetworkReady && !in.Pod.Spec.HostNetwork:
		a.set(NetworkNotReady, "the node has no pod network")
		a.fact("runtime", t.Node.NetworkMessage)
		a.then(time.Time{}, "the pod starts when the runtime reports that the network is ready")
		a.do("%s", networkAdvice)
	default:
		return false
	}
	a.Since = t.Memory.StartTime
	return true
}

// These are what the node does next after a failed set-up.
const (
	triesAgain = "the node tries again"
	triesSoon  = "the node tries again, at once if the object that is missing appears"
)

// lacks maps each pod.Lack, the reason why the volumes of a pod cannot be set up, to a cause, a line, what the node does next, and a piece
// of advice.
var lacks = [...]struct {
	cause          Cause
	line, next, do string
}{
	pod.LackNone:        {SetUpFails, "the volumes of the pod cannot be set up", triesAgain, ""},
	pod.LackConfigMap:   {ConfigMapMissing, "a volume of the pod needs a ConfigMap that does not exist", triesSoon, "create the ConfigMap, or mark it optional in the pod"},
	pod.LackSecret:      {SecretMissing, "a volume of the pod needs a Secret that does not exist", triesSoon, "create the Secret, or mark it optional in the pod"},
	pod.LackKey:         {KeyMissing, "a volume of the pod needs a key that its ConfigMap or Secret does not have", triesSoon, "add the key, or remove the item from the pod"},
	pod.LackClaim:       {ClaimMissing, "the persistent volume claim of a volume does not exist", triesSoon, "create the claim in the pod's namespace"},
	pod.LackBinding:     {ClaimNotBound, "the claim of a volume is not bound to a persistent volume yet", "the node tries again, at once when the claim is bound", "see what its provisioner does: kubectl describe pvc"},
	pod.LackTurn:        {ClaimInUse, "the claim of a volume may be used by one pod only, and another pod uses it", triesAgain, "end the other pod"},
	pod.LackAttachment:  {VolumeNotAttached, "a volume is not attached to this node yet", "the node tries again, at once when the volume is attached", "see what the attacher does: kubectl get volumeattachments"},
	pod.LackAttach:      {AttachFails, "a volume cannot be attached to this node", triesAgain, "see what the attacher says: kubectl describe volumeattachments"},
	pod.LackVolumeLimit: {VolumeLimitReached, "the node has as many volumes of a CSI driver as it can have", "the node ends the pod", volumeLimitAdvice},
	pod.LackDriver:      {DriverMissing, "the CSI driver of a volume has not registered on this node", "the node tries again, at once when the driver has registered", "see whether the driver's pod runs on this node: kubectl get csinode"},
	pod.LackMount:       {MountHangs, "a volume of the pod cannot be mounted, because the mount does not end", triesAgain, "see whether the server of the volume answers this node, or its CSI driver"},
	pod.LackBundle:      {BundleMissing, "a volume of the pod needs a ClusterTrustBundle that does not exist", triesSoon, "create the bundle, or mark the source optional in the pod"},
	pod.LackCertificate: {CertificateAwaited, "a volume of the pod needs a certificate that its signer has not issued", triesSoon, "see what the signer says: kubectl describe podcertificaterequests"},
	pod.LackRight:       {ObjectForbidden, "the API server does not let this node read an object of a volume", triesAgain, "see whether the pod is bound to this node and names the object"},
	pod.LackServer:      {APIServerAway, "a volume needs an object of the API server, which does not answer", triesAgain, "see whether this node reaches the API server"},
	pod.LackSupport:     {VolumeUnsupported, "this agent does not have a kind of volume that the pod uses", triesAgain, "docs/what-works.md lists the kinds; bind the pod to another node"},
	pod.LackDevices:     {DevicesUnsupported, "this agent cannot prepare the devices of the pod's resource claims", triesAgain, "bind the pod to another node; keep DRA drivers off this one"},
}

// setUpFailure returns the cause and the first line of the answer about a pod whose last set-up has failed.
func setUpFailure(r *decide.Retry) (Cause, string) {
	if r.Reason != "" && r.Reason != "FailedMount" && r.Lack == pod.LackNone {
		return SetUpFails, "the directories or the cgroup of the pod cannot be made (" + r.Reason + ")"
	}
	return lacks[r.Lack].cause, lacks[r.Lack].line
}

// sandboxFailure is the first line of the answer about a pod whose last sandbox could not be made.
const sandboxFailure = "the runtime cannot make the sandbox of the pod"

// StartFailure returns the first line of the answer about a pod that cannot start any container, because its set-up or its sandbox fails
// again and again; "": neither has failed. The line stays the same from one try to the next, so it can be a message in the pod's status.
func StartFailure(m *decide.Memory) string {
	for i := range m.Retry {
		switch r := &m.Retry[i]; {
		case r.Message == "":
		case r.Op == pod.OpSetUp && !m.SetUp:
			_, line := setUpFailure(r)
			return line
		case r.Op == pod.OpRunSandbox:
			return sandboxFailure
		}
	}
	return ""
}

// setUp fills the answer while the pod's volumes, directories or cgroup are not set up.
func setUp(in *Input, a *Answer) bool {
	if in.Turn == nil || in.Turn.Memory.SetUp {
		return false
	}
	if r := in.retry(pod.OpSetUp); r != nil {
		l := lacks[r.Lack]
		cause, line := setUpFailure(r)
		a.set(cause, "%s", line)
		a.fact("error", r.Message)
		a.Since = in.Turn.Memory.StartTime
		a.then(r.Until, "%s", l.next)
		if l.do != "" {
			a.do("%s", l.do)
		}
		return true
	}
	if f := in.flight(pod.OpSetUp); f != nil && in.Turn.Observed.NewestSandbox() == nil {
		a.set(SetUpRuns, "the volumes of the pod are being set up")
		a.Since = f.Began
		return true
	}
	return false
}

// sandbox fills the answer while the pod has no sandbox that is ready.
func sandbox(in *Input, a *Answer) bool {
	t := in.Turn
	if t == nil {
		return false
	}
	if s := t.Observed.NewestSandbox(); s != nil && s.Ready {
		return false
	}
	if r := in.retry(pod.OpRunSandbox); r != nil {
		a.set(SandboxFails, sandboxFailure)
		a.fact("runtime", r.Message)
		a.Since = t.Memory.StartTime
		a.then(r.Until, "the node tries again")
		a.do("look at the network plugin and the runtime class: journalctl -u containerd; crictl pods --name %s", in.Pod.Name)
		return true
	}
	if f := in.flight(pod.OpRunSandbox); f != nil {
		a.set(SandboxStarts, "the runtime makes the sandbox with the pod's network")
		a.Since = f.Began
		return true
	}
	return false
}

// readinessGates fills the answer for a pod whose containers are ready, but one of whose readiness gates is not true.
func readinessGates(in *Input, a *Answer) bool {
	for _, g := range in.Pod.Spec.ReadinessGates {
		c := condition(&in.Pod.Status, g.ConditionType)
		if c != nil && c.Status == v1.ConditionTrue {
			continue
		}
		a.set(GateMissing, "all containers are ready, but the readiness gate %q is not true", g.ConditionType)
		if c != nil {
			a.fact("condition", strings.TrimSuffix(c.Reason+": "+c.Message, ": "))
			a.Since = c.LastTransitionTime.Time
		}
		a.then(time.Time{}, "the pod becomes ready when its controller sets the condition")
		return true
	}
	return false
}

// resizes fills the answer for a pod that runs well, but whose new resources are not in force yet.
func resizes(in *Input, a *Answer) bool {
	if in.Pod.Status.Phase != v1.PodRunning {
		return false // the pod starts with its new resources
	}
	c := condition(&in.Pod.Status, v1.PodResizePending)
	if c == nil {
		c = condition(&in.Pod.Status, v1.PodResizeInProgress)
	}
	if c == nil || c.Status != v1.ConditionTrue {
		return false
	}
	a.set(ResizeWaits, "the pod runs, but its new resources are not in force (%s)", strings.TrimPrefix(string(c.Type)+" "+c.Reason, " "))
	a.fact("condition", c.Message)
	a.Since = c.LastTransitionTime.Time
	return true
}

// well fills the answer when nothing is wrong. If the worker took no turn in time, the cause is NoAnswer.
func well(in *Input, a *Answer) bool {
	if in.Turn == nil {
		a.set(NoAnswer, "the pod's worker is busy; the status shows phase %s and nothing that is wrong", in.Pod.Status.Phase)
		return true
	}
	if in.Pod.Status.Phase != v1.PodRunning {
		a.set(ContainerStarts, "the pod is starting")
		a.Since = in.Turn.Memory.StartTime
		return true
	}
	a.set(Running, "everything is as the spec says")
	if r := in.retry(pod.OpSetUp); r != nil && in.Turn.Memory.Outdated {
		a.fact("volumes", "they may show old content, because setting them up again fails: "+r.Message)
	}
	if c := condition(&in.Pod.Status, v1.PodReady); c != nil && c.Status == v1.ConditionTrue {
		a.Since = c.LastTransitionTime.Time
	}
	return true
}

func condition(s *v1.PodStatus, kind v1.PodConditionType) *v1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// round rounds a duration to a precision that suits a message.
func round(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(100 * time.Millisecond)
}
