// Package simcsi is a simulated CSI driver with its registration. It serves real sockets or any listener, and keeps its state in memory. It
// checks the rules of CSI and records each call that breaks one: a call that stages or unstages a volume while another such call runs, a
// call that unstages a published volume, or a call that publishes a volume that is not staged. It mounts nothing unless Config.Mount does.
//
// Faults make a method fail, hang, or take effect without an answer.
package simcsi
