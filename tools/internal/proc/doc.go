// Package proc starts processes that outlive the caller and finds them again.
//
// Contract: a pid file has the form "PID STARTTIME". A process counts as the one in the file only if both match /proc, so that another
// process that later gets the same PID is never signalled.
//
// Output runs a command to its end, and Lock keeps two commands of this tool apart.
package proc
