// Package integration runs a compiled Go test program whose tests need the machine's time: the few that fail are run once
// more, one at a time, before they count, and the output says which they were.
//
// Contract: what ends a run otherwise than by failed tests (a panic, the time limit, a check after the tests) is never
// run again, and no more than three failures are: that many are no noise of a busy machine.
package integration
