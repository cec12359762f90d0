// Package vm runs one virtual machine under QEMU: it builds an image of Debian, boots it, runs commands in it, copies files, cuts its
// power, and attaches disks.
//
// Contract: a Machine consists of its directory and one QEMU process. The process outlives the caller; a new Machine with the same Config
// finds it by its pid file. The guest runs no code of this project: commands and files go through Debian's qemu-guest-agent over a virtual
// serial port, so they need no network.
//
// Every wait has a time limit. The limits count the time for which the caller really ran (see Patient), so they do not expire while a build
// machine is frozen.
package vm
