// Package ownnode has the newest Node object of the agent's own node, so that the agent does not need a GET every 10 s to report the node's
// status. The Node authorizer allows a node to watch its own Node.
//
// Contract: Begin returns at once; the watch runs until its context ends, and join waits for the end. Last may be called at any time and
// does no IO.
//
// Invariants:
//   - Last returns nil rather than a Node that the API server may have replaced without the watch noticing: before the first event, after
//     a watch has failed, and if there is no Node. Callers then ask the API server.
//   - The Node may be old all the same: a watch can lag, and the next watch begins a moment after the server has ended one. A decision that
//     must not use an old Node asks the API server itself (heartbeat.Heartbeat.NodeSince).
//   - A Node that other agents may share is not written to.
package ownnode
