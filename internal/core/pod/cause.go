package pod

// Cause is why the agent ends a container. The cause decides the grace period, whether the container starts again, and the event:
// see the table in decide/restart.go. (A Why, in contrast, is only a text for people.) Checkpoints keep the causes of single containers.
type Cause string

// These are the causes for which the agent ends one container although its pod continues to run. Such a container may exit with 0 on
// SIGTERM, which does not mean that it has completed. With CauseNone, only the container's restart policy decides.
const (
	CauseNone       Cause = ""
	CauseChanged    Cause = "Changed"    // the container's definition changed
	CauseResize     Cause = "Resize"     // the container restarts for its new resources
	CauseLiveness   Cause = "Liveness"   // the container's liveness probe failed
	CauseStartup    Cause = "Startup"    // the container's startup probe failed
	CausePostStart  Cause = "PostStart"  // the container's postStart hook failed
	CauseSandbox    Cause = "Sandbox"    // the container's sandbox is lost or has been replaced
	CauseUnknown    Cause = "Unknown"    // the runtime does not know the container's state
	CauseStray      Cause = "Stray"      // another instance, or none, should run instead of this one
	CauseRestartAll Cause = "RestartAll" // a container ended with a RestartAllContainers rule
)

// These are the causes for which the agent ends a whole pod.
const (
	CauseDeleted     Cause = "Deleted"     // the pod is deleted in the API
	CauseUnwanted    Cause = "Unwanted"    // no source has the pod any more
	CauseRejected    Cause = "Rejected"    // the node did not admit the pod
	CauseStopped     Cause = "Stopped"     // the node evicts or preempts the pod, or an earlier agent had begun to end it
	CauseDeadline    Cause = "Deadline"    // the pod's activeDeadlineSeconds are over
	CauseTerminal    Cause = "Terminal"    // the API shows a terminal phase of the pod
	CauseFinished    Cause = "Finished"    // all containers of the pod have ended for good
	CauseInitFailed  Cause = "InitFailed"  // an init container has failed for good
	CauseSandboxLost Cause = "SandboxLost" // the pod's sandbox is lost, and its restart policy allows no other
)
