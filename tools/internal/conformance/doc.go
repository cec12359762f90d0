// Package conformance runs upstream's own end-to-end tests (k8s.io/kubernetes/test/e2e, built in conformance/) on one
// node, which is Wherry's or upstream's, and compares the two.
//
// Contract: a run has a network namespace, directories, ports and cgroups of its own, so that it neither meets nor
// changes what else runs on the machine, and it ends all that it started. No registry is asked: the images are made of
// programs that are built here (Images), imported, and served by a registry on loopback (Registry) to the tests that
// always pull. A test is changed by nothing here; one that is left out is in Skipped, with a reason that holds on
// upstream's kubelet too.
package conformance
