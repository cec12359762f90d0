// Package kubecontract is what an API server has to do for a node agent to work with it: one suite, run against a real
// kube-apiserver and against simkube. Where they differ, simkube is wrong.
//
// Contract: a case leaves nothing behind that it made, but its namespace where the server keeps those. Cases may run at
// the same time on one server.
package kubecontract
