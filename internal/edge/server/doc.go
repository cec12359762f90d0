// Package server is the node's HTTPS API (port 10250), its health port (10248) and its read-only port. Paths, methods,
// answers and permissions are those that clusters and their tools expect of a kubelet.
//
// Contract:
//   - Every request to the handler of Server.Handler is authenticated and authorised before it is routed, also for
//     unknown paths and health. A request without valid credentials gets 401, a user without the right gets 403, and
//     neither learns anything else.
//   - The right to get nodes/proxy alone does not let a client run commands, unless Config.StreamingByGet is set. A web page of
//     another site cannot make its visitor's browser send requests with the visitor's client certificate (crossOrigin).
//   - Unknown clients cost a bounded amount: Reviews bounds the requests that wait for an answer of the API server, and
//     the listener bounds the connections whose clients are not authorised yet.
//   - The data comes from other packages: pods, runtime, statistics, configuration and metrics come in through Config,
//     as small interfaces and http.Handlers. The server keeps no state but its own counters and caches of reviews.
//   - The server connects exec, attach and port-forward clients with the URL that the runtime gave. The server copies upgraded
//     connections byte by byte. For WebSocket clients that use the protocol v5 or tunnel SPDY, it translates to SPDY,
//     which every runtime speaks. If the stream of a command ends without the command's result, the client gets an error as the result
//     (verdict), because clients take the end of the connection for success.
//   - Nothing is global, so one process may hold many servers, behind listeners of their own or behind one.
//   - New does no IO and starts nothing. Run joins all that it started. When its context ends, it cuts streams, whose clients have a second to
//     read why, and gives other requests a short time to end.
//
// Authentication and authorisation are written here and not taken from k8s.io/apiserver. Its delegating packages cost
// 14 MiB of resident memory and 13 MB of binary (they bring CEL and process-wide metrics). Its dynamic certificates
// cost another 7 MiB, with goroutines that nobody joins. This package costs 1 MiB, with the same behaviour.
package server
