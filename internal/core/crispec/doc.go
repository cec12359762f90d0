// Package crispec turns a pod's spec into the messages of the container runtime interface: the sandbox's
// configuration, a container's configuration, and what goes into them (environment, DNS, hosts file, resources,
// security context).
//
// Contract: pure. The same input gives the same message, byte for byte: lists that come out of maps are sorted.
// Nothing here reads a file, a clock or the API; objects and facts arrive in the input. A pod that no API server
// has validated or defaulted may come in: whatever it holds, nothing panics, and what cannot be expressed is an
// *Error that names the field and carries the reason a user greps for.
//
// Invariants:
//   - A later definition of an environment variable wins over an earlier one, env wins over envFrom, both win
//     over service variables; a name appears once.
//   - A message shares no mutable memory with the pod it was made from, apart from strings.
//   - SpecHash depends on a written list of fields only, never on the shape of Go types.
package crispec
