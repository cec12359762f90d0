// Package simkube is a small Kubernetes API server in memory, with the parts that a node agent and its tests use. It is an
// http.RoundTripper for client-go's real clients (without a socket, so that it works inside synctest bubbles), and an
// http.Handler.
//
// Contract: its answers are those of a real API server; contract_test.go runs the same tests against both. It answers requests
// that it does not support with an error (404, 405, 406, 415). It reads JSON and protobuf, and answers in JSON.
//
// Served: pods (with status, ephemeralcontainers and resize), nodes, leases, config maps, secrets, services, namespaces, service
// accounts (with token), events, persistent volumes and their claims, runtime classes, CSI nodes and drivers, volume attachments,
// certificate requests and cluster role bindings (nothing signs or enforces them), token reviews and subject access reviews. Verbs: create,
// get, list, watch (bookmarks, streamed lists, 410), update, patch (strategic merge and merge), delete (grace period, preconditions,
// finalizers), delete of a collection.
//
// Invariants:
//
//   - One resource version counts every change of every object, as in etcd. A stored object is never modified.
//   - A watch delivers every change after its version once and in order, or ends.
//   - There is no goroutine: the work of a watch is done in the reads of its client. It reads the time only from package time.
//   - All random values (UIDs) come from Config.Seed.
package simkube
