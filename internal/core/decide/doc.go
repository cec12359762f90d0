// Package decide says what to do about one pod, and nothing else: Decide(Input) Plan.
//
// Contract: pure functions over values. No goroutine, IO, logging, clock or lookup inside. The worker that calls
// it gathers the Input, starts what the Plan says, and calls again when anything may have changed (an outcome, a
// newer inspection, a changed spec, a probe that flipped, the plan's own WakeAt). The same Input always gives
// the same Plan, so a decision can be exported and replayed.
//
// Memory is the state that one turn passes to the next. It is both input and output. memory.go says who writes which part of it, and
// which parts a checkpoint keeps. Results of probes are input only (ProbeResults). A turn is three calls:
//
//	plan := decide.Decide(&in)           // reads Memory, never writes it
//	kept := decide.Remember(in.Memory, &plan)  // stores what the plan decided once and for all; true: checkpoint first
//	... begin plan.Do, cancel plan.Cancel, look again at plan.WakeAt ...
//	kept := decide.Note(in.Memory, pod, outcome, policy) // for each outcome, when it comes
//
// Invariants (search_test.go tries every order of events of small pods and checks these):
//
//   - a container never has two live instances, and never two starts in flight
//   - nothing starts while the pod ends, while a predecessor is on the node, or while the inspection is older than the last outcome
//   - a main container starts only after its init containers
//   - attempts only grow
//   - an ending pod never comes back; a finished one is never run again
//   - the time between the first stop and the last kill is the grace period, and never less than Policy.MinGrace, unless the node has to kill
//     the pod at once (Stop.AtOnce)
//   - if all actions of a plan are in flight and the Input is otherwise the same, the next plan begins nothing: there is no busy loop
//
// # The rules, one file each
//
//	restart.go   the table of causes: why a container ends, its grace period, whether it starts again, its event
//	policy.go    what a restart policy says of an exit code (restartPolicy, container rules)
//	sandbox.go   whether the sandbox is right, and what to do if it is not
//	start.go     from nothing to running: back-off, image, create, start
//	initial.go   init containers in order, sidecars
//	mains.go     main containers, ephemeral containers
//	hooks.go     postStart and preStop: who has one, and when it is cut short
//	kill.go      how one container is stopped: preStop hook, then StopContainer
//	terminate.go the whole pod must end, within its grace period
//	clear.go     removes what is left of the pod
//	backoff.go   how long to wait
//	note.go      what an outcome changes in Memory
//
// # Choices where the documentation leaves room
//
// Main containers of one pod start at the same time, but a container with a postStart hook holds back those after it in the spec until
// the hook is done, because users rely on that order. If the agent was restarted while a hook ran, the hook runs again ("at least once").
// The first restart of a container is immediate; the back-off begins with the second.
package decide
