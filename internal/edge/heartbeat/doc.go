// Package heartbeat registers the node and keeps its two beats: the Node's status and the Lease ("Heartbeats, sent
// by Kubernetes nodes, help your cluster determine the availability of each node").
//
// The status is computed every StatusFrequency (10 s), or at once after Now, and sent when it differs from what the
// API has, or when ReportFrequency (5 min) has passed. One round has 5 tries; the first takes the Node from
// Cached, or reads it from the API server's cache, the others from etcd; from the second failed try on OnRepeatedFailure closes the connections, since they may lead to
// a server that is gone. After the start, until the node is ready, the status is computed every 100 ms without asking
// the API, so that a node is Ready as soon as its runtime is.
//
// The lease is renewed every quarter of its duration (10 s of 40 s), by a loop of its own that a slow status
// computation does not delay. k8s.io/component-helpers has such a loop too; it takes a clientset of all of Kubernetes, which the
// agent does not carry.
//
// Contract: New starts nothing. Run blocks, with two goroutines in all (one with a Leases of the caller's), and has
// joined them when it returns. The status goes out as one strategic merge PATCH of the status subresource, never as
// GET and PUT. Events are recorded when the change that they speak of is in the API, not before.
//
// Invariants:
//   - Only what this agent owns is patched; a Node that exists is adopted, never replaced.
//   - Without Register no Node is ever created.
//   - A failure is never the end: every loop retries until its context ends, and says what is wrong and what to do.
//     The same words are logged once a minute at most.
package heartbeat
