package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// While pods run, the node changes from Wherry to upstream's kubelet and back. Neither agent restarts a container.
func TestHandOverToKubeletAndBack(t *testing.T) {
	n := newNode(t)
	kubelet := filepath.Join(n.Checkout, "bin", "conformance", "kubelet")
	if _, err := os.Stat(kubelet); err != nil {
		t.Skip("no upstream kubelet: bin/wherry-dev build kubelet")
	}
	if err := n.Attach(t.Context(), "upstream", map[string]string{"kubelet": kubelet}); err != nil {
		t.Fatal(err)
	}
	names := n.some()
	before, counts := n.containers(), n.restarts()
	check := func(agent string) {
		t.Helper()
		if err := n.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.awaitReady(names...)
		if after := n.containers(); after != before {
			t.Errorf("under %s the containers are:\n%s\nand were:\n%s", agent, after, before)
		}
		for name, now := range n.restarts() {
			if now != counts[name] {
				t.Errorf("under %s %s has %d restarts, and had %d", agent, name, now, counts[name])
			}
		}
	}
	n.sh("systemctl stop kubelet; rm /usr/bin/kubelet; ln -s /opt/upstream/kubelet /usr/bin/kubelet; systemctl start kubelet")
	defer n.sh("systemctl stop kubelet; ln -sfn wherry /usr/bin/kubelet; systemctl start kubelet")
	n.awaitVersion(false)
	check("upstream's kubelet")
	n.create("theirs", idle, "")
	n.awaitReady("theirs")
	names = append(names, "theirs")
	before, counts = n.containers(), n.restarts()

	n.sh("systemctl stop kubelet; ln -sfn wherry /usr/bin/kubelet; systemctl start kubelet")
	n.awaitVersion(true)
	check("Wherry")
	n.gone()
}

// awaitVersion waits until the Node object shows the version of Wherry or, if wherry is false, of upstream's kubelet.
func (n *node) awaitVersion(wherry bool) {
	n.Helper()
	n.await("the other agent", podBound, func() (bool, string) {
		version := n.kubectl("get", "node", vmnode.NodeName, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
		return strings.Contains(version, "wherry") == wherry, version
	})
}
