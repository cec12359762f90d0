// Package crilog reads container logs as CRI runtimes write them: one file per attempt, each line
//
//	2016-10-06T00:17:09.669794202Z stdout F the container's text
//
// with the time (RFC 3339, nanoseconds), the stream, a tag (F: the line is complete, P: more of it follows) and the content. Read
// can select lines (tail, since, stream, bytes), add timestamps, and follow.
//
// Contract:
//   - Read blocks until it has written all requested lines, its context ends, or, if it follows, the container has
//     ended and its log is read to the end. It starts no goroutine and keeps no state.
//   - It uses constant memory, whatever the size of the file, the length of its lines or the number of requested lines.
//   - Following survives rotation by rename and by truncation. Read continues with the old file until its last writer has closed it, and
//     only then begins with the new one. So no line is lost or out of order, although the runtime creates the new file before it closes
//     the old one. A file that is never closed is given up after 5 s. If a reader is blocked (its client reads nothing) during two
//     rotations, it continues with the newest file and loses the file between them.
//   - Following polls (20 ms after activity, up to 500 ms at rest). An inotify instance for each reader would soon
//     reach the limit of 128 instances that a user has by default.
//   - If the log is not a regular file, Read returns an error at once. Read also returns an error if the file, or one of the two
//     directories above it, is a symbolic link: a pod that mounts /var/log could make a link to another pod's log. (A runtime that
//     uses links as logs, as the one for Docker does, does not write this format either.)
//   - A line that is not in the format is skipped. If no line of a file is in the format, Read returns an error.
package crilog
