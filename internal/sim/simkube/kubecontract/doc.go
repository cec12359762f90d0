// Package kubecontract tests what a node agent needs from an API server: one suite, run against a real kube-apiserver and
// against simkube. If they differ, simkube is wrong.
//
// Contract: a case removes everything that it creates, except its namespace if the server keeps namespaces. Cases may run at
// the same time on one server.
package kubecontract
