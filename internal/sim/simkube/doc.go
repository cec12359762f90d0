// Package simkube is a small Kubernetes API server in memory: as much of one as a node agent, and those who test it,
// talk to. It is an http.RoundTripper for client-go's real clientset (no socket, so that it works inside of
// testing/synctest bubbles), and an http.Handler.
//
// Contract: what it answers, an API server answers; the tests in contract_test.go hold both to the same. What it does
// not know it refuses in words (405, 406, 415), it never pretends. It reads JSON and
// protobuf, and answers in JSON.
//
// Served: pods with status, ephemeralcontainers, resize and token-bound service accounts, nodes, leases, config maps, secrets,
// services, namespaces, service accounts, events, runtime classes, token and access reviews. Verbs: create, get, list,
// watch (bookmarks, streamed lists, 410), update, patch (strategic merge and merge), delete (grace period,
// preconditions, finalizers).
//
// Invariants:
//
//   - One resource version counts every change of anything, as etcd's does. An object that was stored is never changed.
//   - A watch delivers every change after its version once and in order, or ends.
//   - No goroutine: a watch is read by its reader, and only package time is read.
//   - All that is random (UIDs) comes from Config.Seed.
package simkube
