// Package server is the node's HTTPS API (port 10250), its health port (10248) and its read-only port, with the
// paths, methods, answers and permissions that clusters and their tools expect of a kubelet.
//
// Contract:
//   - Every request to the handler of Server.Handler is authenticated and authorised before it is routed: unknown
//     paths too, and health. Who is nobody gets 401, who may not gets 403, and learns nothing else.
//   - Who may only get nodes/proxy cannot run commands by it, unless Config.StreamingByGet says so. A page of another site
//     cannot use its visitor's client certificate (crossOrigin).
//   - Strangers cost a bounded amount: Reviews bounds the requests that wait for the API server's word, the listener the
//     connections whose clients have not been let in.
//   - The data belongs to others: pods, runtime, statistics, configuration and metrics come in through Config, as
//     small interfaces and http.Handlers. The server keeps no state but its own counters.
//   - exec, attach and port-forward are carried between the client and the URL that the runtime gave: upgraded
//     connections are copied byte by byte; WebSocket clients of protocol v5 and tunnelled SPDY are translated to
//     SPDY, which every runtime speaks.
//   - Nothing is global, so one process may hold many servers, behind listeners of their own or behind one.
//   - New does no IO and starts nothing. Run joins all that it started; when its context ends, streams are cut at
//     once and other requests get a short time to end.
//
// Authentication and authorisation are written here and not taken from k8s.io/apiserver: its delegating packages
// cost 14 MiB of resident memory and 13 MB of binary (they bring CEL and process-wide metrics), and dynamic
// certificates another 7 MiB with goroutines that nobody joins; this is 1 MiB with the same behaviour.
package server
