// Package oom reads from the kernel's log which processes the kernel killed because memory ran out.
//
// Contract: a kill is recognized by two lines, which the kernel writes itself (mm/oom_kill.c). The line "oom-kill:" names the
// control group of the process; the kernel leaves it out when many are killed within seconds. The line "Killed process" comes
// with every kill. Only lines of the kernel count: a program that writes to /dev/kmsg cannot use the kernel's facility. A process
// chooses its own name, so the name is found between fixed words, shortened, and used only in texts.
//
// Kills before Run are not reported, nor are kills whose lines the kernel has overwritten before Run could read them.
package oom
