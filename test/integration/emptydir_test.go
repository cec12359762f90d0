package integration

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod whose emptyDir has grown beyond its sizeLimit is evicted.
func TestEmptyDirSizeLimit(t *testing.T) {
	s := newSpace(t)
	s.pod("grows", `
volumes: [{name: cache, emptyDir: {sizeLimit: 1Mi}}, {name: free, emptyDir: {}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'head -c 3000000 /dev/zero > /cache/file; sleep 100000']
  volumeMounts: [{name: cache, mountPath: /cache}, {name: free, mountPath: /free}]`)
	s.pod("fits", `
volumes: [{name: cache, emptyDir: {sizeLimit: 8Mi}}]
containers:
- {name: main, image: $busybox, command: [sh, -c, 'head -c 3000000 /dev/zero > /cache/file; sleep 100000'], volumeMounts: [{name: cache, mountPath: /cache}]}`)
	s.ready("fits")
	p := s.ended("grows", v1.PodFailed)
	if want := `Usage of EmptyDir volume "cache" exceeds the limit "1Mi". `; p.Status.Reason != "Evicted" || p.Status.Message != want {
		t.Errorf("status is %s %q, want Evicted %q", p.Status.Reason, p.Status.Message, want)
	}
	s.event("grows", "Evicted")
	if !isTrue(s.get("fits"), v1.PodReady) {
		t.Error("the pod within its limit was touched")
	}
}

// A pod is evicted if a container has written more than its limit of ephemeral storage. The container's logs count, too.
func TestEphemeralStorageLimit(t *testing.T) {
	s := newSpace(t)
	s.pod("grows", `
containers:
- {name: main, image: $busybox, command: [sh, -c, 'head -c 3000000 /dev/zero > /file; sleep 100000'], resources: {limits: {ephemeral-storage: 1Mi}}}
- {name: other, image: $busybox, command: [sleep, "100000"], resources: {limits: {ephemeral-storage: 8Mi}}}`)
	s.pod("fits", `
containers:
- {name: main, image: $busybox, command: [sh, -c, 'head -c 3000000 /dev/zero > /file; sleep 100000'], resources: {limits: {ephemeral-storage: 8Mi}}}`)
	s.ready("fits")
	p := s.ended("grows", v1.PodFailed)
	if want := `Container main exceeded its local ephemeral storage limit "1Mi". `; p.Status.Reason != "Evicted" || p.Status.Message != want {
		t.Errorf("status is %s %q, want Evicted %q", p.Status.Reason, p.Status.Message, want)
	}
	if !isTrue(s.get("fits"), v1.PodReady) {
		t.Error("the pod within its limit was touched")
	}
}
