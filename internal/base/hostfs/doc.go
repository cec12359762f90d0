// Package hostfs is the Linux host behind small interfaces: mounts, opening and deleting without being led astray,
// disk usage, and the facts of the machine.
//
// Contract: no state, no goroutine, no logging; every call is one or a few system calls and may be made
// concurrently. A Host is a value; packages that need a part of it declare that part as an interface of theirs.
//
// Invariants:
//  1. No call follows a symbolic link that a container could have planted: paths below a volume are resolved by
//     openat2(RESOLVE_BENEATH), or component by component where the kernel lacks it.
//  2. RemoveTree never deletes what is mounted below the tree: it enters no directory of another mount (bind mounts
//     of the same file system included) and says which mount stands in the way.
//  3. RemoveTree and DiskUsage hold at most a dozen descriptors, and 64 bytes for each level of the tree: a container may
//     make trees as deep and as wide as its disk allows. What could not be read is an error, never an empty directory.
//  4. Unmount never follows a link and never fails because something is in use: a busy mount is detached.
//  5. A file that a container may have put where it is, is opened by OpenUntrusted and its like, by an UntrustedDir or
//     an UntrustedFS alone: no link is
//     followed, nothing is waited for, only regular files are opened, and reads have a bound. The places are hosts files,
//     termination messages, container logs, /var/log and volumes. internal/proof/archtest forbids other ways to open files, except
//     where it names them with a reason.
package hostfs
