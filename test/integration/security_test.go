package integration

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The fields of a container's securityContext take effect: user, groups, capabilities, root filesystem, seccomp, privileged.
func TestSecurityContext(t *testing.T) {
	s := newSpace(t)
	s.pod("secure", `
securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
volumes: [{name: tmp, emptyDir: {}}]
containers:
- name: user
  image: $busybox
  command: [sleep, "1000"]
  securityContext: {runAsUser: 1000, runAsGroup: 3000, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  volumeMounts: [{name: tmp, mountPath: /tmp}]
- name: image
  image: registry.k8s.io/wherry/busybox:user
  command: [sleep, "1000"]
- name: caps
  image: $busybox
  command: [sleep, "1000"]
  securityContext: {runAsNonRoot: false, runAsUser: 0, capabilities: {add: [NET_ADMIN], drop: [CHOWN]}, seccompProfile: {type: Unconfined}}
- name: privileged
  image: $busybox
  command: [sleep, "1000"]
  securityContext: {runAsNonRoot: false, privileged: true}`)
	s.ready("secure")
	in := func(container, script string) string {
		return s.kubectl("exec", "secure", "-c", container, "--", "sh", "-c", script)
	}
	s.same("user", in("user", "id -u; id -g; touch /x 2>&1; touch /tmp/x && echo ok"), "1000\n3000\ntouch: /x: Read-only file system\nok\n")
	status := in("user", "cat /proc/self/status")
	s.contains("user's status", status, "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
	s.same("user of the image", in("image", "id -u"), "1000\n")
	status = in("caps", "grep -E 'CapEff|Seccomp:|NoNewPrivs' /proc/self/status")
	s.contains("caps' status", status, "CapEff:\t00000000a80435fa", "NoNewPrivs:\t0", "Seccomp:\t0")
	host, err := os.ReadDir("/dev")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(in("privileged", "ls /dev"))); n < len(host)/2 {
		t.Errorf("a privileged container sees %d of %d devices", n, len(host))
	}
	s.contains("privileged status", in("privileged", "cat /proc/self/status"), "Seccomp:\t0")
}

// If a pod does not set command, args and workingDir, the values of the image apply.
func TestImageDefaults(t *testing.T) {
	s := newSpace(t)
	s.pod("defaults", `
restartPolicy: Never
containers:
- {name: dir, image: "registry.k8s.io/wherry/busybox:volume", command: [pwd]}
- {name: other, image: "registry.k8s.io/wherry/busybox:volume", command: [pwd], workingDir: /etc}
- {name: named, image: "registry.k8s.io/wherry/busybox:named", command: [id]}`)
	s.ended("defaults", v1.PodSucceeded)
	s.same("WORKDIR", s.logs("defaults", "-c", "dir"), "/work\n")
	s.same("workingDir", s.logs("defaults", "-c", "other"), "/etc\n")
	s.contains("USER by name", s.logs("defaults", "-c", "named"), "uid=1001(alice) gid=1001")
}
