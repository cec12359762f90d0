// Package mirror shows static pods in the API: "the kubelet automatically tries to create a mirror pod on the
// Kubernetes API server for each static pod. The Pods running on a node are visible on the API server, but cannot be
// controlled from there."
//
// Contract: the package compares states, it does not follow events. A call of Look means that a name may have changed. The next
// step depends only on the state of the sources and of the API at that time. Nothing here touches a container.
//
// Invariants:
//   - A mirror is created only while its owner, the Node, is known, and after every other pod of the same name has ended
//     here.
//   - A mirror that somebody deletes is removed at once, and created again 2 s after that. In these 2 s, a client that waits for the end
//     of the mirror by its name sees that there is no such pod. A mirror of another manifest is replaced in the same way.
//   - A mirror without a static pod is removed once its source, or every source, has shown that there is no such pod,
//     and nothing of the pod runs.
//   - Only mirrors are deleted, each by its UID.
//   - Config.Gone is called with the UID of every mirror that is no longer in the API.
package mirror
