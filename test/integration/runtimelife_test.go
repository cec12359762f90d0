package integration

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestRuntimeLife runs a node whose runtime has not started yet, later hangs, and crashes. Each time the node reports this, and becomes
// Ready again by itself. Pods are not affected.
func TestRuntimeLife(t *testing.T) {
	s := newSpace(t)
	rt := filepath.Join(s.env.dir, "rt-rough")
	root := smallRoot(t, s.env, "rough")
	n, err := s.env.startNode(nodeConfig{Name: "rough", Runtime: rt, // no eviction for lack of disk space, because the test fills the disk
		Config: "nodeStatusUpdateFrequency: 2s\nregisterWithTaints: [{key: rough, effect: NoSchedule}]\nevictionHard: {memory.available: 10Mi}\n"})
	if err != nil {
		t.Fatal(err)
	}
	c := s.untilReady(n, v1.ConditionFalse)
	s.contains("Ready without a runtime", c.Message, "container runtime", rt+"/containerd.sock")
	s.same("reason", c.Reason, "KubeletNotReady")
	s.pod("early", stayingPlain, onNode(n))

	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.ready("early")
	s.kubectl("delete", "pod", "early", "--wait=false")
	s.stayers(n)
	for _, name := range []string{"stays-probed", "stays-plain"} {
		s.started(name)
	}
	ids, begun := s.ids(n), s.agentEvents()

	stopped := s.containerdPid(rt)
	cont := sync.OnceFunc(func() { _ = syscall.Kill(stopped, syscall.SIGCONT) })
	t.Cleanup(cont)
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c = s.untilReady(n, v1.ConditionFalse)
	t.Logf("a runtime that hangs is reported after %s: %s", time.Since(began).Round(100*time.Millisecond), c.Message)
	s.contains("Ready while the runtime hangs", c.Message, "container runtime")
	cont()
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.proof(n, "after-hang")
	s.same("containers after a hang", s.ids(n), ids)
	s.ready("stays-probed")

	began = time.Now()
	_ = syscall.Kill(stopped, syscall.SIGKILL)
	c = s.untilReady(n, v1.ConditionFalse)
	t.Logf("a runtime that is gone is reported after %s: %s", time.Since(began).Round(100*time.Millisecond), c.Message)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.proof(n, "after-crash")
	s.same("containers after a crash", s.ids(n), ids)
	for _, name := range []string{"stays-probed", "stays-plain"} {
		for _, c := range s.ready(name).Status.ContainerStatuses {
			if c.RestartCount != 0 {
				t.Errorf("%s of %s was restarted", c.Name, name)
			}
		}
	}
	for _, ev := range s.agentEvents() {
		if !slices.Contains(begun, ev) && (strings.Contains(ev, "Killing") || strings.Contains(ev, "probe failed") || strings.Contains(ev, "Failed")) {
			t.Errorf("event %s", ev)
		}
	}
	diskFull(s, n, root)
}
