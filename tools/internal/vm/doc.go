// Package vm runs one virtual machine under QEMU: it builds an image of Debian, boots it, runs commands in it, copies files, cuts its
// power, and attaches disks.
//
// Contract: a Machine consists of its directory and one process. The process outlives the caller, and a new Machine with the same
// Config finds it by its pid file. The guest runs no code of ours: commands and files go through Debian's qemu-guest-agent over a
// virtual serial port, so they need no network.
//
// Every wait has a bound. Bounds count running time (see Patient), so they do not expire while a build machine is frozen.
package vm
