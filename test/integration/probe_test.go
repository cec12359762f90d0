package integration

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// When a pod becomes unready, it leaves the endpoints of its Service. When it is ready again, it comes back.
func TestReadiness(t *testing.T) {
	s := newSpace(t)
	s.apply("apiVersion: v1\nkind: Service\nmetadata: {name: svc}\nspec: {selector: {app: served}, ports: [{port: 80, targetPort: 8080}]}")
	s.pod("served", `
containers:
- name: main
  image: $web
  readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 1}`)
	p := s.ready("served")
	s.eventually("endpoint", func() error { return s.endpoints("svc", 1) })
	s.post("http://" + p.Status.PodIP + ":8080/healthz?ok=false")
	s.eventually("the endpoint to leave", func() error { return s.endpoints("svc", 0) })
	s.until("served", "not Ready", func(p *v1.Pod) bool { return !isTrue(p, v1.PodReady) })
	s.event("served", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 5")
	s.post("http://" + p.Status.PodIP + ":8080/healthz?ok=true")
	s.eventually("the endpoint to come back", func() error { return s.endpoints("svc", 1) })
	if n := s.get("served").Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("readiness restarted the container %d times", n)
	}
}

// A container whose liveness probe fails is restarted.
func TestLiveness(t *testing.T) {
	s := newSpace(t)
	s.pod("alive", `
containers:
- name: main
  image: $web
  startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5, timeoutSeconds: 10, failureThreshold: 60}
  livenessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 2}`)
	p := s.ready("alive")
	s.fetch("http://" + p.Status.PodIP + ":8080/healthz")
	s.post("http://" + p.Status.PodIP + ":8080/healthz?ok=false")
	s.until("alive", "restarted", func(p *v1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	s.event("alive", "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 5")
	s.event("alive", "Killing", "Container main failed liveness probe, will be restarted")
	s.ready("alive")
}

// Until its startup probe succeeds, a container does not count as started: it is not ready, and its other probes do not run.
func TestStartupProbe(t *testing.T) {
	s := newSpace(t)
	s.pod("slow", `
containers:
- name: main
  image: $busybox
  command: [sleep, "1000"]
  startupProbe: {exec: {command: [test, -e, /started]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 600}
  livenessProbe: {exec: {command: [sh, -c, 'test -e /started || touch /probed-too-early']}, periodSeconds: 1, timeoutSeconds: 20}
  readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 20}`)
	s.event("slow", "Unhealthy") // so the startup probe has run and failed
	p := s.until("slow", "running", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	if c := p.Status.ContainerStatuses[0]; c.Started == nil || *c.Started || c.Ready {
		t.Errorf("started %v ready %v before the startup probe succeeded", c.Started, c.Ready)
	}
	s.sh("slow", "touch /started")
	p = s.ready("slow")
	if c := p.Status.ContainerStatuses[0]; c.Started == nil || !*c.Started {
		t.Error("not started after the startup probe succeeded")
	}
	if _, _, err := s.try("exec", "slow", "--", "test", "-e", "/probed-too-early"); err == nil {
		t.Error("the liveness probe ran before the startup probe had succeeded")
	}
}

// TCP, gRPC and exec probes work. The event of a failed exec probe contains the output of its command.
func TestProbeKinds(t *testing.T) {
	s := newSpace(t)
	s.pod("tcp", `containers: [{name: main, image: $web, readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 10}}]`)
	s.pod("closed", `containers: [{name: main, image: $web, readinessProbe: {tcpSocket: {port: 8081}, periodSeconds: 1, timeoutSeconds: 10}}]`)
	s.pod("nogrpc", `containers: [{name: main, image: $web, readinessProbe: {grpc: {port: 8081}, periodSeconds: 1, timeoutSeconds: 10}}]`)
	s.pod("exec", `containers: [{name: main, image: $busybox, command: [sleep, "1000"], readinessProbe: {exec: {command: [sh, -c, 'echo because; exit 1']}, periodSeconds: 1, timeoutSeconds: 20}}]`)
	s.ready("tcp")
	s.event("closed", "Unhealthy", "Readiness probe failed: dial tcp", "connection refused")
	s.event("nogrpc", "Unhealthy", "Readiness probe failed: timeout: failed to connect service", "within 10s")
	s.event("exec", "Unhealthy", "Readiness probe failed: because")
	for _, name := range []string{"closed", "nogrpc", "exec"} {
		if isTrue(s.get(name), v1.PodReady) {
			t.Errorf("%s is Ready", name)
		}
	}
}

// A pod with readinessGates is Ready only while the conditions that they name are True as well.
func TestReadinessGates(t *testing.T) {
	s := newSpace(t)
	s.pod("gated", `
readinessGates: [{conditionType: example.com/checked}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.until("gated", "running but not Ready", func(p *v1.Pod) bool { return isTrue(p, v1.ContainersReady) && !isTrue(p, v1.PodReady) })
	s.kubectl("patch", "pod", "gated", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"example.com/checked","status":"True"}]}}`)
	s.ready("gated")
	if !isTrue(s.get("gated"), "example.com/checked") {
		t.Error(fmt.Errorf("the owner's condition is gone: %s", summary(s.get("gated"))))
	}
}
