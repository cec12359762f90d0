// Package heartbeat registers the node and sends its two heartbeats: the Node's status and the Lease ("Heartbeats, sent by
// Kubernetes nodes, help your cluster determine the availability of each node").
//
// The node is measured, and its status computed, every StatusFrequency (10 s), or at once after Now. The status is sent if it differs
// from the one in the API, or if ReportFrequency (5 min) has passed. While neither the measurements nor the Node in the API change, the
// Source need not compute the status. One round has 5 tries. The first try takes the Node from Cached
// or, without that, from the API server's cache; the others read it from etcd. From the second try on that no server answers,
// OnRepeatedFailure closes the connections, because they may lead to a server that is gone. While the node starts,
// until it is ready, the status is computed every 100 ms without a request to the API, so that a node is Ready as soon
// as its runtime is.
//
// The lease is renewed every quarter of its duration (10 s of 40 s) by a loop of its own, so that a slow computation of
// the status does not delay it. k8s.io/component-helpers has such a loop, too; it needs a clientset of all of
// Kubernetes, which the agent does not contain.
//
// Contract: New starts nothing. Run blocks, uses two goroutines in all (one if Config.Leases is set), and joins them before it returns.
// The status goes out as one strategic merge PATCH of the status subresource, never as GET and PUT. An event is recorded after the change
// that it reports is in the API, not before.
//
// Invariants:
//   - The agent patches only what it owns. It adopts an existing Node and never replaces it.
//   - Without Register, it never creates a Node.
//   - No failure ends a loop: every loop tries again until its context ends, and logs what is wrong and what to do. The
//     same message is logged at most once a minute.
package heartbeat
