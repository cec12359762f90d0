// Package differ runs the same pods on upstream's kubelet and on Wherry, and compares what the two did.
//
// Each agent uses a simulated runtime of its own (simcri, served over CRI), and both are nodes of one development control plane.
// A Case is one pod's life: its spec, what its containers do (Play), and what users do to it (Act). The runner creates the pod
// once for each node, makes the same things happen at the same offsets, and records a Trace of each: the CRI calls, the statuses
// that the API server saw, the events, and what is left. Compare turns two traces into Differences, each of a Class.
//
// decisions.go lists the classes of differences that are intended, with the reason why Wherry's way is right and what a user
// notices. Every other difference fails the run. A decision that no case needs also fails a whole run.
package differ
