// Package resizes holds the resizes that the pods of a node ask for, until the node has accepted them or they are withdrawn. A pod asks for a
// resize if the resources in its spec differ from those allocated to it.
//
// The node decides about all waiting resizes together and in order, so that a pod that happens to ask when resources become free does not
// overtake a pod that comes before it. Whether a resize fits is decided by package admit.
//
// Contract: Ask and Again decide, so their caller holds the lock under which the node also admits pods: resources that are free for one
// resize must not be given to a pod at the same time. The other methods may be called at any time, also by the Node while the Queue calls it.
//
// Invariants:
//   - The Queue holds no lock while it calls the Node.
//   - The resources of a granted resize count as allocated at once (Granted), although the pod's worker takes them only in a later turn.
//   - A refusal is not final: Again decides about it once more, until Drop ends the resize.
package resizes
