// Package recorder keeps the last turns of pods that went wrong on disk, so that they can be read after a crash of the agent or of the
// node.
//
// Contract: Record never blocks and does no IO; one goroutine, Run, writes. Nothing is written for a pod that is well, because only turns
// that went wrong are passed to Record (replay.Wrong). A disk that fails is logged once, until a write succeeds again, and loses only
// recorded turns. A file is one turn in the format of package replay, so nothing secret is in it.
//
// Invariants: the files take at most Config.MaxBytes and number at most maxTurns, those of one pod at most maxPodTurns; the oldest go
// first. Both hold for files of earlier agents too.
package recorder
