// Package conformance pins upstream's end-to-end tests, and upstream's kubelet to compare with, at the version of the
// control plane. tools/internal/conformance builds and runs them: `make conformance`, `make conformance-node`.
//
// passes.txt is the list of the tests that pass on a Wherry node: it only grows. upstream.txt is what upstream's kubelet
// did on the same machine.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e/framework"
	_ "k8s.io/system-validators/validators" // of the node suite's tests, which go mod tidy does not see
)
