// Package conformance pins the versions of upstream's end-to-end tests and of upstream's kubelet, whose results serve as the comparison.
// Both have the version of the control plane. tools/internal/conformance builds and runs them (`make conformance`, `make
// conformance-node`).
//
// passes.txt lists the tests that a Wherry node has to pass; no test is ever removed from it. upstream.txt has the results of upstream's
// kubelet on the same machine.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e/framework"
	_ "k8s.io/system-validators/validators" // upstream's node end-to-end tests need this module, but `go mod tidy` does not notice that
)
