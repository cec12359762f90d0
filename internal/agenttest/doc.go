// Package agenttest runs whole node agents, the real wiring of package agent, on a simulated runtime (simcri) and a
// simulated API server (simkube) inside of testing/synctest bubbles: an hour of back-off takes milliseconds, and a
// seed repeats a run.
//
//	agenttest.Run(t, agenttest.Config{}, func(w *agenttest.World) {
//		w.Create(agenttest.Pod("web"))
//		w.WaitPhase("web", v1.PodRunning)
//	})
//
// Contract: Run ends the agent and fails the test if a goroutine of it is left, or if the Witness saw an invariant
// broken. Nothing is scheduled: pods are created with the node's name.
//
// What the Witness holds against every run, from the outside of the agent:
//
//   - a container never has two live instances, a pod never two ready sandboxes
//   - attempts only grow
//   - nothing starts in a pod whose deletion the agent must know of, and no main container before its init containers
//   - two pods of one name are never alive at once
//   - a container is not killed before its grace period is over
//   - in the API, a terminal phase is never left, restart counts never fall, and a pod is removed only when nothing of
//     it runs
package agenttest
