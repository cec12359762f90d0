// Package component runs one component of the control plane in the calling process: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler or kube-proxy.
//
// Contract: one call per process. The components' commands install signal handlers, feature gates and metrics for the whole
// process, so each component has its own process.
package component
