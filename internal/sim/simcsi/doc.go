// Package simcsi is a CSI driver in memory, with its registration, on real sockets. It keeps the rules of CSI and notes each call
// that breaks one: a volume that is staged twice at once, unstaged while it is published, or published without having been staged.
// It mounts nothing unless Config.Mount does.
//
// Faults make a method fail, hang, or take effect without an answer.
package simcsi
