// Package proc starts processes that outlive the caller and finds them again.
//
// Contract: a pid file has the form "pid starttime". A process counts as ours only while both match /proc, so a process that
// got the same pid later is never signalled.
package proc
