// Package report reports what the turns of pods mean: it derives each pod's status, and records the events that follow from a turn, not
// from an action: a wait that begins (a back-off, a pod network that is not ready), the end of an active deadline, and the steps of a resize.
//
// Contract: Turn is called at the end of each turn of a pod's worker. There is one call at a time for a pod; calls for different pods may
// be concurrent. It derives the status (package podstatus), passes it to the Writer, and does no IO. Status may be called at any time.
//
// Invariants:
//   - An event is recorded once for each wait that begins and for each step of a resize. Of a resize, this also holds across a restart of
//     the agent: the pod's conditions show which events an earlier agent recorded.
//   - The mirror of a static pod shows how the pod ends, although its manifest is gone. If the manifest comes back, restart counts continue
//     (package lastlife).
//   - A pod about which there is nothing to remember takes no memory here. Most pods at rest are such pods.
package report
