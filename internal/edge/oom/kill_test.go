package oom

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	group = "/kubepods/burstable/pod8c1c5c2e-0000-4000-8000-000000000001/4f5e"
	// The lines of a kill, as Linux 6.1 writes them.
	limitOf = "6,900,1000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=4f5e,mems_allowed=0,oom_memcg=" + group + ",task_memcg=" + group + ",task=tail,pid=4242,uid=0\n"
	limit   = "3,901,1001,-;Memory cgroup out of memory: Killed process 4242 (tail) total-vm:70000kB, anon-rss:66000kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:180kB oom_score_adj:985\n"
	system  = "3,902,1002,-;Out of memory: Killed process 77 (stress-ng) total-vm:9000000kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:1000\n"
)

func TestKills(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  []Kill
	}{
		{"a container reaches its limit", []string{limitOf, limit}, []Kill{{PID: 4242, Name: "tail", Group: group}}},
		{"many kills within seconds: the kernel leaves the control groups out", []string{limitOf, limit, strings.ReplaceAll(limit, "4242", "4243")},
			[]Kill{{PID: 4242, Name: "tail", Group: group}, {PID: 4243, Name: "tail"}}},
		{"another process gets the PID", []string{limitOf, limit, limit}, []Kill{{PID: 4242, Name: "tail", Group: group}, {PID: 4242, Name: "tail"}}},
		{"the machine has no memory left", []string{system}, []Kill{{System: true, PID: 77, Name: "stress-ng"}}},
		{"an older kernel", []string{"3,1,1,-;Killed process 9 (a) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB\n"}, []Kill{{PID: 9, Name: "a"}}},
		{"a program writes the same to /dev/kmsg", []string{"12" + limitOf[1:], "11" + limit[1:], "11" + system[1:]}, nil},
		{"a process is named like the line", []string{"3,1,1,-;Out of memory: Killed process 5 (x) total-vm:(1) total-vm:1kB\n"}, []Kill{{System: true, PID: 5, Name: "x) total-vm:(1"}}},
		{"a process is named like the fields", []string{strings.Replace(limitOf, "task=tail", "task=,pid=1,task=x", 1), limit}, []Kill{{PID: 4242, Name: "tail", Group: group}}},
		{"a process is named like the words of a kill", []string{"6,1,1,-;Killed process  invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0\n"}, nil},
		{"a name in another line has the words of a kill", []string{"3,1,1,-;usb 1-1: Product: Killed process 1 (init) total-vm:1kB\n"}, nil},
		{"other lines", []string{"6,1,1,-;tail invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985\n", "6,1,1,-;eth0: link up\n"}, nil},
		{"no record", []string{"", ";", "x,1;Killed process 1 (a) total-vm:", "3;Out of memory: Killed process -1 (a) total-vm:1kB"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var (
				p   parser
				got []Kill
			)
			for _, l := range tt.lines {
				if k, ok := p.line(l); ok {
					got = append(got, k)
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("kills %+v, want %+v", got, tt.want)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("kill %+v, want %+v", got[i], tt.want[i])
				}
			}
		})
	}
}

func FuzzKills(f *testing.F) {
	for _, s := range []string{limitOf, limit, system, limitOf + "\x00" + limit} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p parser
		for line := range strings.SplitSeq(text, "\x00") {
			k, ok := p.line(line)
			if ok && (k.PID <= 0 || len(k.Name) > nameMost || !utf8.ValidString(k.Name) || len(k.Group) > groupMost) {
				t.Errorf("%q: %+v", line, k)
			}
		}
	})
}
