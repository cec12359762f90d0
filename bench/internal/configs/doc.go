// Package configs compares the requests that upstream's kubelet and Wherry send to a runtime for the same pod: every field of
// RunPodSandbox and CreateContainer.
//
// The code of both agents runs in this process, without a cluster and without a real runtime. Upstream's kubelet is created as its main
// program creates it, with substitutes for the runtime, the API server and the measurements of the machine, and its runtime manager syncs
// the pod. Of Wherry, package perform carries out the actions for the same pod. Both agents see the same Node, ConfigMaps, Secrets and
// Services (World). The substitutes for the runtime only record the requests.
//
// The pods are of two kinds: Fields sets each field of a pod's spec alone, Random sets many at once. Each pod passes the API
// server's own defaults and validation before it is compared.
package configs
