package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/vm"
	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// While pods run, the node changes from Wherry to upstream's kubelet and back. Neither agent restarts a container.
func TestHandOverToKubeletAndBack(t *testing.T) {
	n := newNode(t)
	kubelet := filepath.Join(n.Checkout, "bin", "conformance", "kubelet")
	if _, err := os.Stat(kubelet); err != nil {
		t.Skip("no upstream kubelet: bin/wherry-dev build kubelet")
	}
	n.attachUpstream(kubelet)
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

// attachUpstream attaches a disk with upstream's kubelet (the file program) to the running guest.
func (n *node) attachUpstream(program string) {
	n.Helper()
	dir, image := n.TempDir(), filepath.Join(n.Dir, "upstream.img")
	if err := os.Link(program, filepath.Join(dir, "kubelet")); err != nil {
		data, err := os.ReadFile(program)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "kubelet"), data, 0o755)
		}
		if err != nil {
			n.Fatal(err)
		}
	}
	if err := vm.FileSystem(n.Context(), image, dir, "upstream", 256); err != nil {
		n.Fatal(err)
	}
	if err := n.Machine.AttachDisk(n.Context(), "upstream", image); err != nil {
		n.Fatal(err)
	}
	n.sh("mkdir -p /opt/upstream; udevadm settle; mount -o ro /dev/disk/by-id/virtio-upstream /opt/upstream")
}

// awaitVersion waits until the Node object shows the version of Wherry or, if wherry is false, of upstream's kubelet.
func (n *node) awaitVersion(wherry bool) {
	n.Helper()
	n.await("the other agent", podBound, func() (bool, string) {
		version := n.kubectl("get", "node", vmnode.NodeName, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
		return strings.Contains(version, "wherry") == wherry, version
	})
}
