// Package probe runs the startup, liveness and readiness probes of containers and remembers what they said.
//
// Contract: the caller says which containers of a pod run (Set), as often as it likes; Result gives the state at
// once; Notify is called when a state has changed. A container that is left out of Set, or whose ID has changed,
// is probed no more.
//
// Invariants:
//
//   - One heap of times for all probes. A goroutine exists only while a probe runs, at most MaxParallel of them.
//   - Liveness and readiness probes do not run before the startup probe has succeeded.
//   - A container is not ready until its readiness probe said so; it is healthy until a probe said otherwise. When
//     the agent was restarted, what the API said of the same container holds until a probe says otherwise.
//   - After a failed liveness or startup probe (failureThreshold reached) neither of them runs again in this container,
//     which is to be stopped. Its readiness probe goes on until it has ended.
//   - In a pod that ends, no liveness or startup probe runs, sidecars' neither: nothing would be restarted for it.
//     Readiness probes go on until their containers have ended.
//   - A command waits for its turn where the node has more to do than it bears (package work). Its time limit counts from when
//     it begins: a late probe is not a failed one, and its lateness is told.
//   - Probes of one container that are due at once and do the same are one run.
//   - What could not be probed (the runtime did not answer, a port has no such name) is an event, not a result.
//
// Before the first regular probe of a container that is not started, or not ready, there are quick ones: "While a
// container is not Ready, the ReadinessProbe may be executed at times other than the configured periodSeconds
// interval. This is to make the Pod ready faster." A quick probe that fails is not counted and not reported.
package probe
