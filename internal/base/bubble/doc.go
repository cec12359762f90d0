// Package bubble runs a part of a program in virtual time: a bubble of testing/synctest outside of tests. In a bubble time stands still while any
// goroutine works, and jumps to the next timer when all of them wait. An hour in which little happens takes a moment.
//
// testing/synctest makes a bubble only for a *testing.T. Outside of a test binary testing.RunTests runs nothing, because only testing.M.Run reads
// which tests to run on how many processors; and testing.M.Run reads the program's flags and prints PASS. So Run gives synctest.Test an empty
// testing.T of its own. It never fails and never panics in the bubble's first goroutine, which are the cases in which package testing would use the rest of it.
// The tests of this package notice if a new version of Go needs more. Package testing registers its flags in testing.Init, which nobody calls.
//
// Contract: Run returns when everything that runs in the bubble has ended. In the bubble only its own channels, timers and wait groups may be
// used: a goroutine that waits for anything else (the network, a file, a lock for long, a channel of outside) keeps time from passing. Code outside
// talks to the bubble by atomic values. A panic in another goroutine of the bubble ends the program, as everywhere.
package bubble
