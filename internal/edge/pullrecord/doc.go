// Package pullrecord keeps on disk which images this node's agent pulled, and with whose credentials.
//
// The files are those of Kubernetes' kubelet, so that a node may change from one to the other and back:
//
//	<root-dir>/image_manager/pulling/sha256-<hash of the image's name>   ImagePullIntent: a pull has begun
//	<root-dir>/image_manager/pulled/sha256-<hash of the image's ID>      ImagePulledRecord: who pulled it
//
// They are JSON of kubelet.config.k8s.io, written as v1beta1, read as v1beta1 and v1alpha1.
//
// Contract: Begin notes a pull before it begins, Pulled who made it, End that nothing is left of it to note. A pull of which
// nobody knows how it ended is left (Leave), and Settle finds out: it is given the runtime's images now and then. Settle also
// drops the records of images that are gone.
//
// Invariants:
//
//   - An image that this agent pulled has a record, or an intent that names it, at any moment: also after a crash between any
//     two steps. A record that was changed is on disk (fsync) before its intent is removed.
//   - What cannot be read counts as "pulled, by nobody known": a damaged file closes an image and never opens one. It is
//     said, and replaced by the next successful pull.
//   - Files are read when they are asked for, at most 1 MiB, and never kept: a read costs some ten microseconds, memory is
//     the open intents alone.
//   - No file is read or written under a lock that another image waits for.
package pullrecord
