// Package rig is what every arm of the benchmark shares: one control plane, one containerd, one node agent at a time,
// and the eyes on them: a watch of the API with the time of each change, the API server's audit log, a counting proxy
// before the runtime's socket, /proc, and the processor time of each part.
//
// Invariants: everything that Open starts ends with Close; nothing outside the rig's directory is left changed, cgroups
// and sysctls included.
package rig
