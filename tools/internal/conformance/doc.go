// Package conformance runs upstream's own end-to-end tests (k8s.io/kubernetes/test/e2e, built in conformance/) on one node,
// with Wherry or with upstream's kubelet, and compares the two.
//
// Contract: a run has its own network namespace, directories, ports and cgroups. So it does not disturb other programs on the
// machine, and it ends everything that it started. It uses no external registry: the images contain programs that are built
// here (Images). They are imported, and a registry on loopback (Registry) serves them to tests that always pull. Tests are not
// modified. Tests that are left out are in Skipped, with a reason that also holds for upstream's kubelet.
package conformance
