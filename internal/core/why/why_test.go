package why

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// situation is an Input with one main container "app" that runs and is ready; options change it.
type situation struct {
	in   Input
	pod  *v1.Pod
	turn *Turn
	app  *v1.ContainerStatus
}

func healthy() *situation {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"},
		Spec:       v1.PodSpec{NodeName: "n1", RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app", Image: "img:1"}}},
		Status: v1.PodStatus{
			Phase:      v1.PodRunning,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}},
			ContainerStatuses: []v1.ContainerStatus{{
				Name: "app", ContainerID: "containerd://c1", Ready: true, Started: new(true),
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-time.Minute))}},
			}},
		},
	}
	t := &Turn{
		Observed: &pod.Observed{
			Sandboxes:  []pod.Sandbox{{ID: "s1", Ready: true}},
			Containers: []pod.Container{{ID: "c1", Name: "app", SandboxID: "s1", State: pod.StateRunning}},
		},
		Node: decide.Node{NetworkReady: true, SourcesReady: true}, Looked: true,
	}
	t.Memory.Admitted, t.Memory.SetUp, t.Memory.StartTime = true, true, now.Add(-2*time.Minute)
	s := &situation{pod: p, turn: t, app: &p.Status.ContainerStatuses[0]}
	s.in = Input{Pod: p, Turn: t, Now: now}
	return s
}

// pulls makes the pull of the container's image run, and says how far it is.
func (s *situation) pulls(p Pull) *situation {
	p.Image = "img:1"
	s.in.Pulls = []Pull{{Image: "other:1", Stalled: "not this one"}, p}
	return s.waits("ContainerCreating", "").flies(pod.Action{Op: pod.OpPullImage, Container: "app"})
}

// fresh returns the situation of a pod that has no sandbox and no containers yet.
func fresh() *situation {
	s := healthy()
	s.pod.Status.Phase = v1.PodPending
	s.turn.Observed = &pod.Observed{}
	s.turn.Memory.SetUp = false
	s.waits("ContainerCreating", "")
	s.app.ContainerID = ""
	return s
}

func (s *situation) waits(reason, message string) *situation {
	s.app.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	s.app.Ready, s.app.Started = false, new(false)
	return s
}

func (s *situation) ended(code int32, reason, message string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(now.Add(-5 * time.Second)),
	}}
}

// crashes makes the container wait for its back-off of 20 s, which ends in 15 s.
func (s *situation) crashes(code int32, reason, message string) *situation {
	s.waits("CrashLoopBackOff", "back-off 20s restarting failed container")
	s.app.LastTerminationState, s.app.RestartCount = s.ended(code, reason, message), 3
	s.memory().CrashUntil = now.Add(15 * time.Second)
	return s
}

func (s *situation) memory() *decide.ContainerMemory { return s.turn.Memory.Ensure("app") }

func (s *situation) flies(a pod.Action) *situation {
	s.turn.Flights = append(s.turn.Flights, Flight{Action: a, Began: now.Add(-3 * time.Second)})
	return s
}

func (s *situation) retries(op pod.Op, reason, message string) *situation {
	s.turn.Memory.Retry = append(s.turn.Memory.Retry, decide.Retry{Op: op, Until: now.Add(8 * time.Second), Reason: reason, Message: message})
	return s
}

// lacks makes the set-up of the volumes fail because something is missing.
func (s *situation) lacks(what pod.Lack) *situation {
	s.retries(pod.OpSetUp, "FailedMount", "the words of the volume")
	s.turn.Memory.Retry[0].Lack = what
	return s
}

// pullFails makes the container wait for the back-off of a failed pull.
func (s *situation) pullFails(reason, message string) *situation {
	s.waits("ImagePullBackOff", `Back-off pulling image "img:1"`)
	m := s.memory()
	m.WaitingReason, m.WaitingMessage, m.PullFailed, m.PullUntil = reason, message, "img:1", now.Add(30*time.Second)
	return s
}

func (s *situation) stops(reason, message string, rejected bool) *situation {
	s.turn.Memory.Stop = &decide.Stop{Reason: reason, Message: message, Rejected: rejected, Since: now.Add(-time.Hour)}
	s.turn.Phase = decide.PhaseStopped
	s.turn.Observed = &pod.Observed{}
	s.pod.Status.Phase = v1.PodFailed
	return s
}

// deleted changes the situation to a deleted pod that began to end 10 s ago, with a grace period of 30 s.
func (s *situation) deleted() *situation {
	t := metav1.NewTime(now.Add(20 * time.Second))
	s.pod.DeletionTimestamp = &t
	s.turn.Phase = decide.PhaseStopping
	s.turn.Memory.StopBegan, s.turn.Memory.StopGrace = now.Add(-10*time.Second), 30*time.Second
	return s
}

