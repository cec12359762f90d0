// Package probe runs the startup, liveness and readiness probes of containers and keeps their results.
//
// Contract: Set sets the running containers of a pod and may be called as often as needed. Result returns the state of a container
// at once. Notify is called when a state has changed. Set ends the probes of containers that no longer run, or whose ID has
// changed.
//
// Invariants:
//
//   - All probes share one heap of times. A goroutine exists only while a probe runs, and at most MaxParallel probes run, without those
//     that have run for more than a second. Of these there are at most sixteen times as many. One pod has at most 8 commands and 16
//     checks over connections at a time. So checks that hang do not delay the probes of other pods.
//   - Liveness and readiness probes do not run before the startup probe has succeeded.
//   - A container is not ready until its readiness probe succeeds. It counts as healthy until a probe fails. After a restart of the
//     agent, the state of the same container in the API is used until a probe has a result.
//   - After a liveness or startup probe has failed failureThreshold times, neither of them runs again in this container, which the agent
//     will stop, even if the agent is restarted meanwhile. Its readiness probe continues until the container has ended.
//   - In a pod that ends, no liveness or startup probe runs, not even in sidecars, because no container would be restarted. Readiness
//     probes continue until their containers have ended.
//   - While the node is overloaded, the command of a probe waits until the scheduler of package work grants it ("waits for its turn").
//     The probe's timeout starts when the command begins: a late probe is not a failed one, but its lateness is reported.
//   - If equal probes of one container are due at the same time, one run gives the result of all of them.
//   - If a probe could not be run (the runtime did not answer, or no port has the name), there is an event and no result.
//
// Before the first regular probe of a container that is not started, or not ready, there are quick probes: "While a container is not
// Ready, the ReadinessProbe may be executed at times other than the configured periodSeconds interval. This is to make the Pod ready
// faster." A quick probe that fails is not counted and not reported.
package probe
