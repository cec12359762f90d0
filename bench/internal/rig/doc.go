// Package rig has what all arms of the benchmark (the agents and baselines that it compares) share: one control plane, one containerd and
// one node agent at a time. It also has the measurements: a watch of the API that records the time of each change, the API server's audit
// log, a proxy that counts CRI calls, and the memory and processor time of each component.
//
// Invariants: Close ends everything that Open starts, and restores everything outside the rig's directory, including cgroups and sysctls.
package rig
