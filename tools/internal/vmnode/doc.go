// Package vmnode makes a virtual machine a node: Debian with systemd and cgroup v2, the pinned containerd, and Wherry installed from its
// Debian packages, joined to a development control plane.
//
// Contract: the control plane and the emulator are in a network namespace of their own, in which the guest is at the other end of a tap
// device; neither meets what else runs on this machine. Everything lies below Options.Dir (CHECKOUT/.wherry/vm), but for the image, which
// is kept in a cache. Up is idempotent; Down ends everything by what lies on disk, may be repeated, and keeps the logs of the
// last run in CHECKOUT/.wherry/logs.
package vmnode
