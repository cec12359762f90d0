// Package proc starts processes that outlive the caller and finds them again.
//
// Contract: a pid file holds "pid starttime"; a process counts as ours only while both match /proc, so that a number
// the system has given to another process meanwhile is never signalled.
package proc
