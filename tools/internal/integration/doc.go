// Package integration runs a compiled Go test program whose tests depend on real time. If a few tests fail, it runs them once more, one at
// a time; only the second result counts. It prints which tests it repeated.
//
// Contract: nothing is repeated if a run ends for another reason than failed tests (a panic, a timeout, a check after the tests), or if
// more than three tests fail, because a busy machine does not explain so many.
package integration
