package integration

import (
	"bufio"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// kubectl logs works with each of its flags.
func TestLogs(t *testing.T) {
	s := newSpace(t)
	s.pod("talker", `
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'for i in 1 2 3 4 5 6; do echo line $i; done; while [ ! -e /go ]; do sleep 0.2; done; echo the end']
- name: other
  image: $busybox
  command: [sh, -c, 'echo from the other >&2']`)
	s.eventually("first lines", func() error {
		out, errOut, err := s.try("logs", "talker", "-c", "main")
		if err != nil || !strings.Contains(out, "line 6") {
			return errorf("log is %q, %v %s", out, err, errOut)
		}
		return nil
	})
	s.logged("talker", "from the other\n", "-c", "other")
	all := "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n"
	s.same("logs", s.logs("talker", "-c", "main"), all)
	s.same("--tail", s.logs("talker", "-c", "main", "--tail=2"), "line 5\nline 6\n")
	s.same("--tail=0", s.logs("talker", "-c", "main", "--tail=0"), "")
	s.same("--limit-bytes", s.logs("talker", "-c", "main", "--limit-bytes=9"), "line 1\nli")
	s.same("--since, all", s.logs("talker", "-c", "main", "--since=1h"), all)
	s.same("--since-time, future", s.logs("talker", "-c", "main", "--since-time="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), "")
	stamped := s.logs("talker", "-c", "main", "--timestamps")
	if !regexp.MustCompile(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z line 1\n`).MatchString(stamped) {
		t.Errorf("--timestamps: %q", stamped)
	}
	s.contains("--all-containers --prefix", s.logs("talker", "--all-containers", "--prefix"), "[pod/talker/main] line 1", "[pod/talker/other] from the other")
	if _, errOut, err := s.try("logs", "talker", "-c", "main", "--previous"); err == nil || !strings.Contains(errOut, "previous terminated container \"main\" in pod \"talker\" not found") {
		t.Errorf("--previous of a container that never restarted: %v %s", err, errOut)
	}
	if _, errOut, err := s.try("logs", "talker", "-c", "nobody"); err == nil || !strings.Contains(errOut, "container nobody is not valid for pod talker") {
		t.Errorf("logs of no container: %v %s", err, errOut)
	}

	follow := s.command("logs", "-f", "talker", "-c", "main")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
		if lines.Text() == "line 6" { // the container waits after this line until the file /go exists
			s.kubectl("exec", "talker", "-c", "main", "--", "touch", "/go")
		}
	}
	if err := follow.Wait(); err != nil { // kubectl logs -f ends when the container ends
		t.Errorf("logs -f: %v", err)
	}
	s.same("logs -f", strings.Join(got, "\n")+"\n", all+"the end\n")
	s.ended("talker", v1.PodSucceeded)
	s.same("logs of an ended pod", s.logs("talker", "-c", "main", "--tail=1"), "the end\n")
}

// kubectl logs --previous shows the log of the container's previous instance.
func TestLogsPrevious(t *testing.T) {
	s := newSpace(t)
	s.pod("twice", `
volumes: [{name: v, emptyDir: {}}]
containers:
- name: main
  image: $busybox
  volumeMounts: [{name: v, mountPath: /v}]
  command: [sh, -c, 'if [ -e /v/once ]; then echo second; sleep 1000; fi; touch /v/once; echo first; exit 3']`)
	p := s.until("twice", "restarted and Ready", func(p *v1.Pod) bool { return isTrue(p, v1.PodReady) && p.Status.ContainerStatuses[0].RestartCount == 1 })
	s.logged("twice", "second\n")
	s.same("logs --previous", s.logs("twice", "--previous"), "first\n")
	last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated
	if last == nil || last.ExitCode != 3 || last.Reason != "Error" || last.FinishedAt.IsZero() || last.StartedAt.IsZero() || last.ContainerID == p.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("lastState is %+v", p.Status.ContainerStatuses[0].LastTerminationState)
	}
	s.contains("get pod", s.kubectl("get", "pod", "twice"), "1 (")
}
