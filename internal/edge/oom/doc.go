// Package oom reads from the kernel's log which processes the kernel killed because memory ran out.
//
// Contract: a kill is recognized by two lines, which the kernel writes itself (mm/oom_kill.c). The line "oom-kill:" names the control
// group of the process; the kernel leaves this line out when it kills many processes within seconds. The line "Killed process" comes
// with every kill. Lines that programs write to /dev/kmsg are ignored; the package recognizes these lines by their facility (the log's
// number for the sender), because no program can use the facility of the kernel. A process chooses its own name, so the package finds
// the name between fixed words, shortens it, and uses it only in texts.
//
// Kills before Run are not reported, nor are kills whose lines the kernel has overwritten before Run could read them.
package oom
