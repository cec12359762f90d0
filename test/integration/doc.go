// Package integration tests a real node as its users see it. The wherry binary joins a real control plane, runs pods on a real containerd,
// and is used through a real kubectl.
//
// All tests of a run share one control plane, one runtime and one node. Each test has a namespace of its own, and the tests run in
// parallel. A test that needs a special node starts one (see node). A run has one directory below /tmp, and its own ports, cgroups and pod
// addresses. At its end, also after a failure, it ends all processes and removes everything except the logs. If a run is
// killed, the next run removes what it has left.
//
// If all tests pass, the run finally checks the machine: nothing of the pods may be left on disk, in mounts, in cgroups or in the runtime.
//
// Without root, or without the binaries of `wherry-dev build` in bin/, the tests are skipped with a message.
//
//	WHERRY_BIN      the binary under test (default bin/wherry)
//	WHERRY_RUNTIME  containerd2 (default) or debian: which runtime of `wherry-dev runtime`
//	WHERRY_KUBECTL  the kubectl to use (default bin/kubectl)
//	WHERRY_KEEP     keep the directory, with logs, even if all tests pass
package integration
