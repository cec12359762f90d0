// Package integration runs a compiled Go test program whose tests depend on real time. It runs a few failed tests once more,
// one at a time, before they count, and prints which ones it repeated.
//
// Contract: if a run ends for another reason than failed tests (a panic, a timeout, a check after the tests), it is not repeated.
// More than three failures are not repeated either, because a busy machine does not explain so many.
package integration