func (s *situation) empty() *situation {
	s.turn.Observed = &pod.Observed{}
	s.turn.Phase = decide.PhaseStopped
	return s
}

func (s *situation) and(f func(*situation)) *situation {
	f(s)
	return s
}

// cases has at least one case for each cause, with the expected answer: a part of its text, and when the next thing happens.
var cases = []struct {
	name  string
	s     *situation
	cause Cause
	says  string        // a text that is expected in the line, a fact, Next or the advice
	next  time.Duration // from now; 0: no time is known
}{
	{"a pod that runs", healthy(), Running, "as the spec says", 0},
	{"a pod that runs with old content of its volumes", healthy().and(func(s *situation) { s.turn.Memory.Outdated = true }).lacks(pod.LackSecret), Running,
		"may show old content, because setting them up again fails: the words of the volume", 0},
	{"a runtime that hangs", healthy().and(func(s *situation) { s.in.Hangs = 40 * time.Second }), RuntimeHangs, "does not answer", 0},
	{"a runtime that errs", healthy().and(func(s *situation) { s.in.InspectionError = "rpc broke" }), InspectionFailed, "rpc broke", 0},
	{"an agent that has just started", healthy().and(func(s *situation) { s.turn.Looked = false }), NotLooked, "just started", 0},
	{"a worker that does not answer", healthy().and(func(s *situation) { s.in.Turn = nil }), NoAnswer, "phase Running", 0},
	{"no turn, and a container that crashes", healthy().crashes(1, "Error", "").and(func(s *situation) { s.in.Turn = nil }), CrashLoop, "exit code 1", 0},

	{"a node that cannot decide", fresh().and(func(s *situation) { s.turn.Memory.Admitted, s.turn.WakeAt = false, now.Add(time.Second) }), AdmissionWaits, "cannot decide", time.Second},
	{"a taint", fresh().stops("TaintToleration", "Predicate TaintToleration failed", true), TaintRefuses, "add a toleration", 0},
	{"a taint, in detail", fresh().stops("TaintToleration", "Predicate TaintToleration failed", true).and(func(s *situation) {
		s.turn.Memory.Stop.Detail = "the node has the taint k=v:NoExecute"
	}), TaintRefuses, "detail: the node has the taint k=v:NoExecute", 0},
	{"a port of the host that another pod has", fresh().stops("NodePorts", "Predicate NodePorts failed", true), PortTaken, "hostPort", 0},
	{"a label that the node does not have", fresh().stops("NodeAffinity", "Predicate NodeAffinity failed", true), LabelsDiffer, "kubectl describe node n1", 0},
	{"a sysctl that the node does not allow", fresh().stops("SysctlForbidden", "forbidden sysctl", true), SysctlForbidden, "allowedUnsafeSysctls", 0},
	{"a profile of AppArmor on a node without it", fresh().stops("AppArmor", "AppArmor is not enabled", true), AppArmorRefuses, "boot the node with AppArmor", 0},
	{"another operating system, by the field", fresh().stops("PodOSNotSupported", "the OS field doesn't match", true), OSDiffers, "spec.os", 0},
	{"another operating system, by the label", fresh().stops("PodOSSelectorNodeLabelDoesNotMatch", "label doesn't match", true), OSDiffers, "spec.os", 0},
	{"a groups policy that the runtime does not have", fresh().stops("SupplementalGroupsPolicyNotSupported", "not supported", true), GroupsPolicyRefuses, "Merge", 0},
	{"a refusal of an agent before this one", fresh().stops("SomethingElse", "no idea", true), Refused, "SomethingElse: no idea", 0},
	{"no CPU left", fresh().stops("OutOfcpu", "requested: 4000, used: 1000, capacity: 2000", true), DoesNotFit, "kubectl describe node n1", 0},
	{"an eviction", healthy().stops("Evicted", "The node was low on resource: memory.", false), Evicted, "low on resource", 0},
	{"a pressure that refuses a pod", fresh().stops("Evicted", "The node had condition: [MemoryPressure].", true), PressureRefuses, "wherry explain node", 0},
	{"a refusal whose checkpoint is lost, after the agent has written the status", healthy().and(func(s *situation) {
		s.pod.Status.Phase, s.pod.Status.Reason, s.pod.Status.Message = v1.PodFailed, "TaintToleration", "Pod was rejected: a taint"
	}), TaintRefuses, "add a toleration", 0},
	{"an eviction known only from the status", healthy().and(func(s *situation) {
		s.in.Turn = nil
		s.pod.Status.Phase, s.pod.Status.Reason, s.pod.Status.Message = v1.PodFailed, "Evicted", "low"
	}), Evicted, "low", 0},
	{"a preemption", healthy().stops("Preempting", "to admit critical pod", false), Preempted, "critical", 0},
	{"a machine that shuts down", healthy().stops("Terminated", "Pod was terminated in response to imminent node shutdown.", false), NodeShutsDown, "shutdown", 0},
	{"a deadline", healthy().stops("DeadlineExceeded", "longer than the specified deadline", false), DeadlineExceeded, "deadline", 0},
	{"another stop", healthy().stops("Strange", "so", false), Stopped, "Strange: so", 0},

	{"a preStop hook", healthy().deleted().flies(pod.Action{Op: pod.OpPreStop, Container: "app", ID: "c1"}), PreStopRuns, `"app"`, 20 * time.Second},
	{"a grace period", healthy().deleted().flies(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "c1"}), GraceRuns, "30s", 20 * time.Second},
	{"a container that does not die", healthy().deleted().and(func(s *situation) { s.turn.Memory.StopBegan = now.Add(-2 * time.Minute) }).
		flies(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "c1"}), StopOverdue, "1m30s", 0},
	{"an eviction that ends a container", healthy().deleted().and(func(s *situation) {
		s.pod.DeletionTimestamp, s.turn.Memory.Stop = nil, &decide.Stop{Reason: "Evicted"}
	}).flies(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "c1"}), GraceRuns, "the node ends it (Evicted)", 20 * time.Second},
	{"an eviction that kills a container", healthy().deleted().and(func(s *situation) {
		s.pod.DeletionTimestamp, s.turn.Memory.Stop = nil, &decide.Stop{Reason: "Evicted", AtOnce: true}
		s.turn.Memory.StopBegan, s.turn.Memory.StopGrace = now.Add(-time.Second), 0
	}).flies(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "c1"}), GraceRuns, "killed at once, without a grace period; the node ends it (Evicted)", 0},
	{"a sandbox that stops", healthy().deleted().and(func(s *situation) { s.turn.Observed.Containers[0].State = pod.StateExited }).
		flies(pod.Action{Op: pod.OpStopSandbox, ID: "s1"}), SandboxStops, "sandbox", 0},
	{"a sandbox that cannot stop", healthy().deleted().and(func(s *situation) { s.turn.Observed.Containers[0].State = pod.StateExited }).
		retries(pod.OpStopSandbox, "", "netns busy"), SandboxStops, "netns busy", 8 * time.Second},
	{"a mount that is busy, and a sandbox that has stopped", healthy().deleted().and(func(s *situation) {
		s.turn.Observed.Containers[0].State, s.turn.Observed.Sandboxes[0].Ready = pod.StateExited, false
		s.turn.Memory.Retry = append(s.turn.Memory.Retry, decide.Retry{Op: pod.OpStopSandbox, ID: "s1"}) // no message: the stop succeeded
	}).retries(pod.OpTearDown, "FailedUnmount", "device busy"), TearDownFails, "device busy", 8 * time.Second},
	{"a container that ignores its signal", healthy().deleted().and(func(s *situation) {
		s.turn.Observed.Containers[0].StopSignal = "SIGQUIT"
		s.turn.Flights = []Flight{{Action: pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "c1"}, Began: now.Add(-8 * time.Second)}}
	}), GraceRuns, "has not ended 8s after signal SIGQUIT", 20 * time.Second},
	{"a mount that is busy", healthy().deleted().empty().retries(pod.OpTearDown, "FailedUnmount", "device busy"), TearDownFails, "device busy", 8 * time.Second},
	{"volumes that are unmounted", healthy().deleted().empty().flies(pod.Action{Op: pod.OpTearDown}), TearDownRuns, "unmounted", 0},
	{"a finalizer", healthy().deleted().empty().and(func(s *situation) { s.pod.Finalizers = []string{"example.com/x"} }), FinalizersRemain, "example.com/x", 0},
	{"the rest of a pod", healthy().deleted().empty(), Removing, "removed", 0},
	{"a pod after wherry stop", healthy().deleted().empty().and(func(s *situation) {
		s.pod.Annotations = map[string]string{pod.AnnotationStopped: "true", "kubernetes.io/config.source": "push"}
	}), StoppedByUser, "wherry rm", 0},
	{"the annotation of another pod", healthy().deleted().empty().and(func(s *situation) {
		s.pod.Annotations = map[string]string{pod.AnnotationStopped: "true"}
	}), Removing, "removed", 0},
	{"a deletion without a turn", healthy().deleted().and(func(s *situation) { s.in.Turn = nil }), NoAnswer, "deleted", 0},
	{"the end of a pod that never had a sandbox", healthy().deleted().and(func(s *situation) { s.turn.Observed = &pod.Observed{} }), Removing, "removed", 0},
	{"a deletion that a new agent finds", healthy().deleted().and(func(s *situation) { s.turn.Looked = false }), NotLooked, "just started", 0},
	{"a failed pod that a new agent finds", healthy().and(func(s *situation) {
		s.turn.Looked, s.pod.Status.Phase, s.app.State = false, v1.PodFailed, s.ended(3, "Error", "")
	}), Failed, "exit code 3", 0},

	{"an earlier pod of the name", fresh().and(func(s *situation) { s.turn.Node.Predecessor = true }), PredecessorRemains, "earlier pod", 0},
	{"the gate", fresh().and(func(s *situation) { s.turn.Queued = true }), Queued, "other pods", 0},
	{"the place at the gate", fresh().and(func(s *situation) { s.turn.Queued, s.turn.Place, s.turn.Waiting = true, 3, 17 }), Queued, "number 3 of 17", 0},
	{"no CNI", fresh().and(func(s *situation) {
		s.turn.Node.NetworkReady, s.turn.Node.NetworkMessage = false, "cni plugin not initialized"
	}), NetworkNotReady, "cni plugin not initialized", 0},
	{"no CNI, host network", fresh().and(func(s *situation) {
		s.turn.Node.NetworkReady, s.pod.Spec.HostNetwork = false, true
	}).flies(pod.Action{Op: pod.OpSetUp}), SetUpRuns, "volumes", 0},
	{"a set-up", fresh().flies(pod.Action{Op: pod.OpSetUp}), SetUpRuns, "volumes", 0},
	{"a ConfigMap that is missing", fresh().retries(pod.OpSetUp, "FailedMount", `configmap "c" not found`), SetUpFails, `configmap "c" not found`, 8 * time.Second},
	{"a volume whose ConfigMap is missing", fresh().lacks(pod.LackConfigMap), ConfigMapMissing, "create the ConfigMap", 8 * time.Second},
	{"a volume whose Secret is missing", fresh().lacks(pod.LackSecret), SecretMissing, "create the Secret", 8 * time.Second},
	{"a volume whose key is missing", fresh().lacks(pod.LackKey), KeyMissing, "add the key", 8 * time.Second},
	{"a volume whose claim is missing", fresh().lacks(pod.LackClaim), ClaimMissing, "create the claim", 8 * time.Second},
	{"a volume whose claim is not bound", fresh().lacks(pod.LackBinding), ClaimNotBound, "kubectl describe pvc", 8 * time.Second},
	{"a volume that another pod uses", fresh().lacks(pod.LackTurn), ClaimInUse, "one pod only", 8 * time.Second},
	{"a volume that is not attached", fresh().lacks(pod.LackAttachment), VolumeNotAttached, "volumeattachments", 8 * time.Second},
	{"a volume that cannot be attached", fresh().lacks(pod.LackAttach), AttachFails, "volumeattachments", 8 * time.Second},
	{"a node with too many volumes", fresh().lacks(pod.LackVolumeLimit), VolumeLimitReached, "csinode", 8 * time.Second},
	{"a driver that is not there", fresh().lacks(pod.LackDriver), DriverMissing, "csinode", 8 * time.Second},
	{"a mount that hangs", fresh().lacks(pod.LackMount), MountHangs, "does not end", 8 * time.Second},
	{"a trust bundle that is not there", fresh().lacks(pod.LackBundle), BundleMissing, "ClusterTrustBundle", 8 * time.Second},
	{"a certificate that is not issued", fresh().lacks(pod.LackCertificate), CertificateAwaited, "signer", 8 * time.Second},
	{"an object that is forbidden", fresh().lacks(pod.LackRight), ObjectForbidden, "does not let", 8 * time.Second},
	{"an API server that is away", fresh().lacks(pod.LackServer), APIServerAway, "does not answer", 8 * time.Second},
	{"a kind of volume that is not there", fresh().lacks(pod.LackSupport), VolumeUnsupported, "what-works", 8 * time.Second},
	{"devices that the agent cannot prepare", fresh().lacks(pod.LackDevices), DevicesUnsupported, "DRA drivers", 8 * time.Second},
	{"a cgroup that cannot be made", fresh().retries(pod.OpSetUp, "FailedCreatePodContainer", "no space left"), SetUpFails, "FailedCreatePodContainer", 8 * time.Second},
	{"a sandbox that starts", fresh().and(func(s *situation) { s.turn.Memory.SetUp = true }).flies(pod.Action{Op: pod.OpRunSandbox}), SandboxStarts, "sandbox", 0},
	{"a sandbox that fails", fresh().and(func(s *situation) { s.turn.Memory.SetUp = true }).retries(pod.OpRunSandbox, "FailedCreatePodSandBox", "no addresses"), SandboxFails, "no addresses", 8 * time.Second},

	{"a pull", healthy().waits("ContainerCreating", "").flies(pod.Action{Op: pod.OpPullImage, Container: "app"}), Pulling, "img:1", 0},
	{"a pull that waits for another", healthy().pulls(Pull{Queued: true, Running: 1}), Pulling, "waits: for 1 other image pulls", 0},
	{"a pull with data", healthy().pulls(Pull{Reported: true, Received: 3 << 19, Total: 10 << 20, Running: 1, Moved: now.Add(-2 * time.Second)}), Pulling, "arrived: 1.5 MiB of 10.0 MiB, the last data 2s ago", 0},
	{"several pulls with data", healthy().pulls(Pull{Reported: true, Received: 1 << 20, Running: 3, Moved: now}), Pulling, "arrived: 1.0 MiB, of 3 images together, the last data 0s ago", 0},
	{"a pull that stalls", healthy().pulls(Pull{Reported: true, Stalled: "no data has arrived for 2m0s", Moved: now}), Pulling, "stalled: no data has arrived for 2m0s", 0},
	{"a pull that stalls, and what to do", healthy().pulls(Pull{Reported: true, Stalled: "no data has arrived for 2m0s", Moved: now}), Pulling, "crictl pull img:1", 0},
	{"an image that does not exist", healthy().pullFails("ErrImagePull", "failed to resolve reference: img:1: not found"), ImageNotFound, "typing error", 30 * time.Second},
	{"a registry that wants a login", healthy().pullFails("ErrImagePull", "pull access denied, repository does not exist or may require authorization"), ImageDenied, "imagePullSecret", 30 * time.Second},
	{"a registry that is away", healthy().pullFails("ErrImagePull", "dial tcp 10.0.0.1:443: connect: connection refused"), RegistryAway, "crictl pull img:1", 30 * time.Second},
	{"a registry that is away, by its reason", healthy().pullFails("RegistryUnavailable", "503"), RegistryAway, "503", 30 * time.Second},
	{"a layer that breaks", healthy().pullFails("ErrImagePull", "unpack: invalid tar header"), PullFails, "invalid tar header", 30 * time.Second},
	{"a name that is none", healthy().pullFails("InvalidImageName", "couldn't parse image name"), ImageNameInvalid, "parse", 30 * time.Second},
	{"an image that may not be pulled", healthy().pullFails("ErrImageNeverPull", "never"), ImageNeverPulled, "imagePullPolicy", 30 * time.Second},
	{"a bad signature", healthy().pullFails("SignatureValidationFailed", "bad"), ImageUnverified, "signature", 30 * time.Second},
	{"a Secret that is missing", healthy().waits("CreateContainerConfigError", `secret "s" not found`).and(func(s *situation) { s.memory().StartUntil = now.Add(time.Second) }), ConfigInvalid, `secret "s" not found`, time.Second},
	{"a command that is missing", healthy().waits("RunContainerError", `exec: "nope": executable file not found in $PATH`), CommandNotFound, "nope", 0},
	{"a command without the right", healthy().waits("CreateContainerError", "exec: /x: permission denied"), CommandDenied, "permission denied", 0},
	{"a create that fails", healthy().waits("CreateContainerError", "name is reserved"), CreateFails, "reserved", 0},
	{"a start that fails", healthy().waits("RunContainerError", "cgroup gone"), StartFails, "cgroup gone", 0},
	{"a start", healthy().waits("ContainerCreating", "").flies(pod.Action{Op: pod.OpStartContainer, Container: "app"}), ContainerStarts, `"app"`, 0},
	{"a postStart hook", healthy().flies(pod.Action{Op: pod.OpPostStart, Container: "app", ID: "c1"}), PostStartRuns, "postStart", 0},
	{"a postStart hook before the container counts as started", healthy().waits("ContainerCreating", "").flies(pod.Action{Op: pod.OpPostStart, Container: "app", ID: "c1"}), PostStartRuns, "postStart", 0},
	{"a crash loop by a postStart hook", healthy().crashes(0, "Completed", "").and(func(s *situation) {
		s.app.LastTerminationState.Terminated.ContainerID = "containerd://c1"
		s.memory().PostStartedID, s.memory().PostStartFailed = "c1", true
	}), PostStartFails, "3 times", 15 * time.Second},
	{"a crash loop without a command", healthy().crashes(128, "StartError", "exec nope: executable file not found in $PATH"), CommandNotFound, "nope", 15 * time.Second},
	{"a postStart hook that failed", healthy().waits("PostStartHookError", "exit 1"), PostStartFails, "exit 1", 0},
	{"a container that is ended for its hook", healthy().and(func(s *situation) {
		s.turn.Memory.Ends = decide.Ends{{Name: "app", ID: "c1", Cause: pod.CausePostStart, Began: now}}
	}), PostStartFails, "being ended", 0},
	{"a container that is ended for its hook, and was never reported as running", healthy().waits("PodInitializing", "").and(func(s *situation) {
		s.turn.Memory.Ends = decide.Ends{{Name: "app", ID: "c1", Cause: pod.CausePostStart, Began: now}}
	}), PostStartFails, "being ended", 0},
	{"memory", healthy().crashes(137, "OOMKilled", "").and(func(s *situation) {
		s.pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
	}), OutOfMemory, "64Mi", 15 * time.Second},
	{"memory, with its peak", healthy().crashes(137, "OOMKilled", "").and(func(s *situation) { s.in.MemoryPeak = 70 << 20 }), OutOfMemory, "used up to 70Mi", 15 * time.Second},
	{"a crash loop", healthy().crashes(3, "Error", "panic: no config"), CrashLoop, "panic: no config", 15 * time.Second},
	{"a crash loop by a signal", healthy().crashes(139, "Error", ""), CrashLoop, "signal 11", 15 * time.Second},
	{"a restart at once", healthy().and(func(s *situation) { s.app.State = s.ended(1, "Error", "") }), EndedRestarts, "starts again", 0},
	{"an init container that runs", healthy().and(func(s *situation) {
		s.pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
		s.pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		s.waits("PodInitializing", "")
	}), InitRuns, `"init"`, 0},
	{"an init container that failed", healthy().and(func(s *situation) {
		s.pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
		s.pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", State: s.ended(2, "Error", "no database")}}
	}), InitFailed, "no database", 0},
	{"an init container that is done", healthy().and(func(s *situation) {
		s.pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
		s.pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", State: s.ended(0, "Completed", "")}}
	}), Running, "", 0},
	{"a liveness probe that failed", healthy().and(func(s *situation) {
		s.turn.Memory.Ends = decide.Ends{{Name: "app", ID: "c1", Cause: pod.CauseLiveness, Began: now}}
		s.in.Failing = []FailingProbe{{"app", "liveness", 3, 3, "connection refused"}}
	}), LivenessRestarts, "connection refused", 0},
	{"a crash loop by liveness", healthy().crashes(137, "Error", "").and(func(s *situation) { s.memory().ReplacedFor = pod.CauseLiveness }), LivenessRestarts, "3 times", 15 * time.Second},
	{"a startup probe that failed", healthy().and(func(s *situation) {
		s.turn.Memory.Ends = decide.Ends{{Name: "app", ID: "c1", Cause: pod.CauseStartup, Began: now}}
	}), StartupRestarts, "restarted", 0},
	{"a crash loop by startup", healthy().crashes(137, "Error", "").and(func(s *situation) { s.memory().ReplacedFor = pod.CauseStartup }), StartupRestarts, "3 times", 15 * time.Second},
	{"a new image", healthy().and(func(s *situation) {
		s.turn.Memory.Ends = decide.Ends{{Name: "app", ID: "c1", Cause: pod.CauseChanged, Began: now}}
	}), DefinitionRestarts, "Changed", 0},

	{"a startup probe", healthy().and(func(s *situation) {
		s.app.Started, s.app.Ready = new(false), false
		s.in.Failing = []FailingProbe{{"app", "startup", 2, 30, "not yet"}}
	}), StartupPending, "2 of 30 failures: not yet", 0},
	{"a readiness probe that has not run", healthy().and(func(s *situation) { s.app.Ready = false }), ReadinessPending, "not succeeded", 0},
	{"a readiness probe that fails", healthy().and(func(s *situation) {
		s.app.Ready = false
		s.in.Failing = []FailingProbe{{"app", "readiness", 4, 3, "HTTP probe failed with statuscode: 503"}}
	}), ReadinessFails, "503", 0},
	{"a readiness gate", healthy().and(func(s *situation) {
		s.pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb/ready"}}
	}), GateMissing, "lb/ready", 0},
	{"a resize that is deferred", healthy().and(func(s *situation) {
		s.pod.Status.Conditions = append(s.pod.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: "Deferred", Message: "not enough cpu"})
	}), ResizeWaits, "not enough cpu", 0},
	{"a resize of a pod that is starting", fresh().and(func(s *situation) {
		s.turn.Memory.SetUp = true
		s.pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
	}), ContainerStarts, "is starting", 0},
	{"a Job that is done", healthy().and(func(s *situation) { s.pod.Status.Phase = v1.PodSucceeded }), Completed, "completed", 0},
	{"a Job that failed", healthy().and(func(s *situation) {
		s.pod.Status.Phase, s.pod.Spec.RestartPolicy = v1.PodFailed, v1.RestartPolicyNever
		s.app.State = s.ended(4, "Error", "bad input")
	}), Failed, "bad input", 0},
	{"a Job whose init container failed", healthy().and(func(s *situation) {
		s.pod.Status.Phase, s.pod.Spec.RestartPolicy = v1.PodFailed, v1.RestartPolicyNever
		s.pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
		s.pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", State: s.ended(2, "Error", "no database")}}
		s.waits("PodInitializing", "")
	}), InitFailed, "no database", 0},
	{"one container of two that failed for good", healthy().and(func(s *situation) {
		s.pod.Spec.RestartPolicy = v1.RestartPolicyNever
		s.app.State = s.ended(4, "Error", "bad input")
	}), Failed, "not started again", 0},
	{"one container of two that is done", healthy().and(func(s *situation) {
		s.pod.Spec.RestartPolicy = v1.RestartPolicyNever
		s.app.State = s.ended(0, "Completed", "")
	}), Running, "", 0},
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := Explain(&c.s.in)
			if a.Cause != c.cause || a.Level != c.cause.Level() {
				t.Fatalf("cause %s (%s), want %s\n%+v", a.Cause, a.Level, c.cause, a)
			}
			if all := a.Line + "\n" + strings.Join(a.Facts, "\n") + "\n" + a.Next + "\n" + strings.Join(a.Do, "\n"); !strings.Contains(all, c.says) {
				t.Errorf("the answer does not say %q:\n%s", c.says, all)
			}
			if next := a.NextAt.Sub(now); a.NextAt.IsZero() != (c.next == 0) || !a.NextAt.IsZero() && next != c.next {
				t.Errorf("next in %v (zero: %v), want %v", next, a.NextAt.IsZero(), c.next)
			}
			if a.Line == "" || strings.Contains(a.Line, "\n") {
				t.Errorf("the line is %q", a.Line)
			}
		})
	}
}

