// Package agenttest runs whole node agents, with the real wiring of package agent, on a simulated runtime (simcri) and a
// simulated API server (simkube) inside synctest bubbles. An hour of back-off takes milliseconds, and a seed repeats a run.
//
//	agenttest.Run(t, agenttest.Config{}, func(w *agenttest.World) {
//		w.Create(agenttest.Pod("web"))
//		w.WaitPhase("web", v1.PodRunning)
//	})
//
// Contract: Run ends the agent. It fails the test if a goroutine of the agent is left, or if the Witness saw a broken
// invariant. There is no scheduler: pods are created with the node's name.
//
// CrashAgent and CrashAfter kill an agent by cutting its line (type line): from that instant none of its calls has an effect.
// MoveClock changes the machine's clock by shifting the times in the messages on that line. TestSim runs seeds with faults of
// everything around the agent. TestPlanted shows that each rule finds a bug that breaks it. Each failure that a seed found is
// kept as a scenario.
//
// The Witness watches every run from outside the agent and checks the list of Rules.
package agenttest
