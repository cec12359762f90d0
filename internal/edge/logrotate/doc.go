// Package logrotate limits the logs of running containers: "containerLogMaxSize" and "containerLogMaxFiles" of
// KubeletConfiguration.
//
// It renames a log that has grown too long and makes the runtime start a new one:
//
//	0.log                          the runtime writes it, and `kubectl logs` reads it
//	0.log.20060102-150405          the newest rotated file; followers of the log read it to its end
//	0.log.20060102-150400.gz       older ones
//
// Contract: the node has one timer, and no goroutine runs between two rounds. A round checks all logs: it calls Running once, stats
// one file for each running container, and works on Workers logs at a time. The next round starts one interval after it. Run returns
// when all its work has ended. The files have the same names as in upstream's kubelet, because log collectors rely on them.
//
// A round first rotates all logs that are due, and only then compresses the files of earlier rotations. It stops when the next round is
// due, which goes on with the rest. A container that can write to its log directory can make a file of any size that looks like a rotated
// one. A file that is much larger than MaxSize, or whose compression takes longer than two minutes, stays uncompressed until it is removed
// like any other rotated file. So a compression delays a rotation by at most two minutes.
//
// A later round repairs the result of a crash at any step. If a log was renamed and the runtime has not reopened it, the current file is
// missing, so the next round makes the runtime reopen it. An interrupted compression leaves a ".tmp" file, and starts again. A crash
// loses no line: a file is removed only when as many newer files exist as MaxFiles allows.
package logrotate
