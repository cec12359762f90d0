// Package conformance pins the versions of upstream's end-to-end tests, and of upstream's kubelet, with which the results are compared, to
// that of the control plane. tools/internal/conformance builds and runs them (`make conformance`, `make conformance-node`).
//
// passes.txt lists the tests that a Wherry node has to pass; no test is ever removed from it. upstream.txt has the results of upstream's
// kubelet on the same machine.
package conformance

import (
	_ "k8s.io/kubernetes/test/e2e/framework"
	_ "k8s.io/system-validators/validators" // the node suite needs it, but go mod tidy does not notice that
)
