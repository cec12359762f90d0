package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// limits returns the CPU quota and the memory limit from the cgroup files of a pod or, if container is an ID, of that container.
func (s *space) limits(p *v1.Pod, container string) string {
	s.Helper()
	if unified() {
		return strings.Fields(s.cgroupFile(p, container, "cpu", "cpu.max"))[0] + " " + s.cgroupFile(p, container, "memory", "memory.max")
	}
	return s.cgroupFile(p, container, "cpu", "cpu.cfs_quota_us") + " " + s.cgroupFile(p, container, "memory", "memory.limit_in_bytes")
}

// condition returns a condition of a pod in one line: status, reason and message; "" if the pod does not have the condition.
func condition(p *v1.Pod, kind v1.PodConditionType) string {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		}
	}
	return ""
}

// resized resizes a container, waits until the status shows the new resources, and returns the pod.
func (s *space) resized(name, container, cpu, memory string) *v1.Pod {
	s.Helper()
	s.resize(name, container, cpu, memory)
	return s.until(name, "resized to "+cpu+" "+memory, func(p *v1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == container && c.Resources != nil {
				return c.Resources.Limits.Cpu().String() == cpu && c.Resources.Limits.Memory().String() == memory &&
					c.AllocatedResources.Cpu().String() == cpu && condition(p, v1.PodResizeInProgress) == "" && isTrue(p, v1.PodReady)
			}
		}
		return false
	})
}

func (s *space) resize(name, container, cpu, memory string) {
	s.Helper()
	s.kubectl("patch", "pod", name, "--subresource", "resize", "-p", fmt.Sprintf(
		`{"spec":{"containers":[{"name":%q,"resources":{"requests":{"cpu":%q,"memory":%q},"limits":{"cpu":%q,"memory":%q}}}]}}`, container, cpu, memory, cpu, memory))
}

