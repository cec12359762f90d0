// Package crispec turns a pod's spec into the messages of the container runtime interface: the configurations of
// sandboxes and containers, with environment, DNS, hosts file, resources and security context.
//
// Contract: pure. The same input gives the same message, byte for byte: lists that come from maps are sorted. Nothing here reads
// a file, a clock or the API; objects and facts are part of the input. The pod may be one that no API server has validated or
// defaulted. Whatever it contains, nothing panics, and if a field cannot be expressed, the result is an *Error that names the
// field and has the reason that users know.
//
// Invariants:
//   - A later definition of an environment variable replaces an earlier one; env replaces envFrom, and both replace
//     service variables. A name appears once.
//   - A message shares no mutable memory with the pod that it was made from, except strings.
//   - SpecHash depends only on a fixed list of fields, never on the shape of Go types.
package crispec
