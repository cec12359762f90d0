package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// These say how many pods use the NFS server that stops, and for how long it stops.
const (
	nfsPods  = 20
	nfsPause = 10 * time.Minute
)

// The NFS server of twenty pods stops for ten minutes. Meanwhile the node stays Ready, other pods start, log and end, and the statistics
// answer. When the server is back, the pods go on in the same containers, and one that was deleted meanwhile is gone.
func TestNFSServerStops(t *testing.T) {
	n := newNode(t)
	n.sh(`mkdir -p /srv/nfs && chmod 777 /srv/nfs && echo '/srv/nfs 127.0.0.1(rw,no_root_squash,no_subtree_check)' > /etc/exports && systemctl restart nfs-server && exportfs -ra`)
	defer n.sh("systemctl restart nfs-server") // otherwise a failure would leave mounts behind that hang
	writes := `command: [sh, -c, "trap 'exit 0' TERM; while :; do date +%s >> /data/$(hostname); sleep 1; done"], volumeMounts: [{name: data, mountPath: /data}]`
	const volume = "  volumes: [{name: data, nfs: {server: 127.0.0.1, path: /srv/nfs}}]\n"
	var names []string
	for i := range nfsPods {
		names = append(names, fmt.Sprintf("nfs-%d", i))
		n.create(names[i], writes, volume)
		if i%5 == 4 { // an emulated machine starts few pods at once
			n.awaitReady(names[i-4 : i+1]...)
		}
	}
	n.await("a line of each pod on the server", podBound, func() (bool, string) {
		out := n.sh("ls /srv/nfs | wc -l")
		return out == fmt.Sprint(nfsPods), out
	})
	restarts := n.restarts()
	n.sh("systemctl stop nfs-server")
	stopped := time.Now()
	n.kubectl("delete", "pod", names[0], "--wait=false")
	rounds := 0
	for ; time.Since(stopped) < nfsPause; rounds++ {
		n.besideADeadServer(fmt.Sprint("other-", rounds))
	}
	t.Logf("while the server was away for %v, %d other pods started and ended", time.Since(stopped).Round(time.Second), rounds)
	n.sh("systemctl start nfs-server && exportfs -ra")
	n.await("the deleted pod to go", podBound, func() (bool, string) {
		p := n.pods()[names[0]]
		return p == nil, fmt.Sprint(p)
	})
	pods := n.awaitReady(names[1:]...)
	for _, name := range names[1:] {
		if now := pods[name].Status.ContainerStatuses[0].RestartCount; now != restarts[name] {
			t.Errorf("%s has restarted %d times", name, now-restarts[name])
		}
	}
	size := func() int { return n.number(n.sh("cat /srv/nfs/nfs-1 | wc -l")) }
	before := size()
	n.await("the pods to write again", podBound, func() (bool, string) {
		now := size()
		return now > before, fmt.Sprint(now)
	})
	n.noPods()
	if left := n.sh("grep -c ' nfs' /proc/mounts || true"); left != "0" {
		t.Errorf("%s NFS mounts are left", left)
	}
}

// besideADeadServer starts a pod that uses no NFS, reads its log and deletes it, and checks that the node is well.
func (n *node) besideADeadServer(name string) {
	n.Helper()
	n.create(name, idle, "")
	n.awaitReady(name)
	if out := n.kubectl("logs", name); out != "up" {
		n.Errorf("the log of %s is %q", name, out)
	}
	if out := n.kubectl("get", "--raw", "/api/v1/nodes/"+vmnode.NodeName+"/proxy/stats/summary"); !strings.Contains(out, `"`+name+`"`) {
		n.Errorf("the statistics of the node do not have %s", name)
	}
	if out := n.kubectl("get", "node", vmnode.NodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "True" {
		n.Errorf("the node's condition Ready is %s", out)
	}
	n.kubectl("delete", "pod", name, "--wait=false")
	n.await("a pod without NFS to go", podBound, func() (bool, string) {
		p := n.pods()[name]
		return p == nil, fmt.Sprint(p)
	})
}
