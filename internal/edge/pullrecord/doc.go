// Package pullrecord stores on disk which images the agents of this node pulled, and with which credentials.
//
// The files are those of upstream's kubelet, so that a node can change from upstream's kubelet to this agent and back:
//
//	<root-dir>/image_manager/pulling/sha256-<hash of the image's name>   ImagePullIntent: a pull has begun
//	<root-dir>/image_manager/pulled/sha256-<hash of the image's ID>      ImagePulledRecord: the credentials of its pulls
//
// They are JSON of kubelet.config.k8s.io, written as v1beta1, read as v1beta1 and v1alpha1.
//
// Contract: Begin writes an intent before a pull. Pulled records the credentials of a successful pull. End removes the intent.
// If the result of a pull is unknown, Leave keeps the intent, and Settle finds out the result: the caller passes the runtime's
// list of images to it now and then. Settle also removes the records of images that are gone.
//
// Invariants:
//
//   - At any moment an image that this agent pulled has a record or an intent, even after a crash between any two steps. A changed
//     record is on disk (fsync) before its intent is removed.
//   - A record that cannot be read is treated as a pull with unknown credentials, so a damaged file denies access to an image and never
//     gives access. It is logged, and the next successful pull replaces it.
//   - Files are read when they are needed, at most 1 MiB, and are not kept in memory. A read takes about ten microseconds. Only the open
//     intents are in memory.
//   - No file is read or written under a lock that another image waits for.
package pullrecord
