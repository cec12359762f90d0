// Package filewatch reports that files at a few paths may have changed. The paths may not exist yet, be replaced, or vanish. The agent
// uses it for static pods, for the sockets of plugins and for its configuration.
//
// Contract: an event is a hint to read the files again, and says nothing about the change itself. The kernel may lose events, and
// reports none for the target of a symbolic link in another directory, so the caller reads periodically too. A nil Watcher has no
// events.
package filewatch
