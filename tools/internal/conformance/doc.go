// Package conformance runs upstream's own end-to-end tests (k8s.io/kubernetes/test/e2e, built in conformance/) on one node,
// with Wherry or with upstream's kubelet, and compares the two.
//
// Contract: a run has its own network namespace, directories, ports and cgroups. So it does not disturb other programs on
// the machine, and it ends everything that it started. It uses no external registry: the images contain programs that are
// built here (Images). They are imported, and a registry on loopback (Registry) serves them to tests that always pull. Tests
// are not modified. Options.skips has the tests that a run leaves out. Tests that Wherry does not pass are in open.txt and
// node-open.txt, with reasons.
package conformance
