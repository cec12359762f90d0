// Package vm runs one virtual machine under QEMU: it builds an image of Debian, boots it, runs commands in it, copies files, cuts its
// power, and attaches disks.
//
// Contract: everything of a Machine lies in its directory and in one process. That process outlives the caller, and a Machine
// made anew with the same Config finds it again by its pid file. The guest runs no code of ours: commands and files go through
// Debian's qemu-guest-agent over a virtual serial port, so they need no network.
//
// Every wait has a bound. Bounds are of running time (see Patient): a machine that stands still, as a build machine may, does not
// use them up.
package vm