// The test checks that each cause in the list Causes is the expected answer of at least one case above.
func TestEveryCauseHasACase(t *testing.T) {
	t.Parallel()
	has := map[Cause]bool{}
	for _, c := range cases {
		has[c.cause] = true
	}
	for _, c := range Causes {
		if !has[c] {
			t.Errorf("no case has the cause %s", c)
		}
	}
	if len(has) != len(Causes) {
		t.Errorf("%d causes have a case, the list has %d", len(has), len(Causes))
	}
}

// The test checks that the answer is about the main container that has level Trouble, even if an earlier one has level Progress.
func TestTroubleBeforeProgress(t *testing.T) {
	t.Parallel()
	s := healthy().waits("ContainerCreating", "").flies(pod.Action{Op: pod.OpPullImage, Container: "app"})
	s.pod.Spec.Containers = append(s.pod.Spec.Containers, v1.Container{Name: "other", Image: "x"})
	s.pod.Status.ContainerStatuses = append(s.pod.Status.ContainerStatuses, v1.ContainerStatus{
		Name: "other", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: "no secret"}},
	})
	if a := Explain(&s.in); a.Cause != ConfigInvalid || a.Container != "other" {
		t.Errorf("the answer is about %q: %s", a.Container, a.Line)
	}
}

// The test puts long texts with control characters and line breaks into messages of containers and runtimes. It checks that each text in
// the answer is bounded, on one line, and without control characters.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("\x1b[31mred\nline\t", 10_000)
	for _, s := range []*situation{
		healthy().crashes(1, "Error", text), healthy().pullFails("ErrImagePull", text), healthy().waits("CreateContainerConfigError", text),
		fresh().retries(pod.OpSetUp, "FailedMount", text), healthy().stops("Evicted", text, false),
	} {
		a := Explain(&s.in)
		for _, part := range append(append([]string{a.Line, a.Next}, a.Facts...), a.Do...) {
			if len(part) > 2*maxFact+100 || strings.ContainsAny(part, "\x1b\n\t") {
				t.Errorf("%s: a text of %d bytes: %.60q", a.Cause, len(part), part)
			}
		}
	}
}

