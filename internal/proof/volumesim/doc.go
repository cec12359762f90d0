// Package volumesim tests package volume in virtual time, with simulated pods, claims, attachments and a CSI driver that has faults. After
// each call the tests check rules that must always hold. They also plant bugs, each of which the simulation has to find.
//
// The records of volumes are real files; the mounts are only simulated, so no test needs root. A driver hangs, fails before or after its
// work, and goes away; requests to the API server fail; the agent ends at any call, and the machine loses its mounts.
package volumesim
