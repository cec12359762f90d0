// Package hostfs acts on the Linux host: it mounts, opens and deletes files safely beside hostile containers, measures disk usage, and
// reads the facts of the machine.
//
// Contract: no state, no goroutine, no logging. Every call is one or a few system calls and may be made concurrently. A Host is a value;
// packages that need a part of it declare that part as an interface of their own.
//
// Invariants:
//  1. No call follows a symbolic link that a container could have planted: openat2(RESOLVE_BENEATH) resolves paths
//     below a volume, or hostfs resolves them component by component if the kernel lacks it.
//  2. RemoveTree never deletes through a mount below the tree: it enters no directory of another mount (bind mounts of
//     the same file system included), and its error names the mount.
//  3. RemoveTree and DiskUsage use at most a dozen descriptors, and 64 bytes for each level of the tree, because a
//     container may make trees as deep and as wide as its disk allows. If a directory cannot be read, they return an
//     error; they never treat it as empty.
//  4. Unmount never follows a link and never fails because something is in use: it detaches a busy mount.
//  5. A file that a container may have created or replaced is opened only with OpenUntrusted and similar functions, an
//     UntrustedDir or an UntrustedFS. These follow no link, never block, open only regular files, and bound how much
//     they read. Such files are hosts files, termination messages, container logs, and everything below /var/log and
//     below volumes. internal/proof/archtest forbids other ways to open files, except in places that it lists with a reason.
package hostfs
