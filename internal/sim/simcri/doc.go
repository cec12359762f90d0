// Package simcri is a container runtime in memory: CRI v1 with sandboxes, containers, images, events, statistics and streams, but
// no processes. Simulated fleets and tests of the whole agent use it instead of containerd.
//
// Contract: it behaves like containerd. Package cricontract tests both; if they differ, simcri is wrong. It is called in
// process (Clients: no gRPC and no copies, so requests and answers must not be modified after the call) or over gRPC (Serve),
// where crictl works with it.
//
// The behaviour of containers is scripted: by their command (a simple shell with sleep, exit, echo, true, false and a few
// more), by annotations of the pod (wherry.dev/sim-*, see behavior.go), or by Config.Behave. An unknown command is a server: it
// runs until it is stopped.
//
// Invariants:
//
//   - There is no goroutine and no timer per sandbox or container, but one heap of times with one timer.
//   - It reads the time only from package time, and derives all random values from Config.Seed and names. So in a synctest bubble the
//     same calls give the same IDs, addresses and times.
//   - At most one sandbox or container holds a name (with its attempt), from the beginning of its creation until it is removed or its
//     creation has failed.
//   - An event is sent after its change is visible. Only an injected fault loses events.
package simcri
