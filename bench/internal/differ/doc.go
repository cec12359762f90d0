// Package differ runs the same pods on upstream's kubelet and on Wherry, and compares what the two did.
//
// Each agent uses a simulated runtime of its own (simcri, served over CRI), and both are nodes of one development control plane.
// A Case is one pod's life: its spec, what its containers do (Play), and what users do to it (Act). The runner creates the pod
// once for each node, makes the same things happen at the same offsets, and records a Trace of each: the CRI calls, the statuses
// that the API server saw, the events, and what is left. Compare turns two traces into Differences, each of a Class.
//
// A difference is decided if Wherry intends it: decisions.go lists the classes of these differences, with the reason why Wherry's way is
// right and what a user notices. Every other difference is undecided and fails the run. A decision that no case of all counted runs shows
// fails a test of this package.
//
// Some differences say nothing about the agents, because they depend on the timing. An Excuse is a rule that takes such differences out of
// the comparison. A Crossing is the moment from which on the two agents may see events in a different order; undecided differences after it
// are excused.
package differ
