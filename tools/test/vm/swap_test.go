package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// With LimitedSwap a Burstable container gets a share of the machine's swap that is proportional to its memory request. Other containers
// get no swap.
func TestLimitedSwap(t *testing.T) {
	n := newNode(t)
	const swap = 256 << 20
	n.sh("fallocate -l 256M /swapfile; chmod 600 /swapfile; mkswap -q /swapfile; swapon /swapfile")
	defer func() { // the agent starts again after swap is turned off, because it would refuse to start with swap
		n.sh("swapoff /swapfile; rm /swapfile")
		n.reconfigure("")
	}()
	n.reconfigure("failSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\n")
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.create("burstable", idle+`, resources: {requests: {memory: 256Mi}, limits: {memory: 512Mi}}`, "")
	n.create("guaranteed", idle+`, resources: {limits: {cpu: 100m, memory: 64Mi}}`, "")
	n.create("besteffort", idle, "")
	pods := n.awaitReady("burstable", "guaranteed", "besteffort")
	var capacity int64
	_, _ = fmt.Sscanf(n.kubectl("get", "node", vmnode.NodeName, "-o", "jsonpath={.status.capacity.memory}"), "%dKi", &capacity)
	share := int64(float64(256<<20) / float64(capacity<<10) * float64(swap))
	for name, parent := range map[string]string{
		"burstable": "kubepods-burstable.slice/kubepods-burstable-pod", "guaranteed": "kubepods-pod", "besteffort": "kubepods-besteffort.slice/kubepods-besteffort-pod",
	} {
		p := pods[name]
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "//")
		got := n.number(n.file("/sys/fs/cgroup/kubepods.slice/" + parent + strings.ReplaceAll(p.Metadata.UID, "-", "_") + ".slice/cri-containerd-" + id + ".scope/memory.swap.max"))
		want := 0
		if name == "burstable" {
			want = int(share)
		}
		// Two pages of tolerance: the swap space is a page smaller than its file, and a limit is a multiple of the page size.
		if got > want || got < want-8192 {
			t.Errorf("%s: memory.swap.max is %d, want %d", name, got, want)
		}
	}
	n.noPods()
}
