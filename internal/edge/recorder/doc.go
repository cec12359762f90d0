// Package recorder stores recent turns on disk if something went wrong in them, so that they can be read after a crash of the agent
// or of the node.
//
// Contract: Record never blocks and does no IO; one goroutine, Run, writes. Nothing is written for a pod that is well, because only
// turns that went wrong are passed to Record (replay.Wrong). If a write fails, its turn is lost, and nothing else. The failure is
// logged once, and again only after a write has succeeded. A file is one turn in the format of package replay, so nothing secret is
// in it.
//
// Invariants: there are at most maxTurns files, at most maxPodTurns files of one pod, and all files together have at most
// Config.MaxBytes. The oldest files are removed first. Files of earlier agents count too.
package recorder
