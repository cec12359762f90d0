// Package archtest holds the tests that keep the architecture: which package may import which, and what no package
// may do. Each rule stands beside its reason. It has no code of its own.
package archtest
