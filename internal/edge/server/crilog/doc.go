// Package crilog reads container logs as CRI runtimes write them: one file per attempt, each line
//
//	2016-10-06T00:17:09.669794202Z stdout F the rest is what the container wrote
//
// with the time (RFC 3339, nanoseconds), the stream, a tag (F: the line is complete, P: more of it follows) and
// the content. Read selects (tail, since, stream, bytes), decorates (timestamps) and follows.
//
// Contract:
//   - Read blocks until it has written what was asked for, its context ends, or, following, the container has
//     ended and its log is read to the end. It starts no goroutine and keeps nothing.
//   - Memory is constant whatever the file's size, the length of its lines or the number of lines asked for.
//   - Following survives rotation by rename and by truncation. What is written to the old file until its last writer
//     has closed it is read first, so no line is lost or out of order, though the runtime makes the new file before that.
//     A file that nobody closes is left after 5 s. Two rotations while a reader is held up (its client takes nothing)
//     are one too many: it goes on with the newest file.
//   - Following polls (20 ms after activity, up to 500 ms at rest). An inotify instance for each reader would
//     meet the limit of 128 instances a user has by default, long before anything else ends.
//   - What is no regular file in the place of the log is an error at once, and so is a link in the place of the file or of the
//     two directories above it: a pod that has /var/log as a volume could make it lead to another pod's log. (A runtime that
//     makes its logs links, as the one for Docker does, does not write this format either.)
//   - A line that is not in the format is skipped; a file that has no line in the format is an error.
package crilog
