package integration

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Sidecars start in the order of the spec, before the main container. They restart when they exit, and stop after the main container in
// reverse order.
func TestSidecars(t *testing.T) {
	s := newSpace(t)
	side := func(name, start string) string {
		return `
- {name: ` + name + `, image: $busybox, restartPolicy: Always, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'trap "echo ` + name +
			`-end >> /v/order; exit 0" TERM; echo ` + name + ` >> /v/order; ` + start + `while :; do sleep 0.1; done'],
  startupProbe: {exec: {command: [grep, -q, ` + name + `, /v/order]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 600}}`
	}
	s.pod("beside", `
terminationGracePeriodSeconds: 60
volumes: [{name: v, hostPath: {path: `+t.TempDir()+`}}]
initContainers:`+side("first", "")+side("second", "test -e /v/failed || { touch /v/failed; sleep 1; exit 3; }; ")+`
containers:
- {name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'trap "sleep 1; echo main-end >> /v/order; exit 0" TERM; echo main >> /v/order; while :; do sleep 0.1; done']}
- {name: reader, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'trap "exit 0" TERM; touch /v/reads; while :; do sleep 0.1; done']}`)
	s.until("beside", "running with its second sidecar restarted once", func(p *v1.Pod) bool {
		st := p.Status.InitContainerStatuses
		return len(st) == 2 && st[1].RestartCount == 1 && st[1].State.Running != nil && isTrue(p, v1.PodReady)
	})
	var order string
	s.eventually("all to have begun", func() (err error) {
		order, _, err = s.try("exec", "beside", "-c", "reader", "--", "sh", "-c", "test -e /v/reads && cat /v/order")
		if err == nil && (strings.Count(order, "main\n") != 1 || strings.Count(order, "second\n") != 2) {
			err = errorf("started as %q", order)
		}
		return err
	})
	if !strings.HasPrefix(order, "first\nsecond\n") {
		t.Errorf("started as %q", order)
	}
	s.pod("watcher", `
restartPolicy: Never
volumes: [{name: v, hostPath: {path: `+hostPathOf(s, "beside")+`}}]
containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'until grep -q first-end /v/order; do sleep 0.2; done; grep end /v/order']}]`)
	s.kubectl("delete", "pod", "beside", "--wait=false")
	s.ended("watcher", v1.PodSucceeded)
	s.same("order of their ends", s.logs("watcher"), "main-end\nsecond-end\nfirst-end\n")
}

func hostPathOf(s *space, name string) string {
	return strings.TrimSpace(s.kubectl("get", "pod", name, "-o", "jsonpath={.spec.volumes[0].hostPath.path}"))
}

// With restartPolicyRules a container restarts after one exit code and not after another. With the action RestartAllContainers all
// containers of the pod restart, including init containers.
func TestRestartRules(t *testing.T) {
	s := newSpace(t)
	s.pod("rules", `
restartPolicy: Never
volumes: [{name: v, emptyDir: {}}]
containers:
- {name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'test -e /v/x && exit 7; touch /v/x; exit 42'], restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}`)
	p := s.ended("rules", v1.PodFailed)
	if c := p.Status.ContainerStatuses[0]; c.RestartCount != 1 || c.State.Terminated.ExitCode != 7 {
		t.Errorf("restarted %d times, ended with %d; want 1 and 7", c.RestartCount, c.State.Terminated.ExitCode)
	}
	s.pod("all", `
restartPolicy: Never
volumes: [{name: v, emptyDir: {}}]
initContainers: [{name: init, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'echo init >> /v/order']}]
containers:
- {name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'echo main >> /v/order; test -e /v/x && { cat /v/order; exit 0; }; touch /v/x; exit 42'], restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}`)
	s.ended("all", v1.PodSucceeded)
	s.same("order", s.logs("all", "-c", "main"), "init\nmain\ninit\nmain\n")
}
