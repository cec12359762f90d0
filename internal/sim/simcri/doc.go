// Package simcri is a container runtime in memory: CRI v1 with sandboxes, containers, images, events, stats and
// streams, and nothing that runs. It is what fleets and whole-agent simulations use in the place of containerd.
//
// Contract: it behaves as containerd does (package cricontract holds both to the same tests); where they differ,
// this one is wrong. It is used in process (Clients: no gRPC, no copying: requests and answers are shared and must
// not be changed after the call) or over gRPC (Serve), where crictl works with it.
//
// What containers do is scripted: by their command (a tiny shell: sleep, exit, echo, true, false, ...), by
// annotations of the pod (wherry.dev/sim-*, see behavior.go), or by Config.Behave. A command that is not known is a
// server: it runs until it is stopped.
//
// Invariants:
//
//   - No goroutine and no timer per sandbox or container: one heap of times behind one timer.
//   - Only package time is read, and all that is random is derived from Config.Seed and names: inside a synctest
//     bubble the same calls give the same IDs, addresses and times.
//   - A name (container or sandbox name with attempt) is held by at most one sandbox or container, from the moment
//     its creation begins until it is removed, or its creation failed.
//   - An event is sent after the change that it tells of can be seen. Events may be lost only by an injected fault.
package simcri