// `kubectl patch --subresource resize` makes the resources of running containers larger and smaller. The cgroup files and the output of
// kubectl show the new values. A container restarts only if its resizePolicy says so. A resize that does not fit on the node waits or is
// refused.
func TestResize(t *testing.T) {
	s := newSpace(t)
	// The test has a node of its own, because other pods would use up its resources.
	rt := filepath.Join(s.env.dir, "rt-resize")
	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	n, err := s.env.startNode(nodeConfig{Name: "resize", Runtime: rt, Config: "registerWithTaints: [{key: resize, effect: NoSchedule}]\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.node = n
	s.pod("app", `
containers:
- {name: a, image: $busybox, command: [sleep, "1000"], resources: {limits: {cpu: 100m, memory: 64Mi}}}
- {name: b, image: $busybox, command: [sleep, "1000"], resources: {limits: {cpu: 100m, memory: 32Mi}}, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]}`, onNode(n))
	p := s.ready("app")
	ids := func(p *v1.Pod) map[string]string {
		out := map[string]string{}
		for _, c := range p.Status.ContainerStatuses {
			out[c.Name] = c.ContainerID
		}
		return out
	}
	first := ids(p)
	check := func(what, container, want string) {
		s.Helper()
		s.same(what, s.limits(p, container), want)
	}
	const mi = 1 << 20
	check("the pod at first", "", fmt.Sprint(20000, " ", 96*mi))

	p = s.resized("app", "a", "200m", "128Mi")
	check("a after it grew", first["a"], fmt.Sprint(20000, " ", 128*mi))
	check("the pod after a grew", "", fmt.Sprint(30000, " ", 160*mi))
	p = s.resized("app", "a", "50m", "32Mi")
	check("a after it shrank", first["a"], fmt.Sprint(5000, " ", 32*mi))
	check("the pod after a shrank", "", fmt.Sprint(15000, " ", 64*mi))
	p = s.resized("app", "b", "150m", "32Mi")
	check("b after its CPU grew", first["b"], fmt.Sprint(15000, " ", 32*mi))
	if got := ids(p); got["a"] != first["a"] || got["b"] != first["b"] {
		t.Errorf("containers %v, want %v: a resize restarted them", got, first)
	}
	s.event("app", "ResizeStarted")
	s.contains("event", s.event("app", "ResizeCompleted").Message, "Pod resize completed: ", `"name":"a"`)

	p = s.resized("app", "b", "150m", "64Mi") // for memory, the resizePolicy of b is RestartContainer
	if got := ids(p); got["a"] != first["a"] || got["b"] == first["b"] {
		t.Errorf("containers %v after a resize that restarts b of %v", got, first)
	}
	for _, c := range p.Status.ContainerStatuses {
		if want := map[string]int32{"b": 1}[c.Name]; c.RestartCount != want {
			t.Errorf("%s was restarted %d times, want %d", c.Name, c.RestartCount, want)
		}
	}
	check("b after it restarted", ids(p)["b"], fmt.Sprint(15000, " ", 64*mi))
	s.same("Killing event", s.event("app", "Killing").Message, "Container b resize requires restart")

	// From Kubernetes 1.36 on, the API server itself refuses a resize that can never fit on the node.
	_, refused, err := s.try("patch", "pod", "app", "--subresource", "resize", "-p", `{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"900"},"limits":{"cpu":"900"}}}]}}`)
	if err == nil {
		t.Error("900 CPUs were granted")
	}
	s.contains("refusal", refused, "node didn't have enough allocatable resources: cpu, requested: 900150")

	object, err := s.client().CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	room := object.Status.Allocatable.Cpu().MilliValue()
	s.pod("hog", strings.Replace(`containers: [{name: main, image: $busybox, command: [sleep, "1000"], resources: {requests: {cpu: CPU}}}]`,
		"CPU", fmt.Sprint(room-400, "m"), 1), onNode(n))
	s.ready("hog")
	s.resize("app", "a", "500m", "32Mi")
	p = s.until("app", "deferred", func(p *v1.Pod) bool { return strings.HasPrefix(condition(p, v1.PodResizePending), "True Deferred") })
	check("a while it waits", first["a"], fmt.Sprint(5000, " ", 32*mi))
	s.event("app", "ResizeDeferred")
	s.kubectl("delete", "pod", "hog", "--wait=false")
	p = s.until("app", "resized when there is room", func(p *v1.Pod) bool {
		return condition(p, v1.PodResizePending) == "" && condition(p, v1.PodResizeInProgress) == "" &&
			p.Status.ContainerStatuses[0].Resources.Limits.Cpu().String() == "500m"
	})
	check("a in the end", ids(p)["a"], fmt.Sprint(50000, " ", 32*mi))
	if got := ids(p)["a"]; got != first["a"] {
		t.Errorf("container a is %s, was %s", got, first["a"])
	}
	s.pod("whole", `
resources: {requests: {cpu: 100m, memory: 48Mi}, limits: {cpu: 200m, memory: 96Mi}}
containers:
- {name: a, image: $busybox, command: [sleep, "1000"]}
- {name: b, image: $busybox, command: [sleep, "1000"], resources: {limits: {cpu: 50m, memory: 16Mi}}}`, onNode(n))
	p = s.ready("whole")
	if p.Status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("class %s", p.Status.QOSClass)
	}
	check("the pod that has resources of its own", "", fmt.Sprint(20000, " ", 96*mi))
	check("its container without limits", ids(p)["a"], fmt.Sprint(20000, " ", 96*mi))
	check("its container with limits", ids(p)["b"], fmt.Sprint(5000, " ", 16*mi))
	s.kubectl("patch", "pod", "whole", "--subresource", "resize", "-p", `{"spec":{"resources":{"requests":{"cpu":"100m","memory":"48Mi"},"limits":{"cpu":"300m","memory":"128Mi"}}}}`)
	was := ids(p)
	p = s.until("whole", "resized", func(p *v1.Pod) bool {
		return p.Status.Resources != nil && p.Status.Resources.Limits.Cpu().String() == "300m" && condition(p, v1.PodResizeInProgress) == ""
	})
	check("the pod that grew", "", fmt.Sprint(30000, " ", 128*mi))
	check("its container that follows it", was["a"], fmt.Sprint(30000, " ", 128*mi))
	if got := ids(p); got["a"] != was["a"] || got["b"] != was["b"] {
		t.Errorf("containers %v, want %v", got, was)
	}
	s.kubectl("delete", "pods", "--all", "--wait=false")
	for _, name := range []string{"app", "whole"} {
		s.gone(name)
	}
}

// The overhead of a RuntimeClass is added to the limits of the pod's cgroup, and counts at admission. If the runtime does not have the
// handler, an event says so.
func TestRuntimeClass(t *testing.T) {
	s := newSpace(t)
	class := func(name, handler, cpu string) {
		s.apply(fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\noverhead: {podFixed: {cpu: %q, memory: 16Mi}}\n", name, handler, cpu))
		t.Cleanup(func() { s.kubectl("delete", "runtimeclass", name) })
	}
	class(s.name+"-runc", "runc", "50m")
	class(s.name+"-heavy", "runc", "900")
	class(s.name+"-none", "nobody", "1m")
	const spec = `
runtimeClassName: CLASS
containers: [{name: main, image: $busybox, command: [sleep, "1000"], resources: {limits: {cpu: 50m, memory: 16Mi}}}]`
	of := func(name string) string { return strings.Replace(spec, "CLASS", s.name+"-"+name, 1) }
	here := func(p *v1.Pod) { p.Spec.NodeName = s.env.node.Name }
	s.pod("light", of("runc"))
	s.pod("heavy", of("heavy"), here)
	s.pod("none", of("none"))
	p := s.ready("light")
	s.same("limits of the pod", s.limits(p, ""), fmt.Sprint(10000, " ", 32<<20))
	s.same("limits of its container", s.limits(p, p.Status.ContainerStatuses[0].ContainerID), fmt.Sprint(5000, " ", 16<<20))
	p = s.ended("heavy", v1.PodFailed)
	s.same("reason", p.Status.Reason, "OutOfcpu")
	s.contains("message", p.Status.Message, "cpu, requested: 900050")
	s.contains("event", s.event("none", "FailedCreatePodSandBox").Message, "nobody")
}
