package pod

// Cause is why the agent ends a container. The cause decides the grace period, whether the container starts again, and the event:
// see the table in decide/restart.go. Why is only the text for it. Checkpoints keep the causes of single containers.
type Cause string

// The causes for which the agent ends one container while its pod goes on. A container that ends for one of them may exit with 0
// on SIGTERM, and this does not mean that it has completed. With CauseNone, only the container's restart policy decides.
const (
	CauseNone       Cause = ""
	CauseChanged    Cause = "Changed"    // its definition changed
	CauseResize     Cause = "Resize"     // it restarts for its new resources
	CauseLiveness   Cause = "Liveness"   // its liveness probe failed
	CauseStartup    Cause = "Startup"    // its startup probe failed
	CausePostStart  Cause = "PostStart"  // its postStart hook failed
	CauseSandbox    Cause = "Sandbox"    // its sandbox is lost or has been replaced
	CauseUnknown    Cause = "Unknown"    // the runtime does not know its state
	CauseStray      Cause = "Stray"      // another instance, or none, should run instead of it
	CauseRestartAll Cause = "RestartAll" // a container ended with a RestartAllContainers rule
)

// These are the causes for which the agent ends a whole pod.
const (
	CauseDeleted     Cause = "Deleted"     // it is deleted in the API
	CauseUnwanted    Cause = "Unwanted"    // no source has it any more
	CauseRejected    Cause = "Rejected"    // the node did not admit it
	CauseStopped     Cause = "Stopped"     // the node evicts or preempts it, or an earlier agent had begun to end it
	CauseDeadline    Cause = "Deadline"    // its activeDeadlineSeconds are over
	CauseTerminal    Cause = "Terminal"    // the API shows a terminal phase
	CauseFinished    Cause = "Finished"    // all its containers have ended for good
	CauseInitFailed  Cause = "InitFailed"  // an init container has failed for good
	CauseSandboxLost Cause = "SandboxLost" // its sandbox is lost and its restart policy allows no other
)
