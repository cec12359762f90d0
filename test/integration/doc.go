// Package integration tests the real node as its users see it: the wherry binary has joined a real control plane, runs pods on a
// real containerd, and is used with a real kubectl.
//
// One control plane, one runtime and one node serve all tests of a run; each test has a namespace of its own, and the tests run
// in parallel. A test that needs a special node starts one (see node). A run has one directory below /tmp, and ports, cgroups and
// pod addresses of its own. At the end, also after a failure, it ends and removes everything except the logs. The next run
// removes the remains of a run that was killed.
//
// After all tests have passed, the run itself is checked: nothing of the pods may be left on disk, in mounts, in cgroups or in
// the runtime.
//
// Without root, or without the binaries of `wherry-dev build` in bin/, the tests are skipped with a message.
//
//	WHERRY_BIN      the binary under test (default bin/wherry)
//	WHERRY_RUNTIME  containerd2 (default) or debian: which runtime of `wherry-dev runtime`
//	WHERRY_KUBECTL  the kubectl to use (default bin/kubectl)
//	WHERRY_KEEP     keep the directory, with logs, even if all tests pass
package integration
