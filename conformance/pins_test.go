// Package conformance pins upstream's end-to-end tests, and upstream's kubelet to compare with, at the version of the
// control plane. tools/internal/conformance builds and runs them: `make conformance`, `make conformance-node`.
//
// passes.txt lists the tests that pass on a Wherry node. Tests are only added to it. upstream.txt has the results of upstream's
// kubelet on the same machine.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e/framework"
	_ "k8s.io/system-validators/validators" // a requirement that go mod tidy does not see in the node suite's tests
)
