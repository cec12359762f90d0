// Package oom reads from the kernel's log which processes the kernel killed because memory ran out.
//
// Contract: a kill is known from two lines, which both are the kernel's own words (mm/oom_kill.c). The line "oom-kill:" names the
// control group of the process; the kernel leaves it out when many are killed within seconds. The line "Killed process" comes
// with every kill. Only lines of the kernel count: who writes to /dev/kmsg cannot take the kernel's facility. The name of a process is its
// own choice, so it is taken from between fixed words, shortened, and used in texts only.
//
// Kills before Run are not told, and neither are those whose lines the kernel has overwritten before they were read.
package oom
