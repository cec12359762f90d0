package integration

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// If the node cannot run a pod that names it in spec.nodeName, the node refuses the pod with the same reason as upstream's kubelet. The
// runtime gets no sandbox for such a pod.
func TestRefusals(t *testing.T) {
	s := newSpace(t)
	here := func(p *v1.Pod) { p.Spec.NodeName = s.env.node.Name }
	const quiet = `containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`
	s.pod("holder", `
containers: [{name: main, image: $busybox, command: [sleep, "1000"], ports: [{containerPort: 80, hostPort: 20081}]}]`, here)
	s.ready("holder")

	cases := []struct {
		name, spec, reason string
		message            []string
	}{
		{"cpu", strings.Replace(quiet, "}]", `, resources: {requests: {cpu: "900"}}}]`, 1), "OutOfcpu",
			[]string{"Pod was rejected: Node didn't have enough resource: cpu, requested: 900000, used: ", "capacity: "}},
		{"memory", strings.Replace(quiet, "}]", `, resources: {requests: {memory: 900Gi}}}]`, 1), "OutOfmemory", []string{"memory, requested: 966367641600"}},
		{"selector", quiet + "\nnodeSelector: {no: such}", "NodeAffinity", []string{"Predicate NodeAffinity failed"}},
		{"port", strings.Replace(quiet, "}]", `, ports: [{containerPort: 80, hostPort: 20081}]}]`, 1), "NodePorts", []string{"Predicate NodePorts failed"}},
		{"sysctl", quiet + "\nsecurityContext: {sysctls: [{name: kernel.msgmax, value: \"65536\"}]}", "SysctlForbidden", []string{"forbidden sysctl: \"kernel.msgmax\""}},
		{"os", quiet + "\nos: {name: windows}", "PodOSNotSupported", []string{"Failed to admit pod as the OS field doesn't match node OS"}},
	}
	for _, c := range cases {
		s.pod(c.name, c.spec, here)
	}
	for _, c := range cases {
		p := s.ended(c.name, v1.PodFailed)
		if p.Status.Reason != c.reason {
			t.Errorf("%s: reason %s, want %s", c.name, p.Status.Reason, c.reason)
		}
		s.contains(c.name+": message", p.Status.Message, c.message...)
		s.contains("get pod "+c.name, s.kubectl("get", "pod", c.name), "0/1", c.reason)
		ev := s.event(c.name, c.reason)
		if ev.Type != v1.EventTypeWarning || ev.Source.Component != "kubelet" {
			t.Errorf("%s: event %+v", c.name, ev)
		}
	}
	if out, err := s.env.node.crictl("pods", "--namespace", s.name, "-q"); err != nil || len(strings.Fields(out)) != 1 {
		t.Errorf("sandboxes: %q, want the holder's alone; %v", out, err)
	}
}

// Safe sysctls, and those that the node allows (allowedUnsafeSysctls), take effect in a pod.
func TestSysctls(t *testing.T) {
	s := newSpace(t)
	s.pod("tuned", `
securityContext: {sysctls: [{name: net.ipv4.ip_local_port_range, value: "20000 21000"}, {name: net.core.somaxconn, value: "321"}, {name: kernel.shm_rmid_forced, value: "1"}]}
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.ready("tuned")
	s.same("sysctls", s.sh("tuned", "cd /proc/sys; cat net/ipv4/ip_local_port_range net/core/somaxconn kernel/shm_rmid_forced"), "20000\t21000\n321\n1\n")
}
