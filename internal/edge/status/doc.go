// Package status writes pod status to the API server.
//
// Contract: the caller passes the wanted status of a pod (Set), as often as it likes and without waiting, and each object that the watch
// delivers (Observe). The Writer writes the status to the API, and deletes the pod once the API has acknowledged its final status. Only
// the newest status of a pod is sent; an older status that was not sent yet is dropped.
//
// Invariants:
//
//   - One request in flight per pod, up to Parallel pods at once. No goroutine and no timer for a pod at rest.
//   - No GET before a PATCH. The base of the patch is the newer of the last answer and the watched object.
//   - A patch carries the UID: it never changes another pod of the same name. NotFound or a UID conflict ends the writing of that
//     pod's status; a status conflict costs one GET and a retry.
//   - A status that the API server rejects as invalid costs one GET and one log line, and is sent again only when the status
//     or the pod has changed. It does not delay the deletion of a pod that has ended.
//   - Conditions of other owners are never sent. Lists of IPs are sent whole.
//   - A terminal phase in the API is never left, and never turned into the other terminal phase.
//   - The delete (grace 0, UID precondition) comes after the final status has been acknowledged.
//   - A field that the API server drops (its feature is disabled) is not sent again and again: after an acknowledgement only a
//     newer status, or a change by another component, causes a request.
//   - Statuses that follow one another within a short time share a request. A pod that starts within 2 s after it left
//     the start gate takes one request for "is being created", "has a sandbox" and "runs". A pod that is deleted takes two requests and
//     the deletion. The first is sent at once when the pod is no longer ready; a mere change of the observed generation waits up to 10 s
//     to be sent with it. The second is the final status; changes after the end of the last container wait up to 10 s to be sent with it.
//   - Readiness, phase, addresses and deletion go first. Other changes wait at most maxAge longer.
package status
