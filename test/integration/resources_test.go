package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// cgroupFile reads a file of a pod's cgroup or, if container is an ID, of that container's cgroup.
func (s *space) cgroupFile(p *v1.Pod, container, controller, file string) string {
	s.Helper()
	class := map[v1.PodQOSClass]string{v1.PodQOSBurstable: "burstable", v1.PodQOSBestEffort: "besteffort"}[p.Status.QOSClass]
	n := s.env.node
	if s.node != nil {
		n = s.node
	}
	path := []string{cgroupFS, controller, n.cgroup, "kubepods", class, "pod" + string(p.UID)}
	if unified() {
		path[1] = ""
	}
	if container != "" {
		path = append(path, strings.TrimPrefix(container, "containerd://"))
	}
	data, err := os.ReadFile(filepath.Join(append(path, file)...))
	if err != nil {
		s.Error(err)
	}
	return strings.TrimSpace(string(data))
}

// The cgroup files of a pod show its requests and limits, depending on its QoS class.
func TestCgroups(t *testing.T) {
	s := newSpace(t)
	s.pod("guaranteed", `
containers:
- {name: a, image: $busybox, command: [sleep, "1000"], resources: {limits: {cpu: 50m, memory: 32Mi}}}
- {name: b, image: $busybox, command: [sleep, "1000"], resources: {limits: {cpu: 50m, memory: 16Mi}}}`)
	s.pod("burstable", `
containers:
- {name: a, image: $busybox, command: [sleep, "1000"], resources: {requests: {cpu: 40m, memory: 8Mi}, limits: {cpu: 200m, memory: 64Mi}}}
- {name: b, image: $busybox, command: [sleep, "1000"], resources: {requests: {cpu: 20m}}}`)
	s.pod("besteffort", `containers: [{name: a, image: $busybox, command: [sleep, "1000"]}]`)

	type want struct{ pod, container, controller, file1, want1, file2, want2 string }
	const unlimited = "9223372036854771712"
	cases := []want{
		{"guaranteed", "", "cpu", "cpu.shares", "102", "", ""},
		{"guaranteed", "", "cpu", "cpu.cfs_quota_us", "10000", "cpu.max", "10000 100000"},
		{"guaranteed", "", "memory", "memory.limit_in_bytes", "50331648", "memory.max", "50331648"},
		{"guaranteed", "", "pids", "pids.max", "300", "pids.max", "300"},
		{"guaranteed", "a", "cpu", "cpu.shares", "51", "", ""},
		{"guaranteed", "a", "cpu", "cpu.cfs_quota_us", "5000", "cpu.max", "5000 100000"},
		{"guaranteed", "b", "memory", "memory.limit_in_bytes", "16777216", "memory.max", "16777216"},
		{"burstable", "", "cpu", "cpu.shares", "61", "", ""},
		{"burstable", "", "cpu", "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000"},
		{"burstable", "", "memory", "memory.limit_in_bytes", unlimited, "memory.max", "max"},
		{"burstable", "a", "cpu", "cpu.shares", "40", "", ""},
		{"burstable", "a", "cpu", "cpu.cfs_quota_us", "20000", "cpu.max", "20000 100000"},
		{"burstable", "a", "memory", "memory.limit_in_bytes", "67108864", "memory.max", "67108864"},
		{"burstable", "b", "cpu", "cpu.cfs_quota_us", "-1", "cpu.max", "max 100000"},
		{"besteffort", "", "cpu", "cpu.shares", "2", "cpu.weight", "1"},
		{"besteffort", "", "pids", "pids.max", "300", "pids.max", "300"},
		{"besteffort", "a", "cpu", "cpu.shares", "2", "cpu.weight", "1"},
		{"besteffort", "a", "memory", "memory.limit_in_bytes", unlimited, "memory.max", "max"},
	}
	for _, name := range []string{"guaranteed", "burstable", "besteffort"} {
		p := s.ready(name)
		if got := strings.ToLower(string(p.Status.QOSClass)); got != name {
			t.Errorf("class of %s is %s", name, got)
		}
		ids := map[string]string{}
		for _, c := range p.Status.ContainerStatuses {
			ids[c.Name] = c.ContainerID
		}
		for _, c := range cases {
			file, value := c.file1, c.want1
			if unified() {
				file, value = c.file2, c.want2
			}
			if c.pod != name || file == "" {
				continue
			}
			s.same(name+" "+c.container+" "+file, s.cgroupFile(p, ids[c.container], c.controller, file), value)
		}
	}
	// oom_score_adj depends on the QoS class: -997 for Guaranteed, 1000 for BestEffort, and for Burstable a value between them that depends
	// on the memory request.
	s.same("oom_score_adj of BestEffort", s.kubectl("exec", "besteffort", "--", "cat", "/proc/1/oom_score_adj"), "1000\n")
}

// A container that exceeds its memory limit has the reason OOMKilled, and restarts if its restartPolicy says so. If the kernel kills a
// process that is not the container's first one, an event says so.
func TestOOMKilled(t *testing.T) {
	s := newSpace(t)
	s.pod("glutton", `
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'tail /dev/zero']
  resources: {limits: {memory: 16Mi}}`)
	s.pod("again", `
containers:
- {name: main, image: $busybox, command: [sh, -c, 'tail /dev/zero'], resources: {limits: {memory: 16Mi}}}`)
	p := s.ended("glutton", v1.PodFailed)
	end := p.Status.ContainerStatuses[0].State.Terminated
	if end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("terminated %+v", end)
	}
	s.contains("get pod", s.kubectl("get", "pod", "glutton"), "OOMKilled")
	s.until("again", "OOMKilled and restarted", func(p *v1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount > 0 && c[0].LastTerminationState.Terminated != nil && c[0].LastTerminationState.Terminated.Reason == "OOMKilled"
	})
	s.pod("parent", `
containers:
- {name: main, image: $busybox, command: [sh, -c, 'tail /dev/zero; sleep 1000000'], resources: {limits: {memory: 16Mi}}}`)
	s.ready("parent")
	s.event("parent", "OOMKilling", "process tail", "of container main: its container or pod reached its memory limit")
	s.same("restarts", s.kubectl("get", "pod", "parent", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"), "0")
	for _, name := range []string{"glutton", "again", "parent"} {
		s.eventually("the metric container_oom_events_total of "+name, func() error {
			all := s.kubectl("get", "--raw", "/api/v1/nodes/"+s.env.node.Name+"/proxy/metrics/cadvisor")
			for _, line := range strings.Split(all, "\n") {
				if strings.HasPrefix(line, "container_oom_events_total{") && containsAll(line, []string{`container="main"`, `namespace="` + s.name + `"`, `pod="` + name + `"`}) && !strings.HasSuffix(line, " 0") {
					return nil
				}
			}
			return errorf("no sample is above 0")
		})
	}
}
