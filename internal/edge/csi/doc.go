// Package csi calls the node service of one CSI driver over its socket.
//
// Contract: New does no IO and starts nothing that outlives Close; the connection is made with the first call. Calls may be
// concurrent, and each ends with its context or after Timeout. A driver may answer anything, late, twice or never: answers are
// bounded, and an error keeps the driver's own words. Secrets are never part of an error's text.
package csi
