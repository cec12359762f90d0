package pod

// Cause is why the agent ends one container while its pod goes on. A container that is ended for a cause may well end
// with 0 on TERM: its exit code then says nothing of whether it has done its work. Checkpoints keep causes.
type Cause string

// The causes. None is the end of a container that its restart policy alone judges, or that of the whole pod.
const (
	CauseNone       Cause = ""
	CauseChanged    Cause = "Changed"    // its definition changed
	CauseResize     Cause = "Resize"     // it restarts for its new resources
	CauseLiveness   Cause = "Liveness"   // its liveness probe failed
	CauseStartup    Cause = "Startup"    // its startup probe failed
	CausePostStart  Cause = "PostStart"  // its postStart hook failed
	CauseSandbox    Cause = "Sandbox"    // its sandbox is lost or another is in its place
	CauseUnknown    Cause = "Unknown"    // the runtime does not know its state
	CauseStray      Cause = "Stray"      // another instance, or none, should run in its place
	CauseRestartAll Cause = "RestartAll" // a container ended with a rule that restarts all
)
