// Package logrotate keeps the logs of running containers within bounds: "containerLogMaxSize" and
// "containerLogMaxFiles" of KubeletConfiguration.
//
// A log that has grown too long is renamed, and the runtime is told to begin a new one:
//
//	0.log                          what `kubectl logs` reads; the runtime writes it
//	0.log.20060102-150405          the newest that was rotated; whoever follows it reads it to its end
//	0.log.20060102-150400.gz       older ones
//
// Contract: one timer for the node, no goroutine at rest. A round asks Running once, stats one file for each running
// container and works on Workers logs at a time; the next round waits for it. Run returns when all that it began has
// ended. Names and texts are as log collectors know them from Kubernetes.
//
// What a crash leaves at any step, a later round mends: a log that was renamed and not begun anew is missing, so the
// runtime is told to reopen it; a compression that was cut short is a ".tmp", and begins again. No line is lost: a file
// is removed only for being older than the number of files that are kept.
package logrotate
