// Package filewatch reports that something may have changed at a few paths, which may not exist yet, be replaced, or vanish. It
// is used for static pods and for the agent's configuration.
//
// Contract: an event is a hint to read the files again, and says nothing about the change itself. The kernel may lose events, and
// reports none for the target of a symbolic link in another directory, so the caller reads periodically too. A nil Watcher has no
// events.
package filewatch
