package decide

import (
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// These are the reasons that people read in the timeline. They are constants, so that a plan at rest allocates nothing.
const (
	WhyRunning        pod.Why = "everything is as the spec says"
	WhyWaiting        pod.Why = "waits for work in flight"
	WhyNotAdmitted    pod.Why = "waits for admission"
	WhyPredecessor    pod.Why = "waits until the earlier pod of the same name is gone"
	WhyInspect        pod.Why = "waits for an inspection that is newer than what was done"
	WhyNetwork        pod.Why = "waits for the pod network of the node"
	WhySources        pod.Why = "no source has it, but not every source has answered yet"
	WhyBackOff        pod.Why = "waits for a back-off to end"
	WhyVolumes        pod.Why = "directories, cgroup and volumes come first"
	WhyRefresh        pod.Why = "the volumes may show old content"
	WhyFirstSandbox   pod.Why = "the pod has no sandbox"
	WhySandboxDead    pod.Why = "the sandbox is not ready"
	WhySandboxMany    pod.Why = "more than one sandbox is ready"
	WhySandboxNetwork pod.Why = "the sandbox has the wrong network namespace"
	WhySandboxNoIP    pod.Why = "the sandbox has no IP address"
	WhyImage          pod.Why = "the container needs its image"
	WhyNeverStarted   pod.Why = "the container has not been started"
	WhyLost           pod.Why = "the runtime has lost the container"
	WhyCreated        pod.Why = "the container was created but not started"
	WhyStartFailed    pod.Why = "the attempt before it could not be started"
	WhyCutShort       pod.Why = "the start of the attempt before it was cut short"
	WhyRestart        pod.Why = "the container has ended and its restart policy starts it again"
	WhyRestartChanged pod.Why = "the container was stopped to start again with its changed spec"
	WhyRestartEnded   pod.Why = "the container was stopped to be started again"
	WhyInit           pod.Why = "it is the init container's turn"
	WhyInitFirst      pod.Why = "an init container has to complete first"
	WhySidecarFirst   pod.Why = "a sidecar has to be started first"
	WhyEphemeral      pod.Why = "an ephemeral container was asked for"
	WhyPostStart      pod.Why = "the postStart hook runs right after the start"

	WhyChanged          pod.Why = "the container's definition changed, it will be restarted"
	WhyLiveness         pod.Why = "the container failed its liveness probe"
	WhyStartup          pod.Why = "the container failed its startup probe"
	WhyPostStartFailed  pod.Why = "the postStart hook failed"
	WhyUnknown          pod.Why = "the runtime does not know its state, so it is stopped before it may start again"
	WhyStray            pod.Why = "the container is not the one that should run"
	WhyRestartAll       pod.Why = "a container ended with a rule that restarts all containers"
	WhyShorterGrace     pod.Why = "the grace period became shorter"
	WhyEndingCancel     pod.Why = "the pod ends"
	WhyHookOfDead       pod.Why = "the hook's container has ended"
	WhySuperseded       pod.Why = "the container is being stopped"
	WhyDeleted          pod.Why = "the pod is being deleted"
	WhyStopped          pod.Why = "the node decided to stop the pod"
	WhyDeadline         pod.Why = "the pod was active longer than activeDeadlineSeconds"
	WhyTerminal         pod.Why = "the pod's phase is terminal and is never left"
	WhyFinished         pod.Why = "all containers have ended and none will be restarted"
	WhyInitFailed       pod.Why = "an init container failed and will not be restarted"
	WhyCannotRestart    pod.Why = "the sandbox is lost and restartPolicy Never allows no other"
	WhyUnwanted         pod.Why = "no source has the pod any more"
	WhyRejected         pod.Why = "the node rejected the pod"
	WhyTearDown         pod.Why = "everything has stopped"
	WhyResize           pod.Why = "the container gets the resources that the node has accepted"
	WhyResizeRestart    pod.Why = "the container has to restart for its new resources"
	WhyGroupGrows       pod.Why = "the pod's cgroup grows before its containers"
	WhyGroupShrinks     pod.Why = "the pod's cgroup shrinks after its containers"
	WhyOldAttempt       pod.Why = "newer dead attempts are kept for their logs"
	WhyExcess           pod.Why = "the node holds more dead containers than it may"
	WhyOldSandbox       pod.Why = "a newer sandbox has replaced it"
	WhyNothingRemembers pod.Why = "no source has the pod, so nothing of it is kept"
	WhyGone             pod.Why = "nothing is left of the pod"
)

// PullErrorShown is how long a failed pull shows as ErrImagePull before it shows as ImagePullBackOff. Plan.WakeAt asks for a decision
// at that time, so that the status changes.
const PullErrorShown = time.Second

// These are status.reason and status.message of a pod whose activeDeadlineSeconds are over, in upstream's words.
const (
	ReasonDeadlineExceeded  = "DeadlineExceeded"
	MessageDeadlineExceeded = "Pod was active on the node longer than the specified deadline"
)

// These are status.reason, and the begin of status.message and of the event, of a pod that needs a volume which the node cannot have beside
// its others, in upstream's words.
const (
	ReasonVolumeLimit  = "VolumeAttachmentLimitExceeded"
	messageVolumeLimit = "Pod was rejected: "
	eventVolumeLimit   = "Node has reached its volume attachment limit, rejecting pod. "
)