// The test checks that Explain returns a cause and a line even if fields of the pod, of its status or of the turn are empty.
func TestSparseInput(t *testing.T) {
	t.Parallel()
	deleted := metav1.NewTime(now)
	for _, p := range []*v1.Pod{
		{}, {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}},
		{Status: v1.PodStatus{Phase: v1.PodFailed}},
		{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "i"}}, Containers: []v1.Container{{Name: "a"}, {}}}},
		{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}, Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a"}}}},
		{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}, Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
			{Name: "a", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
		}}},
	} {
		for _, turn := range []*Turn{nil, {Observed: &pod.Observed{}}, {Observed: &pod.Observed{}, Looked: true}} {
			if a := Explain(&Input{Pod: p, Turn: turn, Now: now}); a.Cause == "" || a.Line == "" {
				t.Errorf("no answer for %+v with %+v", p, turn)
			}
		}
	}
}

// The test checks that, on a node without an API server, the advice names wherry commands and never kubectl.
func TestAdviceOfAStandaloneNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    *situation
		want string
	}{
		{healthy().crashes(3, "Error", ""), "wherry logs -n ns web -c app --previous"},
		{fresh().stops("OutOfcpu", "requested: 4000, used: 1000, capacity: 2000", true), "wherry explain node"},
		{fresh().stops("Evicted", "The node was low on resource: memory.", false), "wherry explain node"},
	} {
		c.s.in.Standalone = true
		advice := strings.Join(Explain(&c.s.in).Do, "\n")
		if !strings.Contains(advice, c.want) || strings.Contains(advice, "kubectl") {
			t.Errorf("%q, want %q and no kubectl", advice, c.want)
		}
	}
}

