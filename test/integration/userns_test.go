package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const inUserns = `
hostUsers: false
securityContext: {fsGroup: 2000}
volumes:
- {name: scratch, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory}}
- {name: settings, configMap: {name: settings}}
- {name: secrets, secret: {secretName: secrets, defaultMode: 0400}}
containers:
- name: root
  image: $busybox
  command: [sh, -c, 'while [ ! -e /scratch/end ]; do sleep 0.2; done; sleep 3; rm /scratch/end'] # the exec that asks for the end has time to end itself
  volumeMounts: &mounts
  - {name: scratch, mountPath: /scratch}
  - {name: memory, mountPath: /memory}
  - {name: settings, mountPath: /settings}
  - {name: settings, mountPath: /sub, subPath: key}
  - {name: secrets, mountPath: /secrets}
- name: user
  image: $busybox
  securityContext: {runAsUser: 1000, runAsGroup: 1000}
  command: [sleep, "100000"]
  volumeMounts: *mounts`

// With `hostUsers: false` ("a new userns is created for the pod") each pod has 65536 user IDs of its own, its root is an unprivileged user
// on the host, and its volumes look the same as without a user namespace.
func TestUserNamespace(t *testing.T) {
	s := newSpace(t)
	s.kubectl("create", "configmap", "settings", "--from-literal=key=value")
	s.kubectl("create", "secret", "generic", "secrets", "--from-literal=password=hunter2")
	s.pod("one", inUserns)
	if s.env.flavor == debian {
		s.contains("what is reported about a runtime without them", s.event("one", "FailedCreatePodSandBox").Message, "runtime does not support user namespaces")
		return
	}
	s.pod("two", inUserns)
	ranges := map[string]string{}
	for _, name := range []string{"one", "two"} {
		p := s.ready(name)
		fields := strings.Fields(s.sh(name, "cat /proc/self/uid_map"))
		if len(fields) != 3 || fields[0] != "0" || fields[1] == "0" || fields[2] != "65536" {
			t.Fatalf("uid_map of %s is %v", name, fields)
		}
		if other := ranges[fields[1]]; other != "" {
			t.Errorf("%s and %s have the same range %s", name, other, fields[1])
		}
		ranges[fields[1]] = name
		s.same("gid_map", strings.Join(strings.Fields(s.sh(name, "cat /proc/self/gid_map")), " "), strings.Join(fields, " "))
		dir := filepath.Join(s.env.node.dir, "root", "pods", string(p.UID))
		s.contains("the kept range", readFile(s, filepath.Join(dir, "userns")), `"hostId":`+fields[1])

		s.same("as root", s.sh(name, `id -u; cat /settings/key /sub /secrets/password; echo; echo mine > /scratch/file; echo mine > /memory/file; stat -c %u:%g /scratch /scratch/file /settings/key /secrets/password /etc/hosts; grep -c `+name+` /etc/hosts`),
			"0\nvaluevaluehunter2\n0:2000\n0:2000\n0:0\n0:2000\n0:0\n1\n")
		s.same("as user 1000", s.kubectl("exec", name, "-c", "user", "--", "sh", "-c", `id -u; cat /settings/key /sub /secrets/password; echo; echo his > /scratch/his; echo his > /memory/his; stat -c %u:%g /scratch/his /memory/his`),
			"1000\nvaluevaluehunter2\n1000:2000\n1000:2000\n")
		if info, err := os.Stat(filepath.Join(dir, "volumes", "kubernetes.io~empty-dir", "scratch", "his")); err != nil || owner(info) != 1000 {
			t.Errorf("on the node the user's file belongs to %d, %v; mounts are ID-mapped, so it is 1000", owner(info), err)
		}
	}
	// On the node, the processes of the pods run with user IDs of these ranges.
	for host, name := range ranges {
		out, err := s.env.node.crictl("inspect", "-o", "go-template", "--template", "{{.info.pid}}", containerID(s.get(name), "root"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join("/proc", strings.TrimSpace(out)))
		if err != nil || fmt.Sprint(owner(info)) != host {
			t.Errorf("root of pod %s is user %d on the node, %v, want %s", name, owner(info), err, host)
		}
	}
	// A restarted container is in the same user namespace as before.
	before := s.sh("one", "cat /proc/self/uid_map; readlink /proc/self/ns/user")
	_, _, _ = s.try("exec", "one", "--", "touch", "/scratch/end") // the command may be cut off when the container ends
	s.until("one", "restarted", func(p *v1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == "root" {
				return c.RestartCount == 1 && c.State.Running != nil
			}
		}
		return false
	})
	s.same("the namespace after a restart", s.sh("one", "cat /proc/self/uid_map; readlink /proc/self/ns/user"), before)
}

func containerID(p *v1.Pod, name string) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == name {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			return id
		}
	}
	return ""
}

func owner(info os.FileInfo) int {
	if info == nil {
		return -1
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}
