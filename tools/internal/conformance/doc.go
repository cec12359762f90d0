// Package conformance runs upstream's own end-to-end tests (k8s.io/kubernetes/test/e2e, built in conformance/) on one node,
// with Wherry or with upstream's kubelet, and compares the two.
//
// Contract: a run has its own network namespace, directories, ports and cgroups, so it does not disturb other programs on the machine. It
// ends everything that it started. It uses no external registry: the images contain programs that are built here (Images). The images are
// imported into the runtime, and a registry on loopback (Registry) serves them to tests that always pull. The tests are not modified.
// Options.skips names the tests that a run leaves out. open.txt and node-open.txt list the tests that Wherry does not pass, with reasons.
package conformance
