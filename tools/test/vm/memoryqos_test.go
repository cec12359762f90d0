package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// With MemoryQoS and TieredReservation, the kernel always keeps the requested memory of a guaranteed pod, and keeps that of a burstable pod as
// long as it can: for the container, its pod and the classes above. A container that may use more than it requests is throttled above a
// value between its request and its limit.
func TestMemoryQoS(t *testing.T) {
	n := newNode(t)
	defer n.reconfigure("")
	n.reconfigure("featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\nmemoryThrottlingFactor: 0.5\n")
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.create("guaranteed", idle+`, resources: {limits: {cpu: 100m, memory: 64Mi}}`, "")
	n.create("burstable", idle+`, resources: {requests: {memory: 32Mi}, limits: {memory: 96Mi}}`, "")
	n.create("besteffort", idle, "")
	pods := n.awaitReady("guaranteed", "burstable", "besteffort")
	const kubepods = "/sys/fs/cgroup/kubepods.slice"
	has := func(dir string, want map[string]string) {
		t.Helper()
		for file, value := range want {
			if got := n.file(dir + "/" + file); got != value {
				t.Errorf("%s/%s is %s, want %s", dir, file, got, value)
			}
		}
	}
	mib := func(n int) string { return fmt.Sprint(n << 20) }
	for name, c := range map[string]struct {
		parent         string
		pod, container map[string]string
	}{
		"guaranteed": {"kubepods-pod", map[string]string{"memory.min": mib(64), "memory.low": "0"}, map[string]string{"memory.min": mib(64), "memory.high": "max"}},
		"burstable": {"kubepods-burstable.slice/kubepods-burstable-pod", map[string]string{"memory.min": "0", "memory.low": mib(32)},
			map[string]string{"memory.low": mib(32), "memory.high": mib(64)}},
		"besteffort": {"kubepods-besteffort.slice/kubepods-besteffort-pod", map[string]string{"memory.min": "0", "memory.low": "0"}, map[string]string{"memory.min": "0", "memory.low": "0"}},
	} {
		p := pods[name]
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "//")
		slice := kubepods + "/" + c.parent + strings.ReplaceAll(p.Metadata.UID, "-", "_") + ".slice"
		has(slice, c.pod)
		has(slice+"/cri-containerd-"+id+".scope", c.container)
	}
	has(kubepods+"/kubepods-burstable.slice", map[string]string{"memory.low": mib(32)})
	has(kubepods, map[string]string{"memory.min": mib(96), "memory.low": mib(32)})
	if text := n.kubectl("get", "--raw", "/api/v1/nodes/"+vmnode.NodeName+"/proxy/metrics"); !strings.Contains(text, "kubelet_memory_qos_node_memory_min_bytes 6.7108864e+07") {
		t.Error("the metrics do not have the memory that is kept for guaranteed pods")
	}
	n.noPods()
}
