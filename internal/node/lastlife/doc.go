// Package lastlife keeps what one life of a static pod leaves for the next one.
//
// If the manifest of a static pod is removed and put back, the pod has the same UID as before. The pod then begins a new life, and its
// restart counts continue from the last life. A life ends when nothing of the pod is left. The sync loop and the report each have a Lives
// of their own, because each continues something else: the loop the pod's worker, the report the pod's status.
//
// Contract and invariants:
//   - What a life leaves is kept for a minute. Upstream's kubelet keeps the containers of a pod that is gone for the same time.
//   - Take returns it once.
//   - The number of lives is bounded, however many manifests come and go.
//   - There is no lock: callers hold one of their own.
package lastlife
