// Package status writes pod status to the API server.
//
// Contract: the caller says what the status of a pod should be (Set), as often as it likes and without waiting,
// and what the watch saw (Observe); the Writer makes the API say it, and deletes a pod once its last status has
// been acknowledged. Only the newest status of a pod counts: what was not sent when a newer one came is never sent.
//
// Invariants:
//
//   - One request in flight per pod, up to Parallel pods at once. No goroutine and no timer for a pod at rest.
//   - No GET before a PATCH. The base of the patch is the newer of the last answer and the watched object.
//   - A patch carries the UID: it never changes another pod of the same name. NotFound or a UID conflict ends the
//     pod's writer; a status conflict costs one GET and another try.
//   - A status that the API server finds invalid costs one GET, is named in the log once, and is told again only when it or
//     the pod has changed. It does not hold up the deletion of a pod that has ended.
//   - Conditions of other owners are never sent. Lists of IPs are sent whole.
//   - A terminal phase in the API is never left, and never turned into the other terminal phase.
//   - The delete (grace 0, UID precondition) comes after the final status has been acknowledged.
//   - What the API server would not keep (a field behind a disabled feature) is not sent again and again: after an
//     acknowledgement only a newer status, or an object that someone else changed, causes another request.
//   - That a pod is being made, and got its sandbox, is told together with the start of its containers when that follows
//     soon: a pod that starts within 2 s of its turn does so with one request. One that is deleted ends with two and the
//     deletion: that it is not ready any more is told at once. That its deletion was seen goes with that, and what is torn
//     down after its last container with the last status, when these follow within 10 s.
//   - Readiness, phase, addresses and deletion go before everything else, which waits at most maxAge longer.
package status
