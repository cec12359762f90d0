// Package lastknown stores on disk the last answers of the API server: the Node, the pods of this node, and the objects that these
// pods refer to. A node that starts while its API server is unreachable runs these pods.
//
// Contract: New does no IO. Load reads the whole record, Write replaces what has changed. One goroutine calls both. Every object is
// one file, encrypted and authenticated (AES-256-GCM) with a key from a file that only root can read. A file's name reveals neither
// the kind nor the name of its object. A file is written completely or not at all, and is on the disk when Write returns.
//
// One more file, the head, contains the time of the API server's last answer. A record is refused as a whole if its head cannot be
// read, or if it is too old or too large. Any other file is refused by itself: a torn, changed or moved file, a file of another node
// or cluster, a file of another version. A refused file is named with its reason and never used.
//
// Whoever has the key can read and forge the record. Whoever can only write to the directory can remove files or bring back old
// ones, but cannot make a file that the node accepts.
package lastknown
