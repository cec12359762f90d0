// Package lastknown keeps on disk what the API server last said: the pods of this node, what they refer to, and the Node. A node
// that starts without its API server runs these pods.
//
// Contract: New does no IO. Load reads the whole record, Write replaces what has changed. One goroutine calls both. Every thing that
// the API server said is one file, encrypted and authenticated (AES-256-GCM) with a key from a file that only root can read. The
// name of a file says neither the kind nor the name of what it holds. A file is written completely or not at all, and is on the
// disk when Write returns.
//
// A record is refused as a whole if its head cannot be read, or if it is too old or too large. Any other file is refused by itself:
// a torn, changed or moved file, a file of another node or cluster, a file of another version. A refused file is named with its
// reason and never used.
//
// Whoever has the key can read and forge the record. Whoever can only write to the directory can remove files or bring back old
// ones, but cannot make a file that the node accepts.
package lastknown