// TestOutput checks the facts about a container that ended without a termination message: the last lines of its log come first, and their
// number and length are bounded. If the container left a message, no log is asked for.
func TestOutput(t *testing.T) {
	t.Parallel()
	s := healthy().crashes(3, "Error", "")
	s.app.LastTerminationState.Terminated.ContainerID = "containerd://c0"
	a := Explain(&s.in)
	if a.Ended != "c0" {
		t.Fatalf("the output of %q is wanted, want that of c0", a.Ended)
	}
	a.Output([]string{"one", "two", "", "three " + strings.Repeat("x", 1000), "four\x1b[2J"})
	if len(a.Facts) != 2 || !strings.HasPrefix(a.Facts[0], "last output: three xxx") || len(a.Facts[0]) > maxFact || strings.Contains(a.Facts[1], "\x1b") {
		t.Errorf("%q", a.Facts)
	}
	said := healthy().crashes(3, "Error", "no config")
	said.app.LastTerminationState.Terminated.ContainerID = "containerd://c0"
	if a := Explain(&said.in); a.Ended != "" || a.Facts[0] != "last words: no config" {
		t.Errorf("a container that left a message: the output of %q is wanted, %q", a.Ended, a.Facts)
	}
}

// StartFailure returns the line of the answer for a set-up or a sandbox that fails, and nothing for a pod that only starts.
func TestStartFailure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		retry decide.Retry
		setUp bool
		want  string
	}{
		{"nothing failed", decide.Retry{}, false, ""},
		{"a back-off without a failure", decide.Retry{Op: pod.OpSetUp}, false, ""},
		{"a ConfigMap is missing", decide.Retry{Op: pod.OpSetUp, Reason: "FailedMount", Message: "x", Lack: pod.LackConfigMap}, false, "a volume of the pod needs a ConfigMap that does not exist"},
		{"the cgroup cannot be made", decide.Retry{Op: pod.OpSetUp, Reason: "FailedToCreatePodContainer", Message: "x"}, false, "the directories or the cgroup of the pod cannot be made (FailedToCreatePodContainer)"},
		{"a refresh of the volumes fails later", decide.Retry{Op: pod.OpSetUp, Reason: "FailedMount", Message: "x"}, true, ""},
		{"the sandbox fails", decide.Retry{Op: pod.OpRunSandbox, Message: "attempt 7 of sandbox 3f2a"}, true, "the runtime cannot make the sandbox of the pod"},
		{"a removal fails", decide.Retry{Op: pod.OpTearDown, Message: "x"}, true, ""},
	} {
		m := decide.Memory{PodTries: decide.PodTries{SetUp: c.setUp, Retry: []decide.Retry{c.retry}}}
		if got := StartFailure(&m); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
