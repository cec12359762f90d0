// Package csi calls the node service of one CSI driver over its socket.
//
// Contract: New does no IO and starts nothing that outlives Close; the first call connects. Calls may be concurrent. Each call ends
// with its context, or after Timeout. The driver may be broken or hostile, so its answers have bounds: bytes, the length of names, and
// the length and the characters of error texts. An answer that comes too late, or twice, has no effect. The texts of errors contain
// what the driver says, and never a part of the request, which may have secrets.
package csi
