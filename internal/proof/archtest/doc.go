// Package archtest has the tests of the architecture: which package may import which, and what no package may do. Each rule is
// beside its reason. The package has no code of its own.
package archtest
