// Package mirror shows static pods in the API: "the kubelet automatically tries to create a mirror pod on the Kubernetes
// API server for each static pod. The Pods running on a node are visible on the API server, but cannot be controlled from
// there."
//
// Contract: a level, not a stream. Look says that a name may have changed; what has to be done follows from what the
// sources have and the API shows at that time. Nothing here touches a container.
//
// Invariants:
//   - A mirror is made only while the Node is known, which owns it, and after every other pod of its name has ended here.
//   - A mirror that someone deletes is let go at once, and made again 2 s after it has gone: clients that wait for its
//     end by its name must see that there is none. One of another manifest is replaced in the same way.
//   - A mirror without a static pod is removed once its source, or every source, has said that there is none, and nothing
//     of the pod runs.
//   - Only mirrors are deleted, each by its UID.
//   - What is told of (Config.Gone) is every mirror that has gone from the API.
package mirror
