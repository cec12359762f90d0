// Package integration tests the real node as its users see it: the wherry binary joined to a real control plane, running
// pods on a real containerd, spoken to with a real kubectl.
//
// One control plane, one runtime and one node serve all tests of a run; each test has a namespace of its own, and they
// run side by side. A test that needs a node in another condition starts one (see node). Everything lives in one
// directory below /tmp, with ports, cgroups and pod addresses of its own, and is ended and removed at the end, also on
// failure; then only the logs stay. What a run that was killed left behind, the next run removes.
//
// When every test has passed, the run itself is a test: nothing of the pods may be left on disk, in mounts, in cgroups
// or in the runtime.
//
// The tests are skipped, saying why, without root or without the binaries of `wherry-dev build` in bin/.
//
//	WHERRY_BIN      the binary under test (default bin/wherry)
//	WHERRY_RUNTIME  containerd2 (default) or debian: which runtime of `wherry-dev runtime`
//	WHERRY_KUBECTL  the kubectl to use (default bin/kubectl)
//	WHERRY_KEEP     keep the directory, with logs, even when all is well
package integration
