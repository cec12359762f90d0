// Package decide says what to do about one pod, and nothing else: Decide(Input) Plan.
//
// Contract: pure functions over values. No goroutine, IO, logging, clock or lookup inside. The worker that calls
// it gathers the Input, starts what the Plan says, and calls again when anything may have changed (an outcome, a
// newer inspection, a changed spec, a probe that flipped, the plan's own WakeAt). The same Input always gives
// the same Plan, so a decision can be exported and replayed.
//
// What must survive an agent is in Memory: it is input and output, as a replicated log has its hard state.
package decide
