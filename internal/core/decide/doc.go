// Package decide says what to do about one pod, and nothing else: Decide(Input) Plan.
//
// Contract: pure functions over values. No goroutine, IO, logging, clock or lookup inside. The worker that calls
// it gathers the Input, starts what the Plan says, and calls again when anything may have changed (an outcome, a
// newer inspection, a changed spec, a probe that flipped, the plan's own WakeAt). The same Input always gives
// the same Plan, so a decision can be exported and replayed.
//
// What must survive a turn is in Memory: it is input and output, as a replicated log has its hard state. memory.go says who
// writes which part of it, and what a checkpoint keeps. What probes said is input (ProbeResults). A turn is three calls:
//
//	plan := decide.Decide(&in)           // reads Memory, never writes it
//	kept := decide.Remember(in.Memory, &plan)  // stores what the plan decided once and for all; true: checkpoint first
//	... begin plan.Do, cancel plan.Cancel, look again at plan.WakeAt ...
//	kept := decide.Note(in.Memory, pod, outcome, policy) // for each outcome, when it comes
//
// Invariants (search_test.go walks every order of events of small pods and holds these):
//
//   - a container never has two live instances, and never two starts in flight
//   - nothing starts while the pod ends, while a predecessor is here, or on an inspection older than what was done
//   - a main container starts only after its init containers
//   - attempts only grow
//   - an ending pod never comes back; a finished one is never run again
//   - the time between the first stop and the last kill is the grace period, and never less than Policy.MinGrace
//   - with the same Input and its Do in flight, a plan is empty: there is no busy loop
//
// # The rules, one file each
//
//	restart.go   the table of causes: why a container ends, its grace period, whether it starts again, its event
//	policy.go    what a restart policy says of an exit code (restartPolicy, container rules)
//	sandbox.go   is the sandbox right, and what to do when it is not
//	start.go     from nothing to running: back-off, image, create, start
//	initial.go   init containers in order, sidecars
//	mains.go     main containers, ephemeral containers
//	hooks.go     postStart and preStop: who has one, and when it is cut short
//	kill.go      how one container is stopped: preStop hook, then StopContainer
//	terminate.go the whole pod must end, within its grace period
//	clear.go     what is left behind is removed
//	backoff.go   how long to wait
//	note.go      what an outcome teaches
//
// # Choices where the documentation leaves room
//
// Main containers of one pod start at the same time, but a container with a postStart hook holds those after it in
// the spec until its hook is done, as people rely on. A hook whose end nobody saw runs again ("at least once").
// The first restart of a container is immediate; the back-off begins with the second.
package decide
