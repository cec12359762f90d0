package integration

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// evictionConfig is the configuration of a node that soon runs short of disk space, because its root directory is small, and soon runs
// short of memory, because the test limits the memory of all its pods together.
const evictionConfig = `registerWithTaints: [{key: short, effect: NoSchedule}]
evictionHard: {nodefs.available: 40%, memory.available: 128Mi}
evictionPressureTransitionPeriod: 15s
`

// A pod that fills the node's disk through an emptyDir is evicted, and no other pod is. A pod that uses up the memory that all pods
// share is evicted before the kernel kills a process. An evicted pod stays Failed even if the agent is killed.
func TestEviction(t *testing.T) {
	s := newSpace(t)
	rt := filepath.Join(s.env.dir, "rt-short")
	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	smallRoot(t, s.env, "short")
	reserved := "systemReserved: {memory: \"" + memoryBut(t, 400<<20) + "\"}\n" // all pods together may use 400 MiB
	n, err := s.env.startNode(nodeConfig{Name: "short", Runtime: rt, Config: evictionConfig + reserved})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.node = n
	s.pod("modest", `
volumes: [{name: v, emptyDir: {}}]
containers:
- {name: main, image: $busybox, command: [sh, -c, 'head -c 100000 /dev/zero > /v/file; sleep 100000'], volumeMounts: [{name: v, mountPath: /v}]}`, onNode(n))
	s.ready("modest")
	s.pod("fills", `
volumes: [{name: v, emptyDir: {}}]
containers:
- {name: main, image: $busybox, command: [sh, -c, 'sleep 5; head -c 5500000 /dev/zero > /v/file; sleep 100000'], volumeMounts: [{name: v, mountPath: /v}]}`, onNode(n))
	p := s.ended("fills", v1.PodFailed)
	if want := "The node was low on resource: ephemeral-storage. Threshold quantity: "; p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, want) {
		t.Errorf("status is %s %q, want Evicted %q", p.Status.Reason, p.Status.Message, want)
	}
	if !isTrue(p, v1.DisruptionTarget) {
		t.Error("it has no condition DisruptionTarget")
	}
	s.event("fills", "Evicted")
	s.nodeCondition(n, v1.NodeDiskPressure, v1.ConditionFalse)
	s.eats(n)
	n.kill()
	if err := n.restart(); err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fills", "eats"} {
		if p := s.get(name); p.Status.Phase != v1.PodFailed || p.Status.Reason != "Evicted" {
			t.Errorf("after kill -9 %s is %s %s", name, p.Status.Phase, p.Status.Reason)
		}
	}
	if p := s.get("modest"); !isTrue(p, v1.PodReady) || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the pod that was within its means was touched")
	}
}

// eats starts a pod that allocates about 30 MB of memory per second, and waits until the pod is evicted.
func (s *space) eats(n *node) {
	s.Helper()
	s.pod("eats", `
volumes: [{name: m, emptyDir: {medium: Memory}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'trap "exit 0" TERM; while :; do head -c 10000000 /dev/zero >> /m/file; sleep 0.3; done']
  volumeMounts: [{name: m, mountPath: /m}]`, onNode(n))
	began := time.Now()
	p := s.ended("eats", v1.PodFailed)
	if want := "The node was low on resource: memory. Threshold quantity: 128Mi, available: "; p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, want) {
		s.Errorf("status is %s %q, want Evicted %q", p.Status.Reason, p.Status.Message, want)
	}
	// The container would exit with 0 after SIGTERM.
	if c := p.Status.ContainerStatuses[0].State.Terminated; c == nil || c.Reason == "OOMKilled" || c.ExitCode != 137 {
		s.Errorf("its container ended with %+v, want killed by the node at once", c)
	}
	s.Logf("evicted %v after its creation", time.Since(began).Round(100*time.Millisecond))
	s.nodeCondition(n, v1.NodeMemoryPressure, v1.ConditionFalse)
}

// nodeCondition waits until a condition of the node has the status want.
func (s *space) nodeCondition(n *node, kind v1.NodeConditionType, want v1.ConditionStatus) {
	s.Helper()
	s.eventually(string(kind)+" "+string(want), func() error {
		obj, err := s.env.client.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range obj.Status.Conditions {
			if c.Type == kind && c.Status == want {
				return nil
			}
		}
		return errorf("the node has %+v", obj.Status.Conditions)
	})
}

// memoryBut returns the memory of the machine minus rest bytes, as a quantity (resource.Quantity) in text.
func memoryBut(t *testing.T, rest uint64) string {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "MemTotal:" {
			continue
		}
		kib, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatUint(kib<<10-rest, 10)
	}
	t.Fatal("/proc/meminfo has no MemTotal")
	return ""
}
