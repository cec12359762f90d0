// Package vmnode makes a virtual machine a node: Debian with systemd and cgroup v2, the pinned containerd, and Wherry installed from its
// Debian packages, joined to a development control plane.
//
// Contract: the control plane and QEMU run in a network namespace of their own, to which a tap device connects the guest, so they do not
// affect other programs on this machine. All files are below Options.Dir (CHECKOUT/.wherry/vm), except the image, which is in a cache. Up
// may be repeated. Down ends everything, needs only the files on disk, may be repeated, and keeps the logs of the last run in
// CHECKOUT/.wherry/logs.
package vmnode
