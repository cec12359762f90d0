// Package simcsi is a simulated CSI driver with its registration. It serves real sockets and keeps its state in memory. It checks the rules
// of CSI and records each call that breaks a rule: work on the staging of a volume by two calls at once, unstaging of a published volume,
// publishing of a volume that was not staged. It mounts nothing unless Config.Mount does.
//
// Faults make a method fail, hang, or take effect without an answer.
package simcsi
