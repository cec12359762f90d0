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
// An agent is killed by cutting its line (CrashAgent, CrashAfter): from that instant nothing that it asks for happens.
// The machine's clock is moved by moving the times that pass over that line (MoveClock).
// TestSim runs seeds with faults of everything around the agent; TestPlanted shows that each rule finds a bug that breaks
// it; what a seed found is kept as a scenario.
//
// What the Witness holds against every run, from the outside of the agent, is the list of Rules.
package agenttest
