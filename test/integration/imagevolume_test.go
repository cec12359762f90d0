package integration

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// "An image volume source represents an OCI object (a container image or artifact) which is available on the kubelet's host
// machine". The volume is read-only, shows the whole image or a subPath, and is pulled in the same way as the image of a container.
func TestImageVolume(t *testing.T) {
	s := newSpace(t)
	s.pod("mounts", `
volumes:
- {name: tools, image: {reference: $busybox, pullPolicy: IfNotPresent}}
containers:
- name: main
  image: $busybox
  command: [sleep, "100000"]
  volumeMounts:
  - {name: tools, mountPath: /whole}
  - {name: tools, mountPath: /part, subPath: bin}`)
	if s.env.flavor == debian {
		s.contains("what is reported about a runtime without them", s.event("mounts", "Failed").Message, "cannot mount images: use containerd 2.1")
		return
	}
	s.pod("mapped", `
hostUsers: false
volumes:
- {name: tools, image: {reference: $busybox, pullPolicy: Never}}
containers:
- {name: main, image: $busybox, command: [sleep, "100000"], volumeMounts: [{name: tools, mountPath: /whole}]}`)
	s.pod("never", `
volumes:
- {name: data, image: {reference: "registry.invalid/data:1", pullPolicy: Never}}
containers:
- {name: main, image: $busybox, command: [sleep, "100000"], volumeMounts: [{name: data, mountPath: /data}]}`)
	s.pod("nowhere", `
volumes:
- {name: data, image: {reference: "registry.invalid/data:1"}}
containers:
- {name: main, image: $busybox, command: [sleep, "100000"], volumeMounts: [{name: data, mountPath: /data}]}`)
	s.pod("notthere", `
volumes:
- {name: tools, image: {reference: $busybox, pullPolicy: IfNotPresent}}
containers:
- {name: main, image: $busybox, command: [sleep, "100000"], volumeMounts: [{name: tools, mountPath: /part, subPath: no/such}]}`)
	s.ready("mounts")
	s.contains("the whole image", s.sh("mounts", "ls /whole /whole/bin"), "etc", "sh")
	s.contains("a subPath", s.sh("mounts", "ls /part"), "sh")
	if out, errOut, err := s.try("exec", "mounts", "--", "touch", "/whole/x"); err == nil || !strings.Contains(errOut, "Read-only file system") {
		t.Errorf("write to an image volume: %q %q %v", out, errOut, err)
	}
	s.ready("mapped")
	s.same("owner in a user namespace", s.sh("mapped", "stat -c %u:%g /whole/bin"), "0:0\n")
	waiting := func(name, reason, message string) {
		t.Helper()
		s.until(name, "waiting with "+reason, func(p *v1.Pod) bool {
			for _, c := range p.Status.ContainerStatuses {
				if w := c.State.Waiting; w != nil && w.Reason == reason && strings.Contains(w.Message, message) {
					return true
				}
			}
			return false
		})
	}
	waiting("never", "ErrImageNeverPull", `volume "data": Container image "registry.invalid/data:1" is not present with pull policy of Never`)
	// The status shows the failed pull for only a second, so the test checks the message of the back-off, which contains the failure.
	waiting("nowhere", "ImagePullBackOff", `Back-off pulling image "registry.invalid/data:1": ErrImagePull: volume "data": `)
	s.event("nowhere", "Pulling")
	waiting("notthere", "CreateContainerError", "no/such")
}
