// Package podsapi serves the Pods API of the node (k8s.io/kubelet/pkg/apis/pods/v1alpha1): programs of the machine list and watch the pods of
// the node over gRPC, with the status that the node itself knows. It answers while the API server is away, too.
//
// Contract: Server.Changed never blocks. A watcher gets the newest state of each pod that has changed, however slowly it reads: several
// changes of a pod become one event, and no event is lost. Only if more than maxChanged pods have changed since the watcher last read, its
// watch ends with RESOURCE_EXHAUSTED, because it would need more and more memory; the client watches again and gets all pods. An event is
// sent only if the pod differs from what the watcher was told last. Clients are bounded in number and rate; a client that is refused gets
// RESOURCE_EXHAUSTED.
package podsapi
