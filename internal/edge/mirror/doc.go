// Package mirror shows static pods in the API: "the kubelet automatically tries to create a mirror pod on the
// Kubernetes API server for each static pod. The Pods running on a node are visible on the API server, but cannot be
// controlled from there."
//
// Contract: the package compares states, it does not follow events. Look says that a name may have changed; the next
// step depends only on what the sources have and the API shows at that time. Nothing here touches a container.
//
// Invariants:
//   - A mirror is created only while its owner, the Node, is known, and after every other pod of its name has ended
//     here.
//   - If somebody deletes a mirror, it goes at once, and is created again 2 s after it is gone: clients that wait for
//     its end by its name must see that there is none. A mirror of another manifest is replaced in the same way.
//   - A mirror without a static pod is removed once its source, or every source, has shown that there is no such pod,
//     and nothing of the pod runs.
//   - Only mirrors are deleted, each by its UID.
//   - Config.Gone gets the UID of every mirror that has gone from the API.
package mirror
