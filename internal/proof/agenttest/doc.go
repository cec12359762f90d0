// Package agenttest runs whole node agents, connected as package agent connects them, on a simulated runtime (simcri) and a simulated API
// server (simkube), inside synctest bubbles. There an hour of back-off takes milliseconds, and the same seed repeats a run.
//
//	agenttest.Run(t, agenttest.Config{}, func(w *agenttest.World) {
//		w.Create(agenttest.Pod("web"))
//		w.WaitPhase("web", v1.PodRunning)
//	})
//
// Contract: Run ends the agent. It fails the test if a goroutine of the agent is left, or if the Witness has seen a broken invariant. There
// is no scheduler: every pod is created with the node's name.
//
// CrashAgent and CrashAfter kill an agent by cutting its connections (type line): from then on none of its calls has an effect. MoveClock
// changes the machine's clock: the type line shifts the times in all messages. TestSim runs random events from seeds, with faults of
// everything around the agent. TestPlanted plants a bug for each rule and checks that the Witness finds it. Each failure that a seed of
// TestSim has found has a test of its own. TestSimDisks and TestPlantedDisks do the same with volumes of a CSI driver.
//
// The Witness watches every run from outside the agent and checks the Rules.
package agenttest
