package oom

import (
	"strconv"
	"strings"
)

// Kill is a process that the kernel killed.
type Kill struct {
	// System is true if the machine ran out of memory, and false if a control group reached its limit.
	System bool
	PID    int
	// Name is the name that the process has given itself, at most nameMost bytes of valid UTF-8.
	Name string
	// Group is the path of its memory control group, such as /kubepods/besteffort/pod<uid>/<container>. "": the kernel did not
	// write it. A container chooses the names of groups below its own.
	Group string
}

const (
	nameMost  = 64      // the kernel keeps 15 bytes of a name, and escapes them to at most 60
	groupMost = 4 << 10 // PATH_MAX
)

// parser finds kills in lines of the kernel's log. It must get the lines in their original order. The zero value is ready.
type parser struct {
	pid   int // the PID in the last line that named a control group
	group string
}

// line parses one record of /dev/kmsg. It returns false if the record reports no kill.
func (p *parser) line(record string) (Kill, bool) {
	text, ok := kernelText(record)
	if !ok {
		return Kill{}, false
	}
	if facts, ok := strings.CutPrefix(text, "oom-kill:"); ok {
		p.pid, p.group = victim(facts)
		return Kill{}, false
	}
	k, ok := killed(text)
	if ok && k.PID == p.pid {
		k.Group = p.group
		p.pid, p.group = 0, "" // forget the PID, because the kernel may give it to another process
	}
	return k, ok
}

// kernelText returns the text of a record of /dev/kmsg, "priority,sequence,time,flags;text" followed by lines of details. It
// returns false for a record that a program wrote: priority is 8 times the facility plus the level, and only the kernel has the
// facility 0.
func kernelText(record string) (string, bool) {
	head, text, ok := strings.Cut(record, ";")
	if !ok {
		return "", false
	}
	number, _, _ := strings.Cut(head, ",")
	if priority, err := strconv.ParseUint(number, 10, 32); err != nil || priority >= 8 {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n")
	return text, true
}

// victim returns the process and its control group from the text after "oom-kill:", which is
// "constraint=...,task_memcg=PATH,task=NAME,pid=PID,uid=UID". The path and the name cannot forge the PID, because the last pid=
// in the text counts.
func victim(facts string) (pid int, group string) {
	_, rest, ok := strings.Cut(facts, ",task_memcg=")
	at := strings.LastIndex(rest, ",pid=")
	if !ok || at < 0 {
		return 0, ""
	}
	number, _, _ := strings.Cut(rest[at+len(",pid="):], ",")
	pid, err := strconv.Atoi(number)
	end := strings.Index(rest, ",task=")
	if err != nil || pid <= 0 || end < 0 || end > groupMost || !strings.HasPrefix(rest, "/") {
		return 0, ""
	}
	return pid, strings.Clone(rest[:end])
}

// causes maps each text that the kernel writes before "Killed process" to whether the machine ran out of memory. After any other
// text, "Killed process" is part of a name that somebody chose.
var causes = map[string]bool{
	"Out of memory: ": true,
	"Out of memory (oom_kill_allocating_task): ": true,
	"Memory cgroup out of memory: ":              false,
	"":                                           false, // Linux before 5.2 does not say whether the machine ran out of memory
}

// killed parses "Out of memory: Killed process PID (NAME) total-vm:..." and the similar text about a control group.
func killed(text string) (Kill, bool) {
	why, rest, ok := strings.Cut(text, "Killed process ")
	system, known := causes[why]
	if !ok || !known {
		return Kill{}, false
	}
	number, rest, _ := strings.Cut(rest, " (")
	end := strings.LastIndex(rest, ") total-vm:")
	if end < 0 {
		end = strings.LastIndex(rest, "), ")
	}
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 || end < 0 {
		return Kill{}, false
	}
	name := strings.ToValidUTF8(rest[:min(end, nameMost)], "")
	return Kill{System: system, PID: pid, Name: strings.Clone(name)}, true
}
