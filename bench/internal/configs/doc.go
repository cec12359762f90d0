// Package configs compares what upstream's kubelet and Wherry tell a runtime of the same pod: every field of RunPodSandbox and
// CreateContainer.
//
// Both agents' own code runs in this process, without a cluster and without a runtime. Upstream's kubelet is made as its main
// program makes it, with stand-ins for the runtime, the API server and the machine's measurements; its runtime manager is asked
// to sync a pod. Of Wherry its performer does the actions of the same pod. Both see the same Node, the same ConfigMaps, Secrets
// and Services (World), and both runtimes do nothing but keep what they are told.
//
// The pods are of two kinds: Fields sets each field of a pod's spec alone, Random many at once. Each passes the API server's own
// defaults and validation before it is compared.
package configs
